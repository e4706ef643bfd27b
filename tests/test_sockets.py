"""The addresses on which pgweir listens, and the options of its sockets on both sides."""

import grp
import os
import signal
import socket
import struct
import subprocess

import pytest

import cluster as clusters
import machine
import rawclient as wire
import sockets
from rawclient import RawClient

TCP = socket.IPPROTO_TCP
OPTIONS = {
    "tcp_keepalive": (socket.SOL_SOCKET, socket.SO_KEEPALIVE),
    "tcp_keepcnt": (TCP, socket.TCP_KEEPCNT),
    "tcp_keepidle": (TCP, socket.TCP_KEEPIDLE),
    "tcp_keepintvl": (TCP, socket.TCP_KEEPINTVL),
    "tcp_user_timeout": (TCP, socket.TCP_USER_TIMEOUT),
    "tcp_socket_buffer": (socket.SOL_SOCKET, socket.SO_SNDBUF),
}


def both_sides(pooler, client):
    """The options of a client's socket and of the server's."""
    mine = client.sock.getsockname()
    for peer in (lambda one: one.getpeername() == mine,
                 lambda one: one.getpeername()[1] == pooler.pg.port):
        values = sockets.options_of(pooler.pid, peer, OPTIONS.values())
        yield dict(zip(OPTIONS, values, strict=True))


@pytest.mark.shows("tcp_keepalive", "tcp_keepcnt", "tcp_keepidle", "tcp_keepintvl",
                   "tcp_user_timeout", "tcp_socket_buffer")
def test_tcp_options_on_both_sides(start_pooler, newest_pg):
    first = {"tcp_keepalive": 1, "tcp_keepcnt": 5, "tcp_keepidle": 77, "tcp_keepintvl": 11,
             "tcp_user_timeout": 54321, "tcp_socket_buffer": 30000}
    pooler = start_pooler(newest_pg, tcp_defer_accept=0, **first)
    # The kernel doubles the size of a buffer for its own use.
    expected = first | {"tcp_socket_buffer": 60000}
    with pooler.raw() as client:
        client.value("SELECT 1")
        for options in both_sides(pooler, client):
            assert options == expected
    second = {"tcp_keepidle": 99, "tcp_keepcnt": 0, "tcp_user_timeout": 0}
    pooler.settings |= second
    pooler.write_files()
    pooler.console("RELOAD")
    newest_pg.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'trusty'")
    machine.wait_until(lambda: "administrator command" in pooler.log(), what="the old server is gone")
    default = socket.socket().getsockopt(TCP, socket.TCP_KEEPCNT)
    expected |= second | {"tcp_keepcnt": default}
    with pooler.raw() as client:
        client.value("SELECT 1")
        for options in both_sides(pooler, client):
            assert options == expected


@pytest.mark.shows("tcp_keepalive")
def test_no_keepalive(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, tcp_keepalive=0)
    with pooler.raw() as client:
        client.value("SELECT 1")
        for options in both_sides(pooler, client):
            assert options["tcp_keepalive"] == 0


@pytest.mark.shows("tcp_defer_accept", "listen_backlog")
def test_listening_socket(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, listen_backlog=57, tcp_defer_accept=1)

    def deferred():
        return sockets.options_of(pooler.pid, sockets.listens, [(TCP, socket.TCP_DEFER_ACCEPT)])[0]

    assert deferred() > 0
    [info] = sockets.options_of(pooler.pid, sockets.listens, [(TCP, socket.TCP_INFO, 104)])
    assert struct.unpack_from("I", info, 28) == (57,)
    pooler.settings["tcp_defer_accept"] = 0
    pooler.write_files()
    pooler.console("RELOAD")
    assert deferred() == 0


# -- addresses


@pytest.mark.shows("listen_addr")
@pytest.mark.parametrize("addresses", ["127.0.0.1, 127.0.0.2", "*", "localhost,127.0.0.2", "0.0.0.0"])
def test_listen_addr(start_pooler, newest_pg, addresses):
    pooler = start_pooler(newest_pg, listen_addr=addresses)
    for host in ("127.0.0.1", "127.0.0.2"):
        with RawClient.tcp(host, pooler.port, 10) as client:
            client.login("trusty", "app")
            assert client.value("SELECT 1") == "1"


@pytest.mark.skipif(not clusters.has_ipv6(), reason="no IPv6 here")
@pytest.mark.parametrize("addresses", ["127.0.0.1,::1", "*", "127.0.0.1,[::1]"])
def test_listen_addr_of_ipv6(start_pooler, newest_pg, addresses):
    pooler = start_pooler(newest_pg, listen_addr=addresses)
    with RawClient.tcp("::1", pooler.port, 10) as client:
        client.login("trusty", "app")
        assert client.value("SELECT 1") == "1"
        port = client.sock.getsockname()[1]
    pooler.expect_log(f"app/trusty@[::1]:{port} login attempt")
    pooler.expect_log(f"listening on [::{'' if addresses == '*' else '1'}]:{pooler.port}")


@pytest.mark.shows("listen_addr")
def test_an_address_of_another_machine_is_a_warning(start_pooler, newest_pg):
    """The address may belong to another machine that this one may replace later."""
    pooler = start_pooler(newest_pg, listen_addr="192.0.2.1, 127.0.0.1")
    assert pooler.raw().value("SELECT 1") == "1"
    pooler.expect_log(f"WARNING cannot listen on 192.0.2.1:{pooler.port}: ")


@pytest.mark.pgweir_only("says less")
@pytest.mark.parametrize(("settings", "said"), [
    ({}, ") listens there; stop it, or set another listen_port"),
    ({"listen_addr": "192.0.2.1"}, "no such address"),
    ({"listen_addr": "no-such-host.invalid"}, "no-such-host.invalid"),
    ({"listen_addr": "", "unix_socket_dir": ""}, "nowhere to listen on"),
    ({"unix_socket_dir": "/does/not/exist", "listen_addr": ""}, "/does/not/exist"),
    ({"listen_addr": "", "unix_socket_group": "no-such-group"}, "no-such-group"),
])
def test_addresses_that_cannot_be_listened_on(start_pooler, new_pooler, newest_pg, settings, said):
    first = start_pooler(newest_pg)
    second = new_pooler(newest_pg, port=first.port, **settings)
    second.write_files()
    assert second.spawn().wait_end() == 1
    assert said in second.log()
    assert not os.path.exists(second.unix_path)
    assert first.raw().value("SELECT 1") == "1"


@pytest.mark.shows("so_reuseport")
def test_so_reuseport(start_pooler, new_pooler, newest_pg):
    """Two processes, one port, each with a Unix socket of its own."""
    first = start_pooler(newest_pg, so_reuseport=1)
    second = new_pooler(newest_pg, port=first.port, so_reuseport=1).start()
    seen = set()

    def both():
        with first.raw() as client:
            port = client.sock.getsockname()[1]
            assert client.value("SELECT 1") == "1"
        seen.update(one for one in (first, second) if f":{port} login" in one.log())
        return len(seen) == 2

    machine.wait_until(both, what="each gets clients")


# -- Unix sockets


@pytest.mark.shows("unix_socket_mode")
@pytest.mark.parametrize("mode", ["0600", "0777", "0750"])
def test_unix_socket_mode(start_pooler, newest_pg, mode):
    pooler = start_pooler(newest_pg, unix_socket_mode=mode)
    assert oct(os.stat(pooler.unix_path).st_mode & 0o7777) == oct(int(mode, 8))


@pytest.mark.shows("unix_socket_group")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can prepare this")
@pytest.mark.parametrize("by_name", [True, False])
def test_unix_socket_group(new_pooler, newest_pg, by_name):
    pooler = new_pooler(newest_pg)
    # Files in this folder get another group, so that the difference shows.
    os.chown(pooler.folder, -1, 1)
    pooler.folder.chmod(0o2755)
    group = machine.service_account().pw_gid
    pooler.settings["unix_socket_group"] = grp.getgrgid(group).gr_name if by_name else group
    pooler.start()
    assert os.stat(pooler.unix_path).st_gid == group


@pytest.mark.shows("unix_socket_dir")
def test_abstract_unix_socket(new_pooler, newest_pg):
    pooler = new_pooler(newest_pg)
    name = f"@pgweir-test-{os.getpid()}"
    pooler.settings["unix_socket_dir"] = name
    pooler.start()
    pooler.expect_log(f"listening on unix:{name}/.s.PGSQL.{pooler.port}")
    path = f"\0{name[1:]}/.s.PGSQL.{pooler.port}"
    with RawClient.unix(path) as client:
        client.login("trusty", "app")
        assert client.value("SELECT 1") == "1"


def test_during_a_shutdown_the_unix_socket_is_for_administrators(start_pooler, newest_pg, workers):
    """While a shutdown waits for clients, only clients of the console can connect, over the Unix socket."""
    pooler = start_pooler(newest_pg, workers=workers)
    for number in (signal.SIGTERM, signal.SIGINT):
        other = start_pooler(newest_pg, workers=workers) if number == signal.SIGINT else pooler
        client = other.raw()
        client.query("BEGIN")
        other.signal(number)
        machine.wait_until(lambda other=other: not other.is_listening(), what="TCP is closed")
        for _ in range(4):  # some of them on each worker
            with RawClient.unix(other.unix_path) as admin:
                admin.login("admin", "pgbouncer", other.users["admin"])
                admin.query("SHOW VERSION")
            with RawClient.unix(other.unix_path) as late, pytest.raises(wire.LoginRefused,
                                                                        match="shutting down"):
                late.login("trusty", "app")
        assert client.value("SELECT 1") == "1"
        client.query("COMMIT") if number == signal.SIGTERM else client.send(wire.query("COMMIT"))
        client.rest() if number == signal.SIGINT else client.close()
        assert other.wait_end() == 0
        assert not os.path.exists(other.unix_path)


# -- the process


@pytest.mark.shows("max_client_conn")
@pytest.mark.pgweir_only("gives clients the last descriptor")
def test_clients_leave_descriptors_for_servers(new_pooler, newest_pg, workers):
    """When clients try to use all descriptors, each pool still gets its servers."""
    pooler = new_pooler(newest_pg, max_client_conn=500, workers=workers, default_pool_size=10,
                        tcp_defer_accept=0,
                        databases={"app": f"host={newest_pg.host} port={newest_pg.port} dbname=app user=trusty"})
    pooler.start(nofile="140:140")
    inside = [pooler.raw() for _ in range(10)]
    crowd = [pooler.socket() for _ in range(150)]
    pooler.expect_log("new clients wait until others have left")
    for client in inside:
        client.query("BEGIN")
    assert [client.value("SELECT 1") for client in inside] == ["1"] * 10
    inside[0].query("COMMIT")
    for client in crowd:
        client.close()
    assert machine.wait_until(lambda: pooler.raw().value("SELECT 1"), what="it lets in again") == "1"


@pytest.mark.shows("user")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("by", ["file", "flag"])
def test_user(new_pooler, newest_pg, by):
    pooler = new_pooler(newest_pg)
    account = machine.service_account()
    flags = []
    if by == "file":
        pooler.settings["user"] = account.pw_name
    else:
        pooler.settings["user"] = "nobody-of-this-name"
        flags = ["-u", account.pw_name]
    pooler.write_files()
    with open(pooler.log_path, "a") as log:
        pooler.process = subprocess.Popen([str(pooler.program), *flags, str(pooler.ini_path)],
                                          stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                          cwd=pooler.folder)
    pooler.listening()
    status = open(f"/proc/{pooler.pid}/status").read()
    assert f"\nUid:\t{account.pw_uid}\t{account.pw_uid}\t{account.pw_uid}\t" in status
    assert f"\nGid:\t{account.pw_gid}\t{account.pw_gid}\t{account.pw_gid}\t" in status
    assert pooler.raw().value("SELECT 1") == "1"


@pytest.mark.shows("conffile")
def test_conffile(start_pooler, newest_pg):
    """RELOAD reads the file that `conffile` names."""
    pooler = start_pooler(newest_pg, default_pool_size=5)
    other = pooler.folder / "other.ini"
    other.write_text(pooler.ini_path.read_text().replace("default_pool_size = 5", "default_pool_size = 9"))
    machine.give_to_service(other)
    pooler.console(f"SET conffile = '{other}'")
    pooler.console("RELOAD")
    config = {row["key"]: row["value"] for row in pooler.console("SHOW CONFIG")}
    assert (config["default_pool_size"], config["conffile"]) == ("9", str(other))


@pytest.mark.pgweir_only("not in Debian's build")
def test_sockets_of_the_service_manager(new_pooler, newest_pg):
    """Socket activation: pgweir listens only on the sockets that it was given."""
    pooler = new_pooler(newest_pg)
    given = socket.create_server(("127.0.0.1", 0))
    port = given.getsockname()[1]
    path = str(pooler.folder / "given")
    unix = socket.socket(socket.AF_UNIX)
    unix.bind(path)
    unix.listen(5)
    machine.give_to_service(path)
    pooler.write_files()

    def pass_sockets():
        a, b = (os.dup(one.fileno()) for one in (given, unix))
        os.dup2(a, 3), os.dup2(b, 4)
        os.environ.update(LISTEN_FDS="2", LISTEN_PID=str(os.getpid()))

    with open(pooler.log_path, "a") as log:
        pooler.process = subprocess.Popen(
            ["sh", "-c", 'export LISTEN_PID=$$; exec "$0" "$@"', str(pooler.program), str(pooler.ini_path)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=pooler.folder, close_fds=False,
            env=os.environ | {"LISTEN_FDS": "2"}, preexec_fn=pass_sockets, **machine.as_service())
    pooler.expect_log("process up")
    for client in (RawClient.tcp("127.0.0.1", port, 10), RawClient.unix(path)):
        with client:
            client.login("trusty", "app")
            assert client.value("SELECT 1") == "1"
    assert not pooler.is_listening()
    pooler.expect_log("listen_addr ignored")
    given.close()
    unix.close()
    os.unlink(path)
