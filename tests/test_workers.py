"""Workers that take part, and clients that move between them (`worker_busy_target`)."""

import threading
from pathlib import Path

import psycopg
import pytest

import machine


def workers(pooler):
    return pooler.console("SHOW WORKERS")


def wakeups(pooler, worker):
    """Returns how often a worker's thread has waited for something so far, once it waits again. The answer to a console
    command may arrive before the worker that gave it has gone to sleep."""
    tasks = Path(f"/proc/{pooler.process.pid}/task").iterdir()
    thread = next(task for task in tasks if (task / "comm").read_text().strip() == f"worker-{worker}")

    def asleep():
        status = dict(line.split(":", 1) for line in (thread / "status").read_text().splitlines())
        switches = sum(int(value) for name, value in status.items() if "ctxt_switches" in name)
        return status["State"].split()[0] == "S" and (switches,)
    return machine.wait_until(asleep, 10, f"worker {worker} sleeps")[0]


def use(clients):
    """Lets each client run a transaction, in turn."""
    for client in clients:
        assert client.execute("SELECT 1").fetchone() == (1,)


def cancel_each(clients):
    """Lets each client cancel a query of its own."""
    for client in clients:
        timer = threading.Timer(0.05, client.cancel)
        timer.start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            client.execute("SELECT pg_sleep(30)")
        timer.join()


@pytest.mark.shows("worker_busy_target")
def test_one_worker_serves_a_low_load_and_the_other_sleeps(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, workers=2, worker_busy_target=None)
    assert pooler.setting("worker_busy_target") == "60", "the default"
    clients = [pooler.connect() for _ in range(6)]
    use(clients)
    first, second = workers(pooler)
    assert (first["state"], second["state"]) == ("active", "inactive")
    assert first["clients"] >= 6 and second["clients"] == second["servers"] == 0
    before = wakeups(pooler, 1)
    for _ in range(50):
        use(clients)
    assert wakeups(pooler, 1) == before, "the second worker was woken"
    for client in clients:
        client.close()


def test_clients_move_and_keep_their_sessions(start_pooler, newest_pg, certificates):
    """All workers take part at first. Then the load turns out to be low, and the clients of the second worker move to the
    first, with encryption, settings, prepared statements and cancel keys. Those that are pinned to a server, or listen, stay."""
    pooler = start_pooler(newest_pg, workers=2, worker_busy_target=0, default_pool_size=4, **certificates.pooler("allow"))
    clients = [pooler.connect(prepare_threshold=0, sslmode="require" if number % 3 == 0 else "disable") for number in range(12)]
    for number, client in enumerate(clients):
        client.execute(f"SET application_name = 'client {number}'")
        client.execute(f"PREPARE own AS SELECT {number} + $1::int")
        assert client.execute("SELECT %s::int * 2", (number,)).fetchone() == (2 * number,)
    pinned, listener = pooler.connect(), pooler.connect()
    pinned.execute("CREATE TEMP TABLE kept AS SELECT 7 AS value")
    listener.execute("LISTEN news")
    assert all(row["clients"] > 3 for row in workers(pooler))
    in_transaction = clients[0]
    in_transaction.execute("BEGIN")
    pooler.console("SET worker_busy_target = 60")
    assert pooler.setting("worker_busy_target") == "60"
    in_transaction.execute("COMMIT")

    def have_moved():
        use(clients)
        second = workers(pooler)[1]
        return second["state"] == "inactive" and second["clients"] <= 2
    machine.wait_until(have_moved, 20, "the clients are on the first worker")
    for number, client in enumerate(clients):
        assert client.execute("SHOW application_name").fetchone() == (f"client {number}",)
        assert client.execute(f"EXECUTE own({number})").fetchone() == (2 * number,)
        assert client.execute("SELECT %s::int * 2", (number,)).fetchone() == (2 * number,)
    assert pinned.execute("SELECT value FROM kept").fetchone() == (7,)
    clients[0].execute("NOTIFY news, 'still here'")
    assert next(listener.notifies(timeout=10, stop_after=1)).payload == "still here"
    cancel_each(clients)
    for client in [*clients, pinned, listener]:
        client.close()


@pytest.mark.parametrize("tls", (False, True), ids=("plain", "tls"))
def test_session_mode_uses_all_workers(start_pooler, newest_pg, certificates, tls):
    """A client that keeps its server can't move when the load rises, so it is assigned to a worker at its login."""
    pooler = start_pooler(newest_pg, workers=2, worker_busy_target=None, pool_mode="session", default_pool_size=8,
                          **(certificates.pooler("allow") if tls else {}))
    clients = [pooler.connect(sslmode="require" if tls else "disable") for _ in range(8)]
    for number, client in enumerate(clients):
        client.execute(f"CREATE TEMP TABLE kept AS SELECT {number} AS value")
    rows = workers(pooler)
    assert [row["state"] for row in rows] == ["active", "inactive"]
    assert all(row["clients"] >= 4 and row["servers"] == 4 for row in rows), rows
    for number, client in enumerate(clients):
        assert client.execute("SELECT value FROM kept").fetchone() == (number,)
    cancel_each(clients)
    for client in clients:
        client.close()


def test_a_high_load_is_spread_and_no_transaction_fails(start_pooler, newest_pg):
    """One percent of a CPU is a high load here: no machine is too slow for it."""
    pooler = start_pooler(newest_pg, workers=2, worker_busy_target=1, default_pool_size=4)
    stop, counts, errors = threading.Event(), [0] * 12, []

    def ask(number):
        try:
            with pooler.connect() as db:
                while not stop.is_set():
                    assert db.execute("SELECT %s::int", (number,), prepare=True).fetchone() == (number,)
                    counts[number] += 1
        except Exception as error:  # noqa: BLE001: whatever it is, the test fails with it
            errors.append(repr(error))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(counts))]
    for thread in threads:
        thread.start()
    try:
        machine.wait_until(lambda: errors or all(row["state"] == "active" and row["clients"] >= 4 for row in workers(pooler)), 60,
                           "both workers have clients")
        before = list(counts)
        machine.wait_until(lambda: errors or all(now > then + 20 for now, then in zip(counts, before)), 60, "all clients go on")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert errors == []
