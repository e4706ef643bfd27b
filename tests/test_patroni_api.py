"""Patroni's REST API makes pgweir check its hosts. What the servers report decides."""

import os

import psycopg
import pytest

import machine
from certs import Authority
from fakepatroni import FakePatroni, member
from scraping import scrape
from test_host_checks import hosts, port_of, writes_go_to
from test_hosts import entry, own_pair, pair  # noqa: F401

pytestmark = pytest.mark.pgweir_only("PgBouncer does not know Patroni")


def events(pooler, kind):
    return [row["event"] for row in pooler.console("SHOW EVENTS") if row["kind"] == kind]


def reported(pooler):
    """Returns Patroni's report about each host, by port."""
    return {port: row["patroni"] for port, row in hosts(pooler).items()}


def lines(pooler, words):
    """Returns the lines of the log with these words."""
    return [line for line in pooler.log().splitlines() if words in line]


@pytest.mark.shows("database.patroni", "patroni_interval")
def test_a_new_leader_is_found_at_once(start_pooler, own_pair, workers):  # noqa: F811
    """Hosts are checked once in ten minutes. A standby is promoted, and Patroni says so: new clients write there at once."""
    primary, standby = own_pair
    with FakePatroni(member("one", "leader", primary), member("two", "replica", standby)) as api:
        gone = f"http://127.0.0.1:{machine.free_port()}"
        pooler = start_pooler(None, workers=workers, host_check_interval=600, patroni_interval=0.1, databases={
            "app": entry(primary, standby, target_session_attrs="read-write", patroni=f"{gone},{api.url}")})
        with pooler.connect() as client:
            assert port_of(client) == primary.port
            machine.wait_until(lambda: hosts(pooler)[standby.port]["role"] == "standby", what="the standby is checked")
            machine.wait_until(lambda: reported(pooler) == {
                primary.port: "leader, running, timeline 1", standby.port: "replica, streaming, timeline 1"})
            standby.value("SELECT pg_promote(true, 30)")
            assert writes_go_to(pooler, primary.port), "there is no check before the next one is due"
            api.reports(member("one", "replica", primary), member("two", "leader", standby, timeline=2))
            machine.wait_until(lambda: writes_go_to(pooler, standby.port), 10, "new clients write to the promoted host")
            assert hosts(pooler)[standby.port]["timeline"] == 2
        latest = events(pooler, "patroni_reported")[-1]
        assert latest.endswith(f"2 members, the leader is two (127.0.0.1:{standby.port})"), latest


def test_a_report_before_the_promotion(start_pooler, own_pair):  # noqa: F811
    """Patroni reports the new leader before it is promoted: the host is checked again until it says so itself."""
    primary, standby = own_pair
    with FakePatroni(member("one", "leader", primary), member("two", "replica", standby)) as api:
        pooler = start_pooler(None, host_check_interval=600, patroni_interval=0.1, target_session_retry=0.2, databases={
            "app": entry(primary, standby, target_session_attrs="primary", patroni=api.url)})
        with pooler.connect() as client:
            client.execute("SELECT 1")
            machine.wait_until(lambda: hosts(pooler)[standby.port]["role"] == "standby")
            api.reports(member("one", "replica", primary), member("two", "leader", standby))
            machine.wait_until(lambda: reported(pooler)[standby.port] == "leader, running, timeline 1")
            standby.value("SELECT pg_promote(true, 30)")
            machine.wait_until(lambda: writes_go_to(pooler, standby.port), 10, "new clients write to the promoted host")


@pytest.mark.shows("patroni_timeout")
def test_wrong_reports_of_patroni(start_pooler, pair):  # noqa: F811
    """Whatever Patroni reports, clients write to the primary, and each change of Patroni's report is one line of the
    log.
    """
    primary, standby = pair
    right = member("one", "leader", primary), member("two", "replica", standby)
    faults = [
        ("garbage", lambda api: api.says("<html>"), "the answer is no JSON"),
        ("another API", lambda api: api.says("{}"), "the answer has no list of members"),
        ("error", lambda api: api.says("", status=503), "it answers with status 503"),
        ("redirect", lambda api: api.says("", status=302, Location=api.url + "/cluster"), "it answers with status 302"),
        ("flood", lambda api: api.says(" " * 70_000), "the answer is cut off, or longer than 65536 bytes"),
        ("two leaders", lambda api: api.reports(right[0], member("two", "leader", standby)), "the answer has several leaders"),
        ("silence", lambda api: api.hold(), "no answer within 0.3 s (patroni_timeout)"),
    ]
    with FakePatroni(*right) as api:
        pooler = start_pooler(None, host_check_interval=0.2, patroni_interval=0.05, patroni_timeout=0.3, databases={
            "app": entry(standby, primary, target_session_attrs="read-write", patroni=api.url)})
        with pooler.connect() as client:
            for count, (name, cause, reason) in enumerate(faults, 1):
                machine.wait_until(lambda: reported(pooler)[primary.port], what=f"Patroni answers before: {name}")
                cause(api)
                machine.wait_until(lambda: reported(pooler)[primary.port] is None, what=name)
                assert reason in lines(pooler, "no answer that can be used")[-1]
                assert port_of(client) == primary.port and writes_go_to(pooler, primary.port)
                before = api.requests
                machine.wait_until(lambda: api.requests > before + 2, what=f"it is asked again: {name}")
                assert len(lines(pooler, "no answer that can be used")) == count, name
                api.reports(*right)
            # A wrong report: the servers' own reports decide.
            machine.wait_until(lambda: reported(pooler)[primary.port], what="Patroni answers")
            api.reports(member("one", "replica", primary), member("two", "leader", standby))
            machine.wait_until(lambda: (reported(pooler)[standby.port] or "").startswith("leader"))
            machine.stays_true(lambda: port_of(client) == primary.port and writes_go_to(pooler, primary.port), 0.5)
    machine.wait_until(lambda: reported(pooler)[primary.port] is None, what="Patroni is gone")
    assert writes_go_to(pooler, primary.port)


@pytest.mark.shows("patroni_tls_ca_file", "patroni_auth_file")
def test_https_and_a_token(start_pooler, pair, run_folder):  # noqa: F811
    primary, standby = pair
    folder = run_folder / f"patroni-{os.urandom(3).hex()}"
    folder.mkdir()
    authority, other = Authority(folder, "good"), Authority(folder, "other")
    site = authority.issue("patroni", names=["IP:127.0.0.1"])
    token = folder / "token"
    machine.give_to_service(folder)

    def write_token(text):
        token.write_text(text + "\n")
        token.chmod(0o600)
        machine.give_to_service(token)
    write_token("Bearer old-secret")
    with FakePatroni(member("one", "leader", primary), site=site, token="Basic dXNlcjpuZXctc2VjcmV0") as api:
        pooler = start_pooler(None, host_check_interval=0.2, patroni_interval=0.1, patroni_tls_ca_file=other.cert,
                              patroni_auth_file=token, databases={
                                  "app": entry(primary, standby, target_session_attrs="read-write", patroni=api.url)})
        pooler.expect_log("no answer that can be used")
        assert "UnknownIssuer" in lines(pooler, "no answer that can be used")[0]
        pooler.console(f"SET patroni_tls_ca_file = '{authority.cert}'")
        machine.wait_until(lambda: api.requests > 0, what="it is asked over TLS")
        assert reported(pooler)[primary.port] is None, "the token is wrong"
        write_token("user:new-secret")
        pooler.console(f"SET patroni_auth_file = '{token}'")
        machine.wait_until(lambda: reported(pooler)[primary.port], what="Patroni answers")
        assert "secret" not in pooler.log_path.read_text()
        assert not any("secret" in str(row) for row in pooler.console("SHOW CONFIG"))


@pytest.mark.shows("patroni_tls_cert_file", "patroni_tls_key_file")
def test_a_client_certificate(start_pooler, pair, run_folder):  # noqa: F811
    """A REST API that asks for a client certificate answers only with one; a metric counts both results."""
    primary, standby = pair
    folder = run_folder / f"patroni-{os.urandom(3).hex()}"
    folder.mkdir()
    authority = Authority(folder, "good")
    site, own, other = (authority.issue(name, names=["IP:127.0.0.1"]) for name in ("patroni", "pgweir", "other"))
    machine.give_to_service(folder)
    port = machine.free_port()

    def requests(result):
        return scrape(port).value("pgweir_patroni_requests_total", result=result)
    with FakePatroni(member("one", "leader", primary), site=site, clients=authority.cert) as api:
        pooler = start_pooler(None, host_check_interval=0.2, patroni_interval=0.1, patroni_tls_ca_file=authority.cert,
                              http_listen=f"127.0.0.1:{port}", databases={
                                  "app": entry(primary, standby, target_session_attrs="read-write", patroni=api.url)})
        machine.wait_until(lambda: requests("failed") > 0, what="requests without a certificate fail")
        assert requests("ok") == 0 and api.requests == 0 and reported(pooler)[primary.port] is None
        with pytest.raises(psycopg.Error, match="patroni_tls_cert_file is set, but not patroni_tls_key_file"):
            pooler.console(f"SET patroni_tls_cert_file = '{own.cert}'")
        pooler.settings |= {"patroni_tls_cert_file": own.cert, "patroni_tls_key_file": other.key}
        pooler.write_files()
        with pytest.raises(psycopg.Error, match="patroni_tls_cert_file: .*it can't be used with the key in"):
            pooler.console("RELOAD")
        pooler.settings |= {"patroni_tls_key_file": own.key}
        pooler.write_files()
        pooler.console("RELOAD")
        machine.wait_until(lambda: reported(pooler)[primary.port], what="Patroni answers")
        assert requests("ok") > 0
