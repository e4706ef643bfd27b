"""Host names of servers: how pgweir looks up their addresses, and what happens when the addresses change."""

import contextlib
import socket
import time

import pytest

import fakeserver as fake
import machine
import nameserver
import rawclient as wire
from nameserver import SOA, NameServer
from rawclient import LoginRefused

pytestmark = pytest.mark.pgweir_only("1.18 takes no resolv.conf from Debian's build")


@pytest.fixture
def dns():
    server = NameServer()
    yield server
    server.stop()


@pytest.fixture
def two_places(start_server):
    """Starts two servers on one port of two addresses, which return their names."""
    def at(where):
        def behave(connection):
            if connection.welcome():
                connection.serve(lambda _: fake.answer(where))
        return behave

    here = start_server(at("here"))
    return here, start_server(at("there"), host="127.0.0.2", port=here.port)


@contextlib.contextmanager
def full_listener(host, port):
    """Listens at an address where no connection is accepted: the queue is full, so the kernel drops further attempts.
    """
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(0)
        while True:
            attempts = stack.enter_context(socket.socket())
            attempts.settimeout(0.3)
            try:
                attempts.connect((host, port))
            except TimeoutError:
                break
        yield


@pytest.fixture
def start(start_pooler, dns, folder):
    """Starts a pooler that uses the test's name server."""
    conf = folder / "resolv.conf"

    def start(port, host="db.zone.test", **settings):
        conf.write_text(dns.resolv_conf)
        entry = f"host={host} port={port} dbname=app session_state=off"
        return start_pooler(None, databases={"app": entry}, resolv_conf=conf,
                            pool_mode="session", **settings)

    return start


def hosts_of(pooler):
    return {row["hostname"]: row["addrs"] for row in pooler.console("SHOW DNS_HOSTS")}


@pytest.mark.shows("resolv_conf")
def test_another_resolv_conf(start, dns, two_places):
    dns.hosts["db.zone.test"] = ["127.0.0.2"]
    pooler = start(two_places[0].port)
    assert pooler.raw().value("SELECT 1") == "there"
    assert hosts_of(pooler) == {"db.zone.test": "127.0.0.2"}


def test_an_address_of_version_6_or_4(start, dns, two_places):
    """pgweir tries each address of a name."""
    dns.hosts["db.zone.test"] = ["::1", "127.0.0.2"]
    pooler = start(two_places[0].port)
    assert pooler.raw().value("SELECT 1") == "there"
    assert sorted(hosts_of(pooler)["db.zone.test"].split(",")) == ["127.0.0.2", "::1"]


def test_addresses_of_a_name_in_turn(start, dns, two_places):
    """Each new connection begins with the next address."""
    dns.hosts["db.zone.test"] = ["127.0.0.1", "127.0.0.2"]
    pooler = start(two_places[0].port, workers=1)
    clients = [pooler.raw() for _ in range(4)]
    assert sorted(client.value("SELECT 1") for client in clients) == ["here", "here", "there", "there"]


def test_an_address_that_refuses_is_passed_over(start, dns, two_places):
    dns.hosts["db.zone.test"] = ["127.0.0.3", "127.0.0.2"]
    pooler = start(two_places[0].port, workers=1)
    assert {pooler.raw().value("SELECT 1") for _ in range(4)} == {"there"}


def test_servers_at_a_removed_address_are_closed(start, dns, two_places):
    """A busy server is closed when it becomes free, an idle one at once."""
    dns.hosts["db.zone.test"] = ["127.0.0.1"]
    pooler = start(two_places[0].port, dns_max_ttl=0)
    busy, leaving = pooler.raw(), pooler.raw()
    assert (busy.value("SELECT 1"), leaving.value("SELECT 1")) == ("here", "here")
    dns.hosts["db.zone.test"] = ["127.0.0.2"]
    leaving.close()

    def is_there():
        # With one server more than before, the name is looked up again.
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(pooler.raw()) for _ in range(pooler.pool()["sv_idle"] + 1)]
            return {client.value("SELECT 1") for client in clients} == {"there"}

    machine.wait_until(is_there, 10, "the new address is used")
    assert busy.value("SELECT 1") == "here"
    close_needed = {row["addr"]: row["close_needed"] for row in pooler.console("SHOW SERVERS")}
    assert close_needed == {"127.0.0.1": 1, "127.0.0.2": 0}
    busy.close()
    machine.wait_until(lambda: {row["addr"] for row in pooler.console("SHOW SERVERS")} == {"127.0.0.2"})
    pooler.expect_log("closing because: database configuration changed")


@pytest.fixture
def moving(start, dns):
    """Starts a pooler that soon notices a new address of the name, once the zone's serial has changed."""
    dns.hosts["db.zone.test"], dns.serials["zone.test"] = ["127.0.0.1"], 7

    def move(port):
        pooler = start(port, dns_max_ttl=3600, dns_zone_check_period=0.1, query_wait_notify=0)
        client = pooler.socket(30)
        client.send(wire.startup(user="trusty", database="app"))
        machine.wait_until(lambda: hosts_of(pooler) == {"db.zone.test": "127.0.0.1"}, 10, "it is looked up")
        pooler.expect_log("zone 'zone.test' serial changed: old=0 new=7")
        client.until("R")
        client.quiet(0.2)
        dns.hosts["db.zone.test"], dns.serials["zone.test"] = ["127.0.0.2"], 8
        client.finish_login("trusty")
        return client

    return move


def is_there(connection):
    if connection.welcome():
        connection.serve(lambda _: fake.answer("there"))


def test_a_connection_attempt_to_a_removed_address_ends(moving, start_server):
    """The attempt to connect to the old address ends long before server_connect_timeout."""
    there = start_server(is_there, host="127.0.0.2")
    with full_listener("127.0.0.1", there.port):
        began = time.monotonic()
        assert moving(there.port).value("SELECT 1") == "there"
        assert time.monotonic() - began < 12


def test_a_login_at_a_removed_address_ends(moving, start_server):
    """The login to the server at the old address has not been answered yet."""
    silent = start_server(lambda connection: connection.rest())
    start_server(is_there, host="127.0.0.2", port=silent.port)
    began = time.monotonic()
    assert moving(silent.port).value("SELECT 1") == "there"
    assert time.monotonic() - began < 12


def test_reconnect_looks_names_up_again(start, dns, two_places):
    dns.hosts["db.zone.test"] = ["127.0.0.1"]
    pooler = start(two_places[0].port, dns_max_ttl=3600)
    client = pooler.raw()
    assert client.value("SELECT 1") == "here"
    dns.hosts["db.zone.test"] = ["127.0.0.2"]
    pooler.console("RECONNECT")
    machine.wait_until(lambda: hosts_of(pooler) == {"db.zone.test": "127.0.0.2"})
    client.close()
    machine.wait_until(lambda: pooler.raw().value("SELECT 1") == "there")


@pytest.mark.shows("dns_zone_check_period")
def test_zone_serial(start, dns, two_places):
    dns.hosts["db.zone.test"], dns.serials["zone.test"] = ["127.0.0.1"], 7
    pooler = start(two_places[0].port, dns_max_ttl=3600, dns_zone_check_period=0.2)
    client = pooler.raw()
    assert client.value("SELECT 1") == "here"

    def zones():
        return [(row["zonename"], row["serial"], row["count"]) for row in pooler.console("SHOW DNS_ZONES")]

    machine.wait_until(lambda: zones() == [("zone.test", 7, 1)], 10, "the zone is looked at")
    pooler.expect_log("zone 'zone.test' serial changed: old=0 new=7")
    lists = {row["list"]: row["items"] for row in pooler.console("SHOW LISTS")}
    assert (lists["dns_names"], lists["dns_zones"]) == (1, 1)
    dns.hosts["db.zone.test"] = ["127.0.0.2"]
    seen = dns.count(SOA, "zone.test")
    machine.wait_until(lambda: dns.count(SOA, "zone.test") >= seen + 2, 10, "the zone is looked at again")
    assert hosts_of(pooler) == {"db.zone.test": "127.0.0.1"}  # as the serial is the same
    dns.serials["zone.test"] = 8
    machine.wait_until(lambda: hosts_of(pooler) == {"db.zone.test": "127.0.0.2"}, 10)
    client.close()
    machine.wait_until(lambda: pooler.raw().value("SELECT 1") == "there")


def test_zones_are_checked_only_if_configured(start, dns, two_places):
    dns.hosts["db.zone.test"], dns.serials["zone.test"] = ["127.0.0.1"], 7
    pooler = start(two_places[0].port)
    pooler.raw().value("SELECT 1")
    assert [(row["zonename"], row["serial"]) for row in pooler.console("SHOW DNS_ZONES")] == [("zone.test", 0)]
    assert dns.count(SOA, "zone.test") == 0
    # A change of the setting takes effect without waiting for anything.
    pooler.console("SET dns_zone_check_period = 0.1")
    machine.wait_until(lambda: dns.count(SOA, "zone.test") > 1, 10)
    pooler.console("SET dns_zone_check_period = 3600")


def test_a_name_that_is_unknown(start, dns):
    pooler = start(1, query_wait_timeout=1)
    with pytest.raises((LoginRefused, wire.Closed)):
        pooler.raw().value("SELECT 1")
    pooler.expect_log("DNS lookup failed: db.zone.test: ")
    pooler.expect_log("closing because: server DNS lookup failed")
    assert hosts_of(pooler) == {"db.zone.test": ""}


@pytest.mark.parametrize(("text", "words"), [
    (None, "cannot read {}: No such file"), ("search zone.test\n", "{}: io error: no nameservers found")])
def test_an_unusable_resolv_conf_is_refused(new_pooler, folder, text, words):
    path = folder / "resolv.conf"
    if text is not None:
        path.write_text(text)
    pooler = new_pooler(None, databases={"app": "host=db.zone.test"}, resolv_conf=path)
    pooler.write_files()
    assert pooler.spawn().wait_end() == 1
    assert '"resolv_conf": ' + words.format(path) in pooler.log()


def test_names_that_come_together_are_asked_for_once(start, dns, two_places):
    dns.hosts["db.zone.test"] = ["127.0.0.1"]
    pooler = start(two_places[0].port)
    clients = [pooler.raw() for _ in range(5)]
    for client in clients:
        client.send(wire.query("SELECT 1"))
    for client in clients:
        client.until_ready()
    assert dns.count(nameserver.A, "db.zone.test") == 1
