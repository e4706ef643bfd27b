"""An online restart under load: clients over TLS, pinned clients, and clients that listen move to the new process."""

import threading

import pytest

import machine
from tlsfixtures import connect

pytestmark = pytest.mark.pgweir_only("PgBouncer's online restart has other ways")


class Load:
    """Clients that run transactions until they are told to stop."""

    def __init__(self, clients):
        self.stopping = threading.Event()
        self.done, self.failures = 0, []
        self.threads = [threading.Thread(target=self.run, args=(client,)) for client in clients]
        for thread in self.threads:
            thread.start()

    def run(self, client):
        try:
            while not self.stopping.is_set():
                with client.transaction():
                    client.execute("SELECT 1")
                    client.execute("SELECT pg_sleep(0.002)")
                self.done += 1
        except Exception as error:  # noqa: BLE001: whatever it is, the test fails with it
            self.failures.append(repr(error))

    def end(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join(30)
        assert self.failures == []
        return self.done


def test_no_client_is_disconnected(line, newest_pg, certificates):
    one = line(default_pool_size=40, max_client_conn=500, **certificates.pooler("allow"))
    pooler = one.pooler
    secure = [connect(pooler) for _ in range(200)]
    pinned = [pooler.connect() for _ in range(20)]
    listening = [pooler.raw() for _ in range(20)]
    for n, client in enumerate(secure):
        client.execute(f"SET app.tenant TO 'tenant{n}'")
    pids = []
    for n, client in enumerate(pinned):
        client.execute(f"CREATE TEMP TABLE mine AS SELECT {n} AS n")
        pids.append(client.execute("SELECT pg_backend_pid()").fetchone())
    for n, client in enumerate(listening):
        client.query(f"LISTEN news{n}")
    load = Load(secure[:8] + pinned[:4])
    machine.wait_until(lambda: load.done > 50 or load.failures, 20, "the load runs")
    for _ in range(2):
        one.full()
    assert load.end() > 100
    for n, client in enumerate(secure):
        assert client.execute("SHOW app.tenant").fetchone() == (f"tenant{n}",)
    for n, client in enumerate(pinned):
        assert client.execute("SELECT n, pg_backend_pid() FROM mine").fetchone() == (n, *pids[n])
    with newest_pg.connect(dbname="app") as db:
        for n in range(len(listening)):
            db.execute(f"NOTIFY news{n}, 'for {n}'")
    for n, client in enumerate(listening):
        assert f"for {n}".encode() in client.expect("A")[0].body
    ptrs = [row for row in pooler.console("SHOW CLIENTS") if row["database"] == "app"]
    assert len(ptrs) == 240
    for client in secure + pinned:
        client.close()
