"""Online restart: clients that LISTEN move like others, and receive each notification once."""

import threading

import pytest

import machine
import rawclient as wire
from rawclient import query

pytestmark = pytest.mark.pgweir_only("PgBouncer carries no LISTEN")


def payloads(messages):
    """Returns the payloads on all channels."""
    bodies = (message.body[4:] for message in messages if message.kind == "A")
    return [body.split(b"\0")[1].decode() for body in bodies]


def listening(pooler, *channels, **parameters):
    client = pooler.raw(**parameters)
    for channel in channels:
        client.query(f"LISTEN {channel}")
    return client


def test_listening_clients_move(line, newest_pg, workers):
    """Several restarts in a row: no client has to connect again."""
    one = line(workers=workers)
    clients = [listening(one.pooler, "news", f"own_{n}") for n in range(4)]
    latin = listening(one.pooler, "news", client_encoding="LATIN1")
    for round_ in range(3):
        one.full()
        newest_pg.run(f"NOTIFY news, '{round_}'", dbname="app")
        for client in (*clients, latin):
            assert payloads([client.expect("A")[0]]) == [str(round_)]
    for n, client in enumerate(clients):
        # A client's own notification comes before the end of its request, with the pid that the client knows.
        messages = client.query(f"NOTIFY own_{n}, 'mine'")
        assert payloads(messages) == ["mine"]
        assert int.from_bytes(messages[-2].body[:4], "big") == client.pid
    clients[0].query("UNLISTEN news")
    newest_pg.run("NOTIFY news, 'last'", dbname="app")
    assert payloads([clients[1].expect("A")[0]]) == ["last"]
    assert payloads(clients[0].query("SELECT 1")) == []


def test_each_notification_arrives_once_and_in_order(line, newest_pg, workers):
    one = line(workers=workers)
    clients = [listening(one.pooler, "numbers") for _ in range(6)]
    done = threading.Event()
    said = []

    def say():
        with newest_pg.connect("app") as db:
            while not done.is_set():
                said.append(str(len(said)))
                db.execute("SELECT pg_notify('numbers', %s)", (said[-1],))
                done.wait(0.001)

    notifier = threading.Thread(target=say)
    notifier.start()
    try:
        for _ in range(4):
            one.full()
    finally:
        done.set()
        notifier.join()
    newest_pg.run("NOTIFY numbers, 'end'", dbname="app")
    for client in clients:
        told = []
        while not told or told[-1] != "end":
            told += payloads([client.expect("A")[0]])
        assert told == [*said, "end"]


def test_waiting_requests_are_served_by_the_new_process(line, newest_pg):
    one = line(default_pool_size=1)
    holder = one.pooler.raw()
    client = listening(one.pooler, "news")
    holder.query("BEGIN")
    client.send(query("SELECT 'served'"))
    machine.wait_until(lambda: one.pooler.pool()["cl_waiting"] == 1, what="it waits")
    old = one.restart()
    one.pooler.expect_log("accepts clients, ours leave for it")
    newest_pg.run("NOTIFY news, 'now'", dbname="app")
    holder.query("COMMIT")
    messages = client.until_ready()
    assert wire.value(messages) == "served"
    told = payloads(messages) or payloads([client.expect("A")[0]])
    assert told == ["now"]
    one.done(old)


def test_clients_that_are_taken_back_miss_no_notification(line, newest_pg, workers):
    """The new process is stopped and killed while clients move to it."""
    one = line(workers=workers, default_pool_size=8)
    pooler = one.pooler
    clients = [listening(pooler, "news") for _ in range(5)]
    stays = listening(pooler, "news")
    for client in (*clients, stays):
        client.query("BEGIN")
    old = one.restart()
    pooler.expect_log("accepts clients, ours leave for it")
    machine.stand_still(pooler.process)
    for client in clients:
        assert client.query("COMMIT")[-1].body == b"I"
    for number in range(3):
        newest_pg.run(f"NOTIFY news, '{number}'", dbname="app")
    # After these, the other clients' notifications are on their way.
    assert payloads(stays.query("COMMIT; SELECT 1")) == ["0", "1", "2"]
    one.new_process_dies(old)
    newest_pg.run("NOTIFY news, 'last'", dbname="app")
    for client in clients:
        told = payloads(client.expect("AAAA"))
        assert told == ["0", "1", "2", "last"]
        assert client.value("SELECT 1") == "1"
    one.full()
    newest_pg.run("NOTIFY news, 'again'", dbname="app")
    for client in (*clients, stays):
        while (told := payloads([client.expect("A")[0]])) != ["again"]:
            assert client is stays and told == ["last"]


def test_clients_that_listen_away_from_the_worker_of_their_pid(line, newest_pg):
    """All clients have moved to the first worker when they begin to listen. A failed restart and a successful one
    disconnect none of them, and each gets each notification once.
    """
    one = line(workers=2, default_pool_size=8)
    pooler = one.pooler
    clients = [pooler.raw() for _ in range(8)]
    assert all(row["clients"] >= 4 for row in pooler.console("SHOW WORKERS"))
    pooler.console("SET worker_busy_target = 60")

    def have_moved():
        for client in clients:
            client.query("SELECT 1")
        return pooler.console("SHOW WORKERS")[1]["clients"] == 0
    machine.wait_until(have_moved, 20, "all clients are on the first worker")
    for client in clients:
        client.query("LISTEN news")
        client.query("BEGIN")
    old = one.restart()
    pooler.expect_log("accepts clients, ours leave for it")
    machine.stand_still(pooler.process)
    for client in clients:
        client.query("COMMIT")
    newest_pg.run("NOTIFY news, 'once'", dbname="app")
    one.new_process_dies(old)
    for client in clients:
        assert payloads([client.expect("A")[0]]) == ["once"]
        assert client.value("SELECT 1") == "1"
    one.full()
    newest_pg.run("NOTIFY news, 'again'", dbname="app")
    for client in clients:
        assert payloads([client.expect("A")[0]]) == ["again"]
        assert client.value("SELECT 1") == "1"


def test_a_client_that_leaves_during_the_move_blocks_no_other(line):
    one = line()
    for _ in range(3):
        clients = [listening(one.pooler, "news") for _ in range(20)]
        old = one.restart()
        for client in clients:
            client.close()
        one.done(old)


def test_without_a_listener_in_the_new_process_the_client_is_disconnected(line, newest_pg):
    """The limits allow no listener in the new process."""
    one = line()
    client = listening(one.pooler, "news")
    one.pooler.settings["max_listeners"] = 0
    one.pooler.write_files()
    old = one.restart()
    error = client.error_and_close()
    assert error.sqlstate == "57P01"
    one.done(old)


def test_clients_learn_of_a_lost_listener(line, newest_pg):
    """The listener is lost in either process."""
    one = line()
    for _ in range(2):
        client = listening(one.pooler, "news")
        one.full()
        newest_pg.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pgweir listener'")
        assert client.error_and_close().sqlstate == "57P01"


def test_listeners_of_both_processes_keep_within_the_caps(line, newest_pg):
    """There is room for one server and one listener."""
    one = line(default_pool_size=1, max_db_connections=2)
    client = listening(one.pooler, "news")
    for round_ in range(3):
        one.full()
        newest_pg.run(f"NOTIFY news, '{round_}'", dbname="app")
        assert payloads([client.expect("A")[0]]) == [str(round_)]
        assert client.value("SELECT 1") == "1"


def test_ones_own_notification_comes_with_the_request_amid_restarts(line, workers):
    one = line(workers=workers, default_pool_size=3)
    clients = [listening(one.pooler, f"own_{n}", "all_of_us") for n in range(8)]
    done, faults = threading.Event(), []

    def work(n, client):
        count = 0
        while not done.is_set() and not faults:
            count += 1
            told = payloads(client.query(f"NOTIFY own_{n}, 'own {count}'; SELECT {count}"))
            if f"own {count}" not in told:
                faults.append((n, count, told))

    workers_ = [threading.Thread(target=work, args=pair) for pair in enumerate(clients)]
    for worker in workers_:
        worker.start()
    try:
        for _ in range(3):
            one.full()
    finally:
        done.set()
        for worker in workers_:
            worker.join()
    assert not faults
