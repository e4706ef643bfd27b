"""RECONNECT while clients listen: a new listener takes over, and clients do not notice."""

import threading

import pytest

import machine

pytestmark = pytest.mark.pgweir_only("it shares no LISTEN")


class Notifier(threading.Thread):
    """Sends numbers as notifications on `c`, many times in a row the same text, until it is stopped."""

    def __init__(self, pg):
        super().__init__(daemon=True)
        self.db = pg.connect(dbname="app")
        self.db.autocommit = True
        self.sent = []
        self.done = threading.Event()

    def run(self):
        while not self.done.wait(0.001):
            text = str(len(self.sent) // 5)
            self.db.execute("SELECT pg_notify('c', %s)", [text])
            self.sent.append(text)

    def stop(self):
        self.done.set()
        self.join()
        self.db.execute("NOTIFY c, 'end'")
        self.db.close()
        return [*self.sent, "end"]


def notifications_on_c(client, messages=()):
    """Returns all notifications on `c` up to the end."""
    texts = [m.body.split(b"\0")[-2].decode() for m in messages if m.kind == "A"]
    while texts[-1:] != ["end"]:
        message = client.read()
        assert message.kind in "ASN", message
        if message.kind == "A":
            texts.append(message.body.split(b"\0")[-2].decode())
    return texts


def listener_ids(pooler):
    return {row["id"] for row in pooler.console("SHOW SERVERS") if row["mode"] == "listener"}


def reconnect(pooler, times):
    """Runs RECONNECT this number of times, and waits each time for a new listener."""
    for _ in range(times):
        before = listener_ids(pooler)
        pooler.console("RECONNECT")
        machine.wait_until(lambda: not before & listener_ids(pooler), what="another listener")


def test_no_notification_is_lost_or_doubled(start_pooler, pg, workers):
    pooler = start_pooler(pg, workers=workers)
    clients = [pooler.raw(timeout=30) for _ in range(6)]
    for client in clients:
        client.query("LISTEN c")
    notifier = Notifier(pg)
    notifier.start()
    busy, queries = clients[:2], []
    for _ in range(6):
        reconnect(pooler, 1)
        # The clients work meanwhile and listen to more channels: the new listener has fences and channels of its own.
        for n, client in enumerate(busy):
            queries.append((client, client.query(f"LISTEN more_{n}; SELECT 1")))
            queries.append((client, client.query("BEGIN; SELECT 1; COMMIT")))
    sent = notifier.stop()
    for client in clients:
        before = [m for of, messages in queries if of is client for m in messages]
        assert notifications_on_c(client, before) == sent
    for n, client in enumerate(busy):
        pg.run(f"NOTIFY more_{n}, 'x'", dbname="app")
        assert client.until("A")[-1].body.split(b"\0")[-2] == b"x"


def test_repeated_while_another_one_takes_over(start_pooler, newest_pg, workers):
    pooler = start_pooler(newest_pg, workers=workers)
    client = pooler.raw(timeout=30)
    client.query("LISTEN c")
    notifier = Notifier(newest_pg)
    notifier.start()
    for _ in machine.every(0.05, 30):
        pooler.console("RECONNECT")
    reconnect(pooler, 1)
    sent = notifier.stop()
    assert notifications_on_c(client) == sent
    machine.wait_until(lambda: len(listener_ids(pooler)) == 1, what="one listener is left")


def test_a_client_can_not_send_the_mark(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg)
    client = pooler.raw(timeout=30)
    client.query("LISTEN c; LISTEN pgweir_succession")
    db = newest_pg.connect(dbname="app")
    db.autocommit = True
    for _ in range(3):
        before = listener_ids(pooler)
        pooler.console("RECONNECT")
        for _ in machine.every(0.01, until=lambda: not before & listener_ids(pooler)):
            db.execute("NOTIFY pgweir_succession")
        db.execute("NOTIFY c, 'here'")
        while client.until("A")[-1].body.split(b"\0")[-2] != b"here":
            pass
    db.execute("NOTIFY c, 'end'")
    assert notifications_on_c(client) == ["end"]
    db.close()


def test_no_room_for_a_second_listener(start_pooler, newest_pg):
    """The new listener takes over as soon as there is room for it."""
    pooler = start_pooler(newest_pg, max_db_connections=3, default_pool_size=2)
    client = pooler.raw(timeout=30)
    client.query("LISTEN c")
    others = [pooler.raw() for _ in range(2)]
    for other in others:
        other.query("BEGIN")
    before = listener_ids(pooler)
    pooler.console("RECONNECT")
    newest_pg.run("NOTIFY c, 'one'", dbname="app")
    assert client.until("A")[-1].body.split(b"\0")[-2] == b"one"
    machine.stays_true(lambda: listener_ids(pooler) == before, 1, "the listener is the same")
    for other in others:
        other.query("COMMIT")
    machine.wait_until(lambda: not before & listener_ids(pooler), what="another listener")
    newest_pg.run("NOTIFY c, 'end'", dbname="app")
    assert notifications_on_c(client) == ["end"]


def test_a_listener_that_ends_while_another_one_takes_over(start_pooler, newest_pg):
    """Notifications for that listener are lost, so its clients are disconnected, as after any lost listener."""
    pooler = start_pooler(newest_pg)
    client = pooler.raw(timeout=30)
    client.query("LISTEN c")
    pooler.console("RECONNECT")
    newest_pg.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pgweir listener'")
    assert client.error_and_close().sqlstate == "57P01"
    with pooler.raw() as other:
        assert other.value("SELECT 1") == "1"
