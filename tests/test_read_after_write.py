"""`read_after_write = lsn`: what a client has written through one entry, it reads from the standbys of another."""

import contextlib
import os
import threading
import time

import psycopg
import pytest

import machine
import rawclient
from test_host_checks import hosts, port_of, standbys_of
from test_hosts import entry, standby_of

pytestmark = pytest.mark.pgweir_only("PgBouncer knows no standbys")


@pytest.fixture(scope="module")
def readers(start_cluster, run_folder):
    """A primary and two standbys with a table of counters. A test leaves them running."""
    primary = start_cluster(18, f"w{os.urandom(3).hex()}")
    standbys = standbys_of(primary, run_folder, 2)
    primary.run("CREATE TABLE counters(name int PRIMARY KEY, value int NOT NULL)", dbname="app")
    primary.run("INSERT INTO counters SELECT n, 0 FROM generate_series(1, 100) n", dbname="app")
    primary.run("GRANT ALL ON counters TO PUBLIC", dbname="app")
    # Commits wait for their flush, as they do by default; the configuration file of the tests' clusters turns this off.
    primary.run("ALTER ROLE trusty SET synchronous_commit = on")
    has_all = "SELECT rolconfig IS NOT NULL FROM pg_roles WHERE rolname = 'trusty'"
    machine.wait_until(lambda: all(standby.value(has_all) for standby in standbys), what="the standbys have the table")
    yield primary, *standbys
    for server in (*standbys, primary):
        server.stop()
        server.remove()


def start(start_pooler, servers, mode="lsn", wait=20, more=None, **settings):
    """A pooler with the entry `app` for writes and the entry `app_ro` for reads."""
    reads = {"target_session_attrs": "prefer-standby", "read_after_write": mode, "read_after_write_wait": wait} | (more or {})
    if mode == "off":
        del reads["read_after_write_wait"]
    settings = {"query_wait_notify": 0, "host_return_after": 0, "host_check_interval": 0.5} | settings
    return start_pooler(None, databases={"app": entry(*servers, target_session_attrs="read-write"),
                                         "app_ro": entry(*servers, **reads)}, **settings)


@contextlib.contextmanager
def late_replay(standbys, replays=0.015, pauses=0.015):
    """The standbys replay late, and not together: the replay pauses and goes on all the time."""
    ends = threading.Event()

    def pause(standby, phase):
        with standby.connect() as db:
            ends.wait(phase)
            while not ends.is_set():
                db.execute("SELECT pg_wal_replay_pause()")
                ends.wait(pauses)
                db.execute("SELECT pg_wal_replay_resume()")
                ends.wait(replays)
    threads = [threading.Thread(target=pause, args=(standby, number * pauses / 2)) for number, standby in enumerate(standbys)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ends.set()
        for thread in threads:
            thread.join()
        for standby in standbys:
            standby.value("SELECT pg_wal_replay_resume()")


UPDATE = "UPDATE counters SET value = {value} WHERE name = {name}"


def write_and_read(pooler, name, count, seen, first=None, update=UPDATE):
    """Writes to a counter through one entry, and reads it through the other: adds (stale, from a standby) of each read. The writer
    executes the statement `first` before all others."""
    with pooler.connect(dbname="app") as writer, pooler.connect(dbname="app_ro") as reader:
        if first:
            writer.execute(first)
        for value in range(1, count + 1):
            writer.execute(update.format(value=value, name=name))
            text = "SELECT value, pg_is_in_recovery() FROM counters WHERE name = %s"
            found, standby = reader.execute(text, (name,)).fetchone()
            seen.append((found != value, standby))


def stale_reads(pooler, clients, count, **how):
    """Lets clients write and read at the same time. Returns the number of stale reads, and the share from standbys."""
    seen = []
    threads = [threading.Thread(target=write_and_read, args=(pooler, number + 1, count, seen), kwargs=how) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == clients * count, "a client has failed"
    return sum(stale for stale, _ in seen), sum(standby for _, standby in seen) / len(seen)


@pytest.mark.shows("database.read_after_write")
@pytest.mark.parametrize("how", ["kept", "shared"])
@pytest.mark.parametrize("mode", ["lsn", "off"])
def test_a_client_reads_its_writes(start_pooler, readers, workers, mode, how):
    """With `off`, the same clients read stale values."""
    settings = {"share_after": 0} if how == "shared" else {}
    pooler = start(start_pooler, readers, mode, workers=workers, default_pool_size=4 if how == "shared" else 10, **settings)
    with late_replay(readers[1:]):
        stale, share = stale_reads(pooler, 6, 60)
    print(f"{mode}, {how}: {stale} of 360 reads were stale, {share:.0%} came from standbys")
    assert share > 0.9
    assert stale == 0 if mode == "lsn" else stale > 20


@pytest.mark.full
@pytest.mark.parametrize("mode", ["lsn", "off"])
def test_a_hundred_thousand_reads(start_pooler, readers, mode):
    """Two workers, sixty clients that write and read, and standbys that replay late: 0 of 100,000 reads are stale."""
    pooler = start(start_pooler, readers, mode, workers=2, default_pool_size=10)
    clients, count = (60, 1_700) if mode == "lsn" else (60, 50)
    with late_replay(readers[1:], 0.01, 0.005):
        began = time.monotonic()
        stale, share = stale_reads(pooler, clients, count)
    rate = clients * count / (time.monotonic() - began)
    print(f"{mode}: {stale} of {clients * count} reads were stale, {share:.0%} came from standbys, {rate:.0f} reads/s")
    assert stale == 0 if mode == "lsn" else stale > 100


@pytest.mark.shows("database.read_after_write_wait")
@pytest.mark.parametrize("kept", [True, False])
def test_a_standby_that_is_far_behind(start_pooler, readers, kept):
    """After `read_after_write_wait` the primary answers in the place of standbys that don't replay; later they are used again."""
    primary, *standbys = readers
    pooler = start(start_pooler, readers, wait=0.4, share_after=10 if kept else 0)
    with pooler.connect(dbname="app") as writer, pooler.connect(dbname="app_ro") as reader:
        machine.wait_until(lambda: port_of(reader) != primary.port, what="reads go to standbys")
        reader.execute("SET app.tenant = 'seven'")
        for standby in standbys:
            standby.value("SELECT pg_wal_replay_pause()")
        try:
            writer.execute("UPDATE counters SET value = 777 WHERE name = 1")
            began = time.monotonic()
            assert reader.execute("SELECT value FROM counters WHERE name = 1").fetchone() == (777,)
            first = time.monotonic() - began
            assert port_of(reader) == primary.port
            writer.execute("UPDATE counters SET value = 778 WHERE name = 1")
            began = time.monotonic()
            assert reader.execute("SELECT value FROM counters WHERE name = 1").fetchone() == (778,)
            second = time.monotonic() - began
        finally:
            for standby in standbys:
                standby.value("SELECT pg_wal_replay_resume()")
        print(f"the first read took {first:.3f} s, the second {second:.3f} s")
        assert 0.35 < first < 2
        assert second < 0.3, "the standbys were left"
        machine.wait_until(lambda: port_of(reader) != primary.port, 10, "the standbys are used again")
        assert reader.execute("SHOW app.tenant").fetchone() == ("seven",)
    pooler.expect_log("has not replayed the last writes within read_after_write_wait")


def test_one_standby_is_behind(start_pooler, readers):
    """The other one serves all reads."""
    primary, one, other = readers
    pooler = start(start_pooler, readers, wait=1)
    with pooler.connect(dbname="app") as writer, pooler.connect(dbname="app_ro") as reader:
        machine.wait_until(lambda: port_of(reader) != primary.port, what="reads go to standbys")
        one.value("SELECT pg_wal_replay_pause()")
        try:
            for value in range(1, 30):
                writer.execute("UPDATE counters SET value = %s WHERE name = 1", (value,))
                assert reader.execute("SELECT value FROM counters WHERE name = 1").fetchone() == (value,)
            assert hosts(pooler)[one.port]["behind"] == "yes"
            # On a slow machine, the other one may have been left, too.
            machine.wait_until(lambda: hosts(pooler)[other.port]["behind"] == "no" and port_of(reader) == other.port, 10)
        finally:
            one.value("SELECT pg_wal_replay_resume()")


def test_a_pinned_client(start_pooler, readers):
    """A client that can't leave its server waits, and is disconnected if the standby does not catch up."""
    _, *standbys = readers
    pooler = start(start_pooler, readers, wait=0.5)
    with pooler.connect(dbname="app") as writer, pooler.connect(dbname="app_ro") as reader:
        reader.execute("SELECT pg_advisory_lock(1)")
        port = port_of(reader)
        assert port in {standby.port for standby in standbys}
        writer.execute("UPDATE counters SET value = 99 WHERE name = 2")
        assert reader.execute("SELECT value, inet_server_port() FROM counters WHERE name = 2").fetchone() == (99, port)
        for standby in standbys:
            standby.value("SELECT pg_wal_replay_pause()")
        try:
            writer.execute("UPDATE counters SET value = 100 WHERE name = 2")
            with pytest.raises(psycopg.OperationalError) as error:
                reader.execute("SELECT value FROM counters WHERE name = 2")
        finally:
            for standby in standbys:
                standby.value("SELECT pg_wal_replay_resume()")
    assert error.value.sqlstate == "08006"
    assert "has not replayed the last writes" in str(error.value)


def test_notifications_tell_of_writes(start_pooler, readers, workers):
    """Who is notified of a commit by the primary reads what was committed."""
    pooler = start(start_pooler, readers, workers=workers)
    with late_replay(readers[1:]), pooler.connect(dbname="app") as listener, pooler.connect(dbname="app_ro") as reader, \
            readers[0].connect("app") as writer:
        listener.execute("LISTEN written")
        for value in range(1, 40):
            writer.execute("UPDATE counters SET value = %s WHERE name = 3", (value,))
            writer.execute("SELECT pg_notify('written', '')")
            writer.commit()
            assert next(listener.notifies(timeout=10, stop_after=1))
            assert reader.execute("SELECT value FROM counters WHERE name = 3").fetchone() == (value,)


@pytest.mark.parametrize("where", ["role", "session", "transaction", "function"])
def test_commits_without_a_flush(start_pooler, readers, where):
    """A client whose commits are confirmed before they are flushed reads its writes as well, whatever has turned the flush off."""
    primary, *standbys = readers
    how = {
        "role": {},
        "session": {"first": "SET synchronous_commit = off"},
        "transaction": {"update": f"BEGIN; SET LOCAL synchronous_commit = off; {UPDATE}; COMMIT"},
        "function": {"update": f"DO $$ BEGIN PERFORM set_config('synchronous' || '_commit', 'off', true); {UPDATE}; END $$"},
    }[where]
    if where == "role":
        primary.run("ALTER ROLE trusty SET synchronous_commit = off")
    try:
        pooler = start(start_pooler, readers)
        stale, share = stale_reads(pooler, 2, 40, **how)
    finally:
        primary.run("ALTER ROLE trusty SET synchronous_commit = on")
    print(f"{stale} of 80 reads were stale, {share:.0%} came from standbys")
    assert stale == 0 and share > 0.9


def test_an_open_transaction_delays_no_reads(start_pooler, readers):
    """The records of an open transaction stay in the memory of the primary, where no standby can get them."""
    pooler = start(start_pooler, readers)
    with pooler.connect(dbname="app") as writer, pooler.connect(dbname="app_ro") as reader, \
            pooler.connect(dbname="app") as slow:
        machine.wait_until(lambda: port_of(reader) != readers[0].port, what="reads go to standbys")
        writer.execute("UPDATE counters SET value = 5 WHERE name = 4")
        assert reader.execute("SELECT value FROM counters WHERE name = 4").fetchone() == (5,)
        began = time.monotonic()
        slow.execute("BEGIN")
        for value in range(20):
            slow.execute("UPDATE counters SET value = %s WHERE name = 5", (value,))
            found, standby = reader.execute("SELECT value, pg_is_in_recovery() FROM counters WHERE name = 4").fetchone()
            assert (found, standby) == (5, True)
        took = time.monotonic() - began
        slow.execute("ROLLBACK")
    print(f"20 reads beside an open transaction took {took:.3f} s")
    assert took < 3


def test_a_commit_at_the_end_of_a_page(start_pooler, readers):
    """The primary reports the end of its WAL behind the header of the next page, which a standby has not replayed."""
    pooler = start(start_pooler, readers)
    page, header = 8192, 24
    with pooler.connect(dbname="app") as writer, pooler.connect(dbname="app_ro") as reader, readers[0].connect("app") as direct:
        direct.autocommit = True
        place = lambda: direct.execute(f"SELECT (pg_current_wal_insert_lsn() - '0/0') % {page}").fetchone()[0]  # noqa: E731

        def update(value):
            """Returns how many bytes an update takes in the WAL."""
            before = place()
            writer.execute("UPDATE counters SET value = %s WHERE name = 6", (value,))
            return place() - before

        for value in range(1, 200):
            size = update(0)
            missing = page - place() - size
            # The record of an empty message takes 56 bytes, with this role's database.
            if size > 0 and missing > 100:
                direct.execute("SELECT pg_logical_emit_message(false, '', repeat('x', %s::int))", (missing - 56,))
            update(value)
            if place() == header:
                break
        else:
            pytest.fail("no update has ended with a page")
        began = time.monotonic()
        found, standby = reader.execute("SELECT value, pg_is_in_recovery() FROM counters WHERE name = 6").fetchone()
        took = time.monotonic() - began
    print(f"the read took {took:.3f} s, update {value}")
    assert (found, standby) == (value, True) and took < 3


def test_after_a_failover(start_pooler, start_cluster, run_folder):
    """A standby that follows the old primary has replayed nothing of the new one, whatever its position says."""
    name = f"f{os.urandom(3).hex()}"
    primary = start_cluster(18, name)
    primary.run("CREATE TABLE counters(name int PRIMARY KEY, value int NOT NULL)", dbname="app")
    primary.run("INSERT INTO counters VALUES (1, 0)", dbname="app")
    primary.run("GRANT ALL ON counters TO PUBLIC", dbname="app")
    promoted, follower = (standby_of(primary, run_folder / f"{name}{number}") for number in range(2))
    try:
        pooler = start(start_pooler, (primary, promoted, follower), wait=0.3, host_check_interval=0.3)
        with pooler.connect(dbname="app") as writer, pooler.connect(dbname="app_ro") as reader:
            writer.execute("UPDATE counters SET value = 1")
            assert reader.execute("SELECT value FROM counters").fetchone() == (1,)
            promoted.value("SELECT pg_promote(true, 30)")
            # The old primary goes on, and the follower replays more of its WAL than the new primary has.
            primary.run("CREATE TABLE large AS SELECT generate_series(1, 100000) n", dbname="app")
            machine.wait_until(lambda: follower.value("SELECT to_regclass('large')", dbname="app"), what="the follower has it")
            machine.wait_until(lambda: hosts(pooler)[promoted.port]["role"] == "primary" and port_of(writer) == promoted.port, 20)
            for value in range(2, 40):
                writer.execute("UPDATE counters SET value = %s", (value,))
                found, port = reader.execute("SELECT value, inet_server_port() FROM counters").fetchone()
                assert (found, port) == (value, promoted.port)
    finally:
        for server in (promoted, follower, primary):
            server.stop()
            server.remove()
