"""LISTEN and NOTIFY in transaction mode: clients that listen share a connection that listens for them."""

import asyncio
import os
import signal
import struct

import asyncpg
import pytest

import machine
import rawclient as wire

pytestmark = pytest.mark.pgweir_only("PgBouncer's transaction mode loses LISTEN")

LISTENER = "pgweir listener"


def notifications_of(messages):
    """(channel, payload) of the notifications among messages."""
    return [notification(m)[1:] for m in messages if m.kind == "A"]


def notification(message):
    (pid,) = struct.unpack_from("!i", message.body)
    channel, payload = message.body[4:].split(b"\0")[:2]
    return pid, channel.decode(), payload.decode()


def next_notification(client):
    """The next message, which is a notification."""
    (message,) = client.expect("A")
    return notification(message)


def listeners(pooler):
    return pooler.console("SHOW LISTENERS")


def pooled_servers(pooler):
    return [row for row in pooler.console("SHOW SERVERS") if row["mode"] != "listener"]


def backends_listening(pg):
    return pg.value(f"SELECT count(*) FROM pg_stat_activity WHERE application_name = '{LISTENER}'")


# -- as with PostgreSQL

SCRIPTS = {
    "self": ["LISTEN a", "NOTIFY a, '1'", "SELECT pg_notify('a', '2')", "NOTIFY b", "SELECT 1"],
    "at once": ["LISTEN a; NOTIFY a", "NOTIFY a"],
    "block": ["BEGIN", "LISTEN a", "NOTIFY a, 'x'", "SELECT 1", "COMMIT", "SELECT 2"],
    "looked at": ["LISTEN a; LISTEN b", "SELECT pg_listening_channels() ORDER BY 1", "NOTIFY a", "UNLISTEN a",
                  "SELECT pg_listening_channels() ORDER BY 1", "NOTIFY a; NOTIFY b", "SELECT 1", "UNLISTEN *",
                  "SELECT count(*) FROM pg_listening_channels()", "NOTIFY b"],
    "twice": ["LISTEN a", "LISTEN a", "NOTIFY a, 'x'; NOTIFY a, 'x'; NOTIFY a, 'y'"],
    "rolled back": ["BEGIN; LISTEN a; ROLLBACK", "NOTIFY a", "LISTEN b; SELECT 1/0", "NOTIFY b"],
    "notify rolled back": ["LISTEN a", "BEGIN; NOTIFY a; ROLLBACK", "NOTIFY a; SELECT 1/0", "NOTIFY a"],
    "savepoint": ["BEGIN; LISTEN a; SAVEPOINT s; LISTEN b; ROLLBACK TO s; COMMIT", "NOTIFY b", "NOTIFY a"],
    "unlisten": ["LISTEN a; LISTEN b", "UNLISTEN a", "NOTIFY a", "NOTIFY b", "UNLISTEN *", "NOTIFY b",
                 "LISTEN b", "NOTIFY b"],
    "unlisten rolled back": ["LISTEN a", "BEGIN; UNLISTEN a; ROLLBACK", "NOTIFY a",
                             "UNLISTEN *; SELECT 1/0", "NOTIFY a", "BEGIN", "UNLISTEN a", "COMMIT", "NOTIFY a"],
    "unlisten and listen": ["LISTEN a; LISTEN b", "UNLISTEN *; LISTEN a", "NOTIFY a", "NOTIFY b",
                            "LISTEN c; UNLISTEN c", "NOTIFY c"],
    "discard": ["LISTEN a", "DISCARD ALL", "NOTIFY a", "LISTEN a", "NOTIFY a"],
    "asyncpg's reset": ["LISTEN a", "SELECT pg_advisory_unlock_all(); CLOSE ALL; UNLISTEN *; RESET ALL;",
                        "NOTIFY a"],
    "names": ['LISTEN "A b""c"', 'NOTIFY "A b""c"', 'LISTEN "ä€"', 'NOTIFY "ä€", \'ö\'', "LISTEN A", "NOTIFY a"],
    "hidden": ["DO $$ BEGIN EXECUTE 'LISTEN a'; END $$", "NOTIFY a",
               "DO $$ BEGIN PERFORM pg_notify('a', 'done'); END $$"],
    "function": ["CREATE FUNCTION pg_temp.hear() RETURNS void LANGUAGE plpgsql AS "
                 "$$ BEGIN LISTEN a; END $$", "SELECT pg_temp.hear()", "NOTIFY a"],
    "with other state": ["CREATE TEMP TABLE t (n int); LISTEN a", "NOTIFY a", "DROP TABLE t", "NOTIFY a",
                         "SET search_path = pg_catalog; LISTEN b", "NOTIFY b", "SHOW search_path"],
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_same_as_postgresql(start_pooler, pg, script, workers):
    pooler = start_pooler(pg, default_pool_size=2, workers=workers)
    # Channels belong to a database: a client receives nothing from another one.
    ours, theirs, other = pooler.raw(), pg.raw(dbname="other"), pooler.raw()
    for text in SCRIPTS[script]:
        got, wanted = ours.query(text), theirs.query(text)
        assert shown(got) == shown(wanted), text
        assert {notification(m)[0] for m in got if m.kind == "A"} <= {ours.pid}, text
        other.query("SELECT 1")
    ours.quiet(0.05)


def shown(messages):
    """Returns the parts of an answer that are compared, without the sender of a notification."""
    return [(m.kind, notifications_of([m]) if m.kind == "A" else m.fields["C"] if m.kind == "E" else m.body)
            for m in messages if m.kind not in "SN"]


def test_by_the_extended_protocol(start_pooler, pg):
    pooler = start_pooler(pg, default_pool_size=1)
    client = pooler.raw()
    client.send(wire.extended("LISTEN a"), wire.SYNC)
    assert wire.kinds(client.until_ready()) == "12CZ"
    client.send(wire.extended("SELECT pg_notify($1, $2)", ["a", "x"]), wire.SYNC)
    messages = client.until_ready()
    assert wire.kinds(messages) == "12DCAZ"
    assert notifications_of(messages) == [("a", "x")]
    client.send(wire.parse("UNLISTEN a", "u"), wire.SYNC)
    assert wire.kinds(client.until_ready()) == "1Z"
    client.query("NOTIFY a")  # nothing was executed yet
    client.send(wire.bind(name="u") + wire.execute(), wire.SYNC)
    assert wire.kinds(client.until_ready()) == "2CZ"
    assert notifications_of(client.query("NOTIFY a")) == []
    # Several requests under way at once.
    client.send(wire.query("LISTEN b"), wire.query("NOTIFY b"), wire.query("SELECT 1"))
    answers = [client.until_ready() for _ in range(3)]
    assert sum(map(notifications_of, answers), []) == [("b", "")]


def test_notifications_arrive_between_transactions_only(start_pooler, pg, workers):
    pooler = start_pooler(pg, workers=workers)
    client, other = pooler.raw(), pooler.raw()
    client.query("LISTEN a")
    assert wire.kinds(client.query("BEGIN")) == "CZ"
    other.query("NOTIFY a, '1'")
    assert wire.kinds(client.query("SELECT 1")) == "TDCZ"
    other.query("NOTIFY a, '2'")
    client.quiet(0.1)
    messages = client.query("COMMIT")
    assert wire.kinds(messages) == "CAAZ"
    assert notifications_of(messages) == [("a", "1"), ("a", "2")]
    other.query("NOTIFY a, '3'")
    assert next_notification(client)[1:] == ("a", "3")


# -- many clients


def test_a_hundred_listeners_on_two_servers(start_pooler, pg, workers):
    pooler = start_pooler(pg, default_pool_size=2, workers=workers)
    clients = [pooler.raw() for _ in range(100)]
    for number, client in enumerate(clients):
        assert wire.kinds(client.query(f"LISTEN own_{number}; LISTEN all_of_us")) == "CCZ"
    assert len(pooled_servers(pooler)) <= 2
    (listener,) = listeners(pooler)
    assert (listener["channels"], listener["workers"]) == (101, workers)
    assert listener["remote_pid"] in pg.backends(f"application_name = '{LISTENER}'")
    notifier = pooler.raw()
    notifier.query("NOTIFY all_of_us, 'hello'")
    for number, client in enumerate(clients):
        assert next_notification(client) == (notifier.pid, "all_of_us", "hello")
        notifier.query(f"NOTIFY own_{number}, '{number}'")
        assert next_notification(client) == (notifier.pid, f"own_{number}", str(number))
    for client in clients:
        client.quiet(0.001)
        client.close()
    # The last one has left: the listener listens to nothing.
    machine.wait_until(lambda: listeners(pooler)[0]["channels"] == 0)


def test_one_server_is_enough(start_pooler, pg, workers):
    pooler = start_pooler(pg, default_pool_size=1, workers=workers)
    clients = [pooler.raw() for _ in range(5)]
    for client in clients:
        client.query("LISTEN a")
    received = {client.pid: [] for client in clients}
    for client in clients:
        received[client.pid] += [notification(m)[0] for m in client.query("NOTIFY a") if m.kind == "A"]
        assert received[client.pid][-1] == client.pid
    for client in clients:
        received[client.pid] += [next_notification(client)[0] for _ in clients[len(received[client.pid]):]]
        assert sorted(received[client.pid]) == sorted(received)


@pytest.mark.parametrize("database", ("app", "other"))
def test_nothing_is_lost_or_doubled(start_pooler, pg, workers, database):
    pooler = start_pooler(pg, default_pool_size=3, workers=workers)
    count = 150
    listening = [pooler.raw(dbname=database) for _ in range(4)]
    for client in listening:
        client.query("LISTEN numbers")
    senders = [pooler.raw(dbname=database) for _ in range(3)] + [pg.raw(dbname=database)]
    for number in range(count):
        for sender in senders:
            sender.send(wire.query(f"BEGIN; NOTIFY numbers, '{sender.pid} {number}'; COMMIT"))
    for sender in senders:
        for _ in range(count):
            sender.until_ready()
    pids = {sender.pid for sender in senders}
    for client in listening:
        received = [next_notification(client) for _ in range(count * len(senders))]
        for pid in pids:
            numbers = [text for _, _, text in received if text.startswith(f"{pid} ")]
            assert numbers == [f"{pid} {number}" for number in range(count)]
        client.quiet(0.01)


def test_a_client_that_begins_to_listen_misses_no_notification(start_pooler, pg, workers):
    pooler = start_pooler(pg, default_pool_size=2, workers=workers)
    first = pooler.raw()
    first.query("LISTEN other")
    with pg.raw() as sender:
        sent, clients = 0, []
        for _ in range(12):
            client = pooler.raw()
            client.send(wire.query("LISTEN numbers"))
            clients.append(client)
            for _ in range(40):
                sender.query(f"NOTIFY numbers, '{sent}'")
                sent += 1
    answers = [client.until_ready() for client in clients]
    first.query(f"NOTIFY numbers, '{sent}'")
    for client, messages in zip(clients, answers):
        numbers = [int(text) for _, text in notifications_of(messages)]
        while not numbers or numbers[-1] != sent:
            numbers.append(int(next_notification(client)[2]))
        assert numbers == list(range(numbers[0], sent + 1))


# -- the pid of the sender


def test_pids_are_those_that_clients_know(start_pooler, pg, workers):
    pooler = start_pooler(pg, default_pool_size=1, workers=workers)
    client, other = pooler.raw(), pooler.raw()
    client.query("LISTEN a")
    for _ in range(20):
        # The same server works for both, one right after the other.
        other.send(wire.query("NOTIFY a, 'theirs'"))
        client.send(wire.query("NOTIFY a, 'ours'"))
        other.until_ready()
        received = [notification(m) for m in client.until_ready() if m.kind == "A"]
        while len(received) < 2:
            received.append(next_notification(client))
        assert sorted(received, key=lambda one: one[2]) == [
            (client.pid, "a", "ours"), (other.pid, "a", "theirs")]
    with pg.raw() as stranger:
        stranger.query("NOTIFY a")
        assert next_notification(client)[0] == stranger.pid


# -- the end of a listener


def test_a_client_that_loses_its_listener_is_disconnected(start_pooler, pg, workers):
    pooler = start_pooler(pg, default_pool_size=2, workers=workers)
    listening, other = [pooler.raw() for _ in range(4)], pooler.raw()
    for client in listening:
        client.query("LISTEN a")
    listening[0].query("BEGIN")
    other.query("BEGIN")
    (pid,) = pg.backends(f"application_name = '{LISTENER}'")
    pg.value(f"SELECT pg_terminate_backend({pid})")
    for client in listening:
        error = client.error_and_close()
        assert error.sqlstate == "57P01"
        assert "administrator" in error.fields["D"]
    assert wire.kinds(other.query("COMMIT")) == "CZ"
    again = pooler.raw()
    again.query("LISTEN a")
    other.query("NOTIFY a")
    assert next_notification(again)[1:] == ("a", "")


@pytest.mark.shows("listener_idle_timeout")
def test_a_listener_that_nobody_needs_is_closed(start_pooler, pg):
    pooler = start_pooler(pg, listener_idle_timeout=1)
    client = pooler.raw()
    client.query("LISTEN a")
    machine.stays_true(lambda: len(listeners(pooler)) == backends_listening(pg) == 1, 1.5, "the listener is kept")
    client.query("UNLISTEN a")
    machine.wait_until(lambda: not listeners(pooler) and not backends_listening(pg))
    client.query("LISTEN a")
    assert notifications_of(client.query("NOTIFY a")) == [("a", "")]
    client.send(wire.TERMINATE)
    machine.wait_until(lambda: not backends_listening(pg))


@pytest.mark.shows("listener_timeout")
def test_a_listener_that_is_stuck_is_given_up(start_pooler, pg):
    pooler = start_pooler(pg, listener_timeout=1, log_disconnections=1)
    client, other = pooler.raw(), pooler.raw()
    client.query("LISTEN a")
    (pid,) = pg.backends(f"application_name = '{LISTENER}'")
    os.kill(pid, signal.SIGSTOP)
    try:
        client.quiet(1.2)
        assert other.value("SELECT 1") == "1"  # a listener gets no other queries, and may send nothing
        client.send(wire.query("SELECT 1"))
        assert [m for m in client.rest() if m.kind == "E"][0].sqlstate == "57P01"
    finally:
        os.kill(pid, signal.SIGCONT)
    pooler.expect_log("closing because: listener_timeout")


def test_settings_of_the_role_do_not_hold_for_a_listener(start_pooler, pg):
    pg.run("CREATE ROLE hasty LOGIN; ALTER ROLE hasty SET lock_timeout = '1ms';"
           "ALTER ROLE hasty SET idle_session_timeout = '300ms'")
    try:
        pooler = start_pooler(pg, users={"hasty": ""})
        client = pooler.raw("hasty")
        client.query("LISTEN a")
        client.quiet(0.6)
        assert notifications_of(client.query("NOTIFY a")) == [("a", "")]
        client.close()
    finally:
        machine.wait_until(lambda: not pg.backends("usename = 'hasty' AND state = 'active'"))
        pg.run("DROP ROLE hasty")


def test_a_client_that_dies_is_forgotten(start_pooler, pg, workers):
    pooler = start_pooler(pg, workers=workers)
    stays, dies = pooler.raw(), pooler.raw()
    stays.query("LISTEN a")
    dies.query("LISTEN a; LISTEN b")
    dies.send(wire.query("LISTEN c"))
    dies.reset()
    machine.wait_until(lambda: listeners(pooler)[0]["channels"] == 1)
    assert notifications_of(stays.query("NOTIFY a; NOTIFY b; NOTIFY c")) == [("a", "")]


# -- limits: a client that no listener can serve keeps its server


def is_dedicated(pooler, client):
    """Returns whether a server stays with the client between transactions, because no listener can take its channels.
    """
    pooler.settle()
    port = client.sock.getsockname()[1]
    (row,) = [row for row in pooler.console("SHOW CLIENTS") if row["port"] == port]
    assert (row["mode"], row["pin_reason"]) in (("shared", None), ("dedicated", "listen"))
    return row["mode"] == "dedicated"


def check_receives(pooler, client):
    """Checks that the client receives its own notifications and those of others, whichever connection listens."""
    assert notifications_of(client.query("NOTIFY a, '1'")) == [("a", "1")]
    with pooler.raw() as other:
        other.query("NOTIFY a, '2'")
        assert next_notification(client) == (other.pid, "a", "2")


@pytest.mark.shows("max_listeners")
def test_listeners_are_bounded(start_pooler, pg):
    pooler = start_pooler(pg, max_listeners=1)
    first, second = pooler.raw(), pooler.raw(client_encoding="LATIN1")
    first.query("LISTEN a")
    second.query("LISTEN a")
    assert not is_dedicated(pooler, first)
    assert is_dedicated(pooler, second)
    check_receives(pooler, second)
    first.expect("AA")
    # The server becomes free when the client does not need it any more.
    second.query("UNLISTEN *")
    assert not is_dedicated(pooler, second)
    pooler.console("SET max_listeners = 2")
    second.query("LISTEN a")
    assert not is_dedicated(pooler, second)
    check_receives(pooler, second)
    assert {row["client_encoding"] for row in listeners(pooler)} == {"UTF8", "LATIN1"}


@pytest.mark.shows("max_listen_channels", "max_client_channels")
@pytest.mark.parametrize("setting", ("max_listen_channels", "max_client_channels"))
def test_channels_are_bounded(start_pooler, pg, setting):
    pooler = start_pooler(pg, **{setting: 2})
    client = pooler.raw()
    client.query("LISTEN a; LISTEN b")
    assert not is_dedicated(pooler, client)
    client.query("LISTEN c")
    assert is_dedicated(pooler, client)
    assert notifications_of(client.query("NOTIFY a; NOTIFY b; NOTIFY c")) in (
        [("a", ""), ("b", ""), ("c", "")], [("c", ""), ("a", ""), ("b", "")])
    check_receives(pooler, client)
    client.query("UNLISTEN c")
    assert not is_dedicated(pooler, client)
    check_receives(pooler, client)


def test_a_listener_counts_against_the_caps(start_pooler, pg):
    pooler = start_pooler(pg, max_db_connections=1)
    client = pooler.raw()
    client.query("LISTEN a")
    assert is_dedicated(pooler, client)
    assert notifications_of(client.query("NOTIFY a")) == [("a", "")]
    assert listeners(pooler) == []
    client.query("UNLISTEN a")
    with pooler.raw() as other:
        assert other.value("SELECT 1") == "1"


def test_a_listener_is_shown_where_the_caps_are(start_pooler, pg):
    pooler = start_pooler(pg, default_pool_size=1, max_db_connections=2)
    client = pooler.raw()
    client.query("LISTEN a")

    def connections():
        [row] = [row for row in pooler.console("SHOW DATABASES") if row["name"] == "app"]
        return row["current_connections"]

    machine.wait_until(lambda: connections() == 2, what="the listener, and a server for the pool")
    internal = [row for row in pooler.console("SHOW INTERNAL") if row["task"] == "listen"]
    assert [(row["database"], row["user"], row["active"], row["waiting"]) for row in internal] == [("app", "trusty", 1, 0)]


@pytest.mark.shows("notification_backlog")
def test_a_backlog_is_bounded(start_pooler, pg):
    pooler = start_pooler(pg, notification_backlog=20000)
    client, other, sender = pooler.raw(), pooler.raw(), pooler.raw()
    for one in (client, other):
        one.query("LISTEN a")
    client.query("BEGIN")
    for number in range(5):
        sender.query(f"NOTIFY a, '{number}{'x' * 5000}'")
    error = client.error_and_close()
    assert error.sqlstate == "53400"
    assert "notification_backlog" in error.words
    assert [next_notification(other)[2][0] for _ in range(5)] == list("01234")


# -- encodings


def test_each_client_gets_notifications_in_its_encoding(start_pooler, pg):
    pooler = start_pooler(pg)
    ours = {name: pooler.raw(client_encoding=name) for name in ("UTF8", "LATIN1")}
    for client in ours.values():
        client.query("LISTEN a")
    ours["UTF8"].query("NOTIFY a, 'ä'")
    (message,) = ours["LATIN1"].expect("A")
    assert message.body[4:] == b"a\0\xe4\0"
    ours["LATIN1"].send(wire.query("SET client_encoding = 'UTF8'"))
    assert wire.kinds(ours["LATIN1"].until_ready()).replace("S", "") == "CZ"
    ours["UTF8"].query("NOTIFY a, 'ö'")
    assert next_notification(ours["LATIN1"])[1:] == ("a", "ö")


def test_a_channel_name_in_another_encoding(start_pooler, pg):
    pooler = start_pooler(pg)
    client = pooler.raw(client_encoding="LATIN1")
    client.query('LISTEN "ä"'.encode("latin-1"))
    for _ in range(2):
        (message,) = [m for m in client.query('NOTIFY "ä"'.encode("latin-1")) if m.kind == "A"]
        assert message.body[4:] == b"\xe4\0\0"


# -- applications


def test_channels_of_a_client_that_has_left_are_nobodys(start_pooler, newest_pg):
    """The client leaves while pgweir, which has read the channels of its server, waits for the listener to take them."""
    pooler = start_pooler(newest_pg, workers=1, default_pool_size=1)
    with pooler.raw() as one, pooler.raw() as other, pooler.raw() as sender:
        for client in (one, other):
            client.query("LISTEN common")
        one.query("SELECT 'before'")
        (pid,) = newest_pg.backends(f"application_name = '{LISTENER}'")
        os.kill(pid, signal.SIGSTOP)
        try:
            one.send(wire.query("BEGIN; SET client_encoding = 'LATIN1'; LISTEN fresh; COMMIT"))
            machine.wait_until(lambda: newest_pg.backends(
                "datname = 'app' AND state = 'idle' AND query NOT LIKE 'BEGIN%' AND query NOT LIKE 'SELECT ''before''%'"
                f" AND pid <> {pid}"))
            one.reset()
            machine.wait_until(lambda: len([row for row in pooler.console("SHOW CLIENTS") if row["database"] == "app"]) == 2)
        finally:
            os.kill(pid, signal.SIGCONT)
        other.query("SELECT 1")
        sender.query("NOTIFY fresh")
        other.quiet(0.2)
        assert notifications_of(other.query("NOTIFY common")) == [("common", "")]


def test_asyncpg(start_pooler, pg):
    pooler = start_pooler(pg, default_pool_size=2)

    async def run():
        where = {"host": pooler.host, "port": pooler.port, "user": "trusty", "database": "app"}
        received = asyncio.Queue()
        pool = await asyncpg.create_pool(**where, min_size=4, max_size=4)
        listening = [await asyncpg.connect(**where) for _ in range(10)]
        for listener in listening:
            await listener.add_listener("jobs", lambda _, pid, channel, text: received.put_nowait(text))
        for number in range(20):
            await pool.execute("SELECT pg_notify('jobs', $1)", str(number))
        got = [await asyncio.wait_for(received.get(), 5) for _ in range(200)]
        for listener in listening:
            await listener.close()
        await pool.close()
        return sorted(map(int, got)) == sorted(list(range(20)) * 10)

    assert asyncio.run(run())
    assert len(pooled_servers(pooler)) <= 2


def test_psycopg(start_pooler, pg):
    pooler = start_pooler(pg, default_pool_size=1)
    with pooler.connect() as db, pooler.connect() as other:
        db.execute("LISTEN news")
        for number in range(10):
            other.execute(f"NOTIFY news, '{number}'")
        received = list(db.notifies(timeout=10, stop_after=10))
        assert [one.payload for one in received] == [str(number) for number in range(10)]
        assert {one.pid for one in received} == {other.info.backend_pid}
        db.execute("NOTIFY news, 'mine'")
        (mine,) = db.notifies(timeout=5, stop_after=1)
        assert mine.pid == db.info.backend_pid


def test_a_job_queue(start_pooler, pg, workers):
    """Workers that are woken by NOTIFY and take jobs with SKIP LOCKED, many of them on two servers."""
    pooler = start_pooler(pg, default_pool_size=2, workers=workers)
    pg.run("DROP TABLE IF EXISTS jobs; DROP FUNCTION IF EXISTS wake CASCADE;"
           "CREATE TABLE jobs (id int PRIMARY KEY, done_by int);"
           "CREATE FUNCTION wake() RETURNS trigger LANGUAGE plpgsql AS "
           "$$ BEGIN NOTIFY jobs; RETURN NULL; END $$;"
           "CREATE TRIGGER wake AFTER INSERT ON jobs FOR EACH STATEMENT EXECUTE FUNCTION wake();"
           "GRANT ALL ON jobs TO PUBLIC", dbname="app")
    hands = [pooler.connect() for _ in range(6)]
    for hand in hands:
        hand.execute("LISTEN jobs")
    done = 0
    with pooler.connect() as boss:
        for batch in range(5):
            boss.execute(f"INSERT INTO jobs SELECT n FROM generate_series({batch * 8 + 1}, {batch * 8 + 8}) n")
            for hand in hands:
                list(hand.notifies(timeout=5, stop_after=1))
                while hand.execute(
                        "UPDATE jobs SET done_by = %s WHERE id = (SELECT id FROM jobs WHERE done_by"
                        " IS NULL LIMIT 1 FOR UPDATE SKIP LOCKED)", [hands.index(hand)]).rowcount:
                    done += 1
        assert done == 40
        assert boss.execute("SELECT count(*) FROM jobs WHERE done_by IS NULL").fetchone()[0] == 0
    for hand in hands:
        hand.close()
    pg.run("DROP TABLE jobs; DROP FUNCTION wake()", dbname="app")


@pytest.mark.parametrize("mode", ("session", "off"))
def test_listen_in_session_mode_and_with_session_state_off(start_pooler, pg, mode):
    """In session mode the client's own server listens. With `session_state = off`, LISTEN is lost, as with PgBouncer.
    """
    options = {"pool_mode": "session"} if mode == "session" else {"session_state": "off"}
    pooler = start_pooler(pg, **options)
    client = pooler.raw()
    client.query("LISTEN a")
    assert listeners(pooler) == []
    with pooler.raw() as other:
        other.query("NOTIFY a")
        if mode == "session":
            assert next_notification(client)[1:] == ("a", "")


def test_own_notifications_arrive_when_the_encoding_changes(start_pooler, plain_or_assisted_pg):
    """The listener of the old encoding has received the notification, and forwards it before another listener replaces
    it.
    """
    pooler = start_pooler(plain_or_assisted_pg)
    client, others = pooler.raw(), [pooler.raw() for _ in range(3)]
    client.query("LISTEN own")
    for n in range(60):
        for other in others:
            other.send(wire.query("NOTIFY noise; SELECT 1"))
        encoding = ("LATIN1", "UTF8")[n % 2]
        messages = client.query(f"BEGIN; SET client_encoding = '{encoding}'; SELECT pg_notify('own', '{n}'); COMMIT")
        received = [message.body for message in messages if message.kind == "A"]
        assert [body[4:] for body in received] == [f"own\0{n}\0".encode()], n
        for other in others:
            other.until_ready()
