"""The live page in a real browser."""

import contextlib
import json
import shutil
import threading

import psycopg
import pytest

import machine
import rawclient as wire
from browser import PHONE, WIDE, Browser, program
from httpfixtures import http_port, reload, start  # noqa: F401 (fixtures)
from pooler import ROOT
from scraping import get

pytestmark = [pytest.mark.pgweir_only("PgBouncer does not speak HTTP"), pytest.mark.timeout(300)]

PICTURES = ROOT / "target" / "live-page"
BROWSER = "text/html,application/xhtml+xml"


@pytest.fixture
def tab(tmp_path):
    assert program(), "Chromium is needed: tools/install-deps full"
    with Browser(tmp_path / "profile") as browser:
        yield browser.tab()


def log_in(tab, pooler, user="admin", size=WIDE, dark=False):
    """Opens the page, and logs in with the keyboard alone."""
    tab.look(size, dark)
    tab.open(f"http://127.0.0.1:{pooler.http}/")
    tab.wait("document.getElementById('login').open")
    tab.evaluate("document.getElementById('user').focus()")
    tab.type(user)
    tab.press("Tab")
    tab.type(pooler.users[user])
    tab.press("Enter")
    tab.wait("document.getElementById('pools-body')?.textContent")
    return tab


def wait_for_plots(tab, samples=3):
    tab.wait(f"history15.times.length >= {samples}", 60)


def nothing_is_wrong(tab):
    """Checks that the page has no error in the script and no violation of its policy. A refused login does not count.
    """
    wrong = [one for one in tab.complaints if "401" not in json.dumps(one)]
    assert not wrong, wrong


# -- without a browser

def test_the_page_has_a_content_security_policy(start):
    pooler = start()
    page = get(pooler.http, "/", Accept=BROWSER)
    assert page.status == 200 and page.headers["Content-Type"] == "text/html; charset=utf-8"
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
    assert page.headers["X-Content-Type-Options"] == "nosniff" and page.headers["Referrer-Policy"] == "no-referrer"
    assert get(pooler.http, "/").headers["Content-Type"].startswith("text/plain"), "curl gets a list of addresses"


# -- in Chromium

@pytest.mark.full
def test_the_page_of_an_idle_pooler(start, tab):
    pooler = start(http_history_interval=1)
    with pooler.connect() as db:
        db.execute("SELECT 1")
        log_in(tab, pooler)
        wait_for_plots(tab)
        assert "no client waits" in tab.evaluate("document.getElementById('notes').innerText")
        tab.screenshot(PICTURES / "idle.png")
        tab.evaluate("location.hash = '#/pool/app/trusty'")
        tab.wait("document.querySelector('#clients-body a')")
        tab.screenshot(PICTURES / "pool.png")
        tab.evaluate("document.querySelector('#clients-body a').click()")
        tab.wait("document.querySelector('#facts-body dl')")
        tab.screenshot(PICTURES / "client.png")
    nothing_is_wrong(tab)


@pytest.mark.full
def test_a_thousand_clients(start, tab):
    pooler = start(http_history_interval=1, max_client_conn=3000, default_pool_size=10)
    stop = threading.Event()

    def work():
        with pooler.connect() as db:
            while not stop.is_set():
                db.execute("SELECT pg_sleep(0.005)")
    with contextlib.ExitStack() as stack:
        for number in range(960):
            stack.enter_context(pooler.raw(dbname="app" if number % 3 else "other"))
        threads = [threading.Thread(target=work) for _ in range(40)]
        for thread in threads:
            thread.start()
        stack.callback(lambda: [thread.join() for thread in threads])
        stack.callback(stop.set)
        log_in(tab, pooler)
        wait_for_plots(tab, 15)
        tab.screenshot(PICTURES / "thousand.png")
        tab.look(WIDE, dark=True)
        tab.screenshot(PICTURES / "dark.png")
        tab.look(PHONE)
        tab.screenshot(PICTURES / "phone.png")
        width = tab.evaluate("document.documentElement.scrollWidth")
        assert width <= PHONE[0], "the page does not scroll sideways"
        tab.look(PHONE, dark=True)
        tab.evaluate("location.hash = '#/pool/app/trusty'")
        tab.wait("document.querySelector('#clients-body table')")
        tab.screenshot(PICTURES / "phone-pool.png")
        covered = "document.querySelector('header').getBoundingClientRect().bottom"
        top = "document.querySelector('main nav').getBoundingClientRect().top"
        assert tab.evaluate(f"{top} >= {covered}"), "the header does not cover the way back and the title"
    nothing_is_wrong(tab)


@pytest.mark.full
def test_a_pinned_client_and_one_that_waits(start, tab):
    pooler = start(http_history_interval=1, default_pool_size=1, max_pinned=1, query_wait_timeout=0)
    name = "<img src=x onerror=\"document.title='broken'\">"
    with pooler.connect(application_name=name) as pinned, pooler.raw() as waiter:
        pinned.execute("CREATE TEMP TABLE t (a int)")
        waiter.send(wire.query("SELECT 1"))
        log_in(tab, pooler)
        tab.wait("document.querySelector('#pins-body td') && document.querySelector('#waiters-body td')", 40)
        wait_for_plots(tab, 6)
        text = tab.evaluate("document.getElementById('main').innerText")
        assert "temporary objects" in text and "1 client waiting" in text
        assert tab.evaluate("document.getElementById('notes').childElementCount") == 1, "one trouble, one sentence"
        assert f'(application "{name}", idle and pinned)' in text
        tab.screenshot(PICTURES / "pinned.png")
        client = next(row["id"] for row in pooler.console("SHOW CLIENTS") if row["application_name"].startswith("<img"))
        tab.evaluate(f"location.hash = '#/client/{client}'")
        tab.wait("document.querySelector('#why-body dl')")
        assert name in tab.evaluate("document.getElementById('facts-body').textContent")
        assert tab.evaluate("document.title") == "pgweir" and not tab.evaluate("document.images.length")
        # An admin ends it, by the keyboard.
        tab.evaluate("[...document.querySelectorAll('button')].find((one) => one.textContent.startsWith('KILL_CLIENT')).focus()")
        tab.press("Enter")
        tab.wait("document.getElementById('ask').open")
        assert tab.evaluate("document.activeElement.textContent") == "Cancel"
        tab.evaluate("document.getElementById('ask-yes').focus()")
        tab.press("Enter")
        tab.wait("document.getElementById('saying')?.textContent.includes('done')")
        with pytest.raises(psycopg.OperationalError):
            pinned.execute("SELECT 1")
    pooler.expect_log("KILL_CLIENT")
    nothing_is_wrong(tab)


@pytest.mark.full
def test_an_outage(start, newest_pg, tab):
    where = f"host={newest_pg.host} port={newest_pg.port} dbname=app"
    gone = "host=127.0.0.1 port=1"
    pooler = start(databases={"app": where, "orders": gone, "bills": gone, "paused": where}, http_history_interval=1, server_login_retry=30)
    for database in ("bills", "orders"):
        with contextlib.suppress(psycopg.OperationalError):
            pooler.connect(dbname=database).close()
    with pooler.connect() as db:
        db.execute("SELECT 1")
        pooler.console("PAUSE paused")
        log_in(tab, pooler, "stats")
        wait_for_plots(tab)
        notes = tab.evaluate("document.getElementById('notes').innerText")
        assert "bills / trusty, orders / trusty: no server" in notes and "paused is paused" in notes
        assert notes.count("no server") == 1, "one host, one sentence"
        tab.wait("document.querySelector('#hosts-body td')")
        hosts = tab.evaluate("[...document.querySelectorAll('#hosts-body tbody tr')].map((tr) => [...tr.cells].map((td) => td.textContent))")
        down, up = sorted(hosts, key=lambda row: row[3])
        assert down[:4] == ["127.0.0.1:1", "bills, orders", "–", "down"] and "refused" in down[-1], hosts
        assert up[1:4] == ["app, paused", "primary", "up"] and up[5] == "1", hosts
        assert not tab.evaluate("document.getElementById('process-actions').childElementCount"), "stats_users give no orders"
        tab.screenshot(PICTURES / "outage.png")
        pooler.signal(3)
        pooler.wait_end()
        tab.wait("document.getElementById('state').textContent.includes('no answer')")
        tab.screenshot(PICTURES / "gone.png")


@pytest.mark.full
def test_failed_logins_have_their_address(start, tab):
    pooler = start(auth_type="scram-sha-256", http_history_interval=1)
    for _ in range(25):
        pooler.login_error("scrammed", password="of last year", application_name="<b>import</b>")
    log_in(tab, pooler, "stats")
    tab.wait("document.querySelector('#notes li.bad')")
    note = tab.evaluate("document.querySelector('#notes li.bad').innerText")
    assert "25 failed logins of clients to app, as user scrammed" in note and "wrong password" in note
    assert 'They come from 127.0.0.1 (application "<b>import</b>"): 25' in note
    nothing_is_wrong(tab)


@pytest.mark.full
def test_clients_that_wait_for_the_same_reason_are_one_row(start, tab):
    """Clients that wait for the same reason, with the same remedy, are one row, also on a small screen."""
    pooler = start(http_history_interval=1, default_pool_size=1, query_wait_timeout=0)
    with contextlib.ExitStack() as stack:
        holders = [stack.enter_context(pooler.raw(dbname=database)) for database in ("app", "other")]
        for holder in holders:
            holder.query("BEGIN")
        waiters = [stack.enter_context(pooler.raw(dbname="app" if number < 40 else "other")) for number in range(60)]
        for waiter in waiters:
            waiter.send(wire.query("SELECT 1"))
        machine.wait_until(lambda: pooler.console("SHOW WAITERS")[0]["holder_us"] >= 1_000_000, what="transactions idle for long")
        log_in(tab, pooler, "stats", size=PHONE)
        rows = "[...document.querySelectorAll('#waiters-body tbody tr')].map((tr) => [...tr.cells].map((td) => td.textContent))"
        tab.wait(f"{rows}.length === 2")
        app, other = sorted(tab.evaluate(rows), key=lambda row: row[1])
        assert app[:2] == ["40", "app / trusty"] and other[:2] == ["20", "other / trusty"]
        assert "end the idle transaction of client" in app[5]
        assert tab.evaluate("document.getElementById('waiters-note').textContent") == "60 clients"
        tab.screenshot(PICTURES / "phone-waiters.png")
        height = tab.evaluate("document.getElementById('waiters').offsetHeight")
        assert height < PHONE[1], f"{height} pixels: more than a screen"
    nothing_is_wrong(tab)


@pytest.mark.full
def test_a_wrong_password(start, tab):
    pooler = start(auth_type="scram-sha-256")
    tab.look(WIDE)
    tab.open(f"http://127.0.0.1:{pooler.http}/")
    tab.wait("document.getElementById('login').open")
    tab.type("admin")
    tab.press("Tab")
    tab.type("wrong")
    tab.press("Enter")
    tab.wait("document.getElementById('login-error').textContent")
    tab.screenshot(PICTURES / "login.png")
    reload(pooler, stats_users="")


@pytest.mark.full
@pytest.mark.skipif(shutil.which("etcd") is None, reason="needs etcd: tools/install-deps full")
def test_the_nodes_of_a_fleet(start, start_node, etcd, http_port, tab):  # noqa: F811 (a fixture)
    """What nodes have written into etcd is text, also if it looks like markup."""
    pooler = start_node(http_listen=f"127.0.0.1:{http_port}").pooler
    pooler.http = http_port
    start_node()
    hostile = "<img src=x onerror=document.title='injected'><b>v</b>"
    stop = threading.Event()

    def renew():
        renewals = 0
        while not stop.wait(0.3):
            renewals += 1
            etcd.put("/pgweir/pgweir/node/0000000000000007", json.dumps(
                {"extra": 0, "renewals": renewals, "wanted": 3, "weight": 1, "sources": [], "version": hostile}))
    stranger = threading.Thread(target=renew)
    stranger.start()
    try:
        machine.wait_until(lambda: len(pooler.console("SHOW FLEET")) == 3, what="three nodes are known")
        log_in(tab, pooler)
        tab.wait("document.querySelectorAll('#fleet-body tbody tr').length == 3", 30)
    finally:
        stop.set()
        stranger.join()
    head = tab.evaluate("[...document.querySelectorAll('#fleet-body th')].map((th) => th.textContent).join()")
    assert head == "node,state,addresses,share,extra,wanted,version,last contact"
    cells = "[...document.querySelectorAll('#fleet-body td:nth-child({})')].map((td) => td.textContent).join('|')"
    assert tab.evaluate(cells.format(2)) == "this|active|active"
    assert hostile in tab.evaluate(cells.format(7)).split("|")
    assert tab.evaluate("document.querySelectorAll('#fleet-body img, #fleet-body b').length") == 0
    assert tab.evaluate("document.title") == "pgweir"
    nothing_is_wrong(tab)
