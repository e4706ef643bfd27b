"""Five incidents to be found from the live page or from `pgweir top` alone.

    .venv/bin/python tests/incidents.py NUMBER [--minutes M]    starts PostgreSQL, pgweir and clients; the incident is one
                                                                of five, as NUMBER decides, and is named nowhere
    .venv/bin/python tests/incidents.py                         the same with a random number, which is printed at the end
    .venv/bin/python tests/incidents.py --reveal NUMBER         says which one that is, and its cause

The page, the command for `pgweir top` and the password are printed. Ctrl-C ends all of it.
"""

import argparse
import contextlib
import hashlib
import json
import random
import shutil
import signal
import sys
import tempfile
import threading
from pathlib import Path

import psycopg

import cluster as clusters
import machine
import pooler as poolers

USERS = {"trusty": "ordinary", "hashed": "md5 password", "admin": "admin password", "stats": "stats password"}
# Usual load beside each incident: a user, a database, an application, and how many clients.
LOAD = [("trusty", "app", "shop", 6), ("hashed", "other", "reports", 3)]
SCHEMA = """
    CREATE TABLE orders AS SELECT n AS id, n % 1000 AS customer, now() AS placed FROM generate_series(1, 20000) n;
    CREATE INDEX ON orders (id);
    CREATE FUNCTION monthly_totals(year int) RETURNS bigint LANGUAGE plpgsql AS $$
        BEGIN PERFORM pg_sleep(4 + 2 * random()); RETURN (SELECT count(*) FROM orders); END $$;
"""


class Scene:
    """PostgreSQL, pgweir, and clients on threads of their own."""

    def __init__(self, folder, stack):
        self.stopping = threading.Event()
        self.threads = []
        version = clusters.VERSIONS[-1]
        binaries = clusters.Binaries(version, folder)
        template = clusters.make_template(binaries, folder)
        copy = folder / "postgres"
        copy.mkdir()
        machine.give_to_service(copy)
        self.pg = clusters.Cluster.copy_of(template, binaries, copy)
        self.pg.start()
        stack.callback(self.remove_postgres)
        for database in clusters.DATABASES:
            self.pg.run(SCHEMA, dbname=database)
        self.http = machine.free_port()
        home = folder / "pooler"
        home.mkdir()
        machine.give_to_service(home)
        program = machine.service_copy(poolers.binary(), folder)
        self.pooler = poolers.Pooler(
            program, home, self.pg, users=USERS, auth_type="scram-sha-256", default_pool_size=5, max_client_conn=500,
            query_wait_timeout=60, http_listen=f"127.0.0.1:{self.http}", http_history_interval=1)
        self.pooler.start()
        stack.callback(self.end)

    def remove_postgres(self):
        with contextlib.suppress(Exception):
            self.pg.remove()

    def end(self):
        self.stopping.set()
        self.pooler.process.send_signal(signal.SIGQUIT)
        self.pooler.process.wait(20)
        for thread in self.threads:
            thread.join(20)

    def connect(self, user="trusty", dbname="app", application="shop", password=None):
        return self.pooler.connect(user, dbname, password=password or USERS[user], application_name=application)

    def client(self, work, pause=0.02, **login):
        """Runs `work` repeatedly with a connection, and connects again when `work` fails."""
        def run():
            while not self.stopping.is_set():
                with contextlib.suppress(psycopg.Error), self.connect(**login) as db:
                    for _ in machine.every(pause, until=self.stopping.is_set):
                        work(db)
                self.stopping.wait(0.5)
        self.thread(run)

    def thread(self, run):
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self.threads.append(thread)

    def usual_load(self):
        def work(db):
            db.execute("SELECT customer FROM orders WHERE id = %s", (17,))
        for user, dbname, application, count in LOAD:
            for _ in range(count):
                self.client(work, user=user, dbname=dbname, application=application)


def idle_in_transaction(scene):
    """Five clients of one application have begun a transaction and do nothing in it: the pool has no server left."""
    def hold(db):
        db.execute("BEGIN")
        db.execute("SELECT count(*) FROM orders")
        scene.stopping.wait()
    for _ in range(5):
        scene.client(hold, application="billing")


def host_down(scene):
    """PostgreSQL is down."""
    scene.pg.stop("immediate")


def wrong_passwords(scene):
    """An application logs in with a wrong password, again and again."""
    def log_in_wrongly():
        for _ in machine.every(0.03, until=scene.stopping.is_set):
            with contextlib.suppress(psycopg.Error):
                scene.connect(user="trusty", application="import", password="of last year").close()
    for _ in range(4):
        scene.thread(log_in_wrongly)


def pins(scene):
    """Clients make temporary tables, stay connected, and keep their servers."""
    def keep(db):
        db.execute("CREATE TEMP TABLE IF NOT EXISTS basket (article int, pieces int)")
        db.execute("INSERT INTO basket VALUES (1, 2)")
        scene.stopping.wait(20)
        # Continue with a new session.
        db.close()
    for _ in range(12):
        scene.client(keep, application="basket")


def slow_statement(scene):
    """One statement, SELECT monthly_totals(...), takes seconds and keeps the servers busy."""
    for _ in range(7):
        scene.client(lambda db: db.execute("SELECT monthly_totals(%s)", (2026,)), application="shop")


INCIDENTS = [idle_in_transaction, host_down, wrong_passwords, pins, slow_statement]


def incident(number):
    """The incident that a number stands for. Five numbers in a row stand for all of them, in some order."""
    block, place = divmod(number, len(INCIDENTS))
    order = sorted(INCIDENTS, key=lambda one: hashlib.sha256(f"{block}/{one.__name__}".encode()).digest())
    return order[place]


def play(number, minutes, facts):
    with contextlib.ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="pgweir-scene-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o755)
        machine.give_to_service(folder)
        scene = Scene(folder, stack)
        scene.usual_load()
        # Half a minute of usual load comes first, so that there is something to compare with.
        scene.stopping.wait(15)
        incident(number)(scene)
        pooler = scene.pooler
        page = f"http://127.0.0.1:{scene.http}/"
        top = f"PGPASSWORD='{USERS['stats']}' {poolers.binary()} top -h 127.0.0.1 -p {pooler.port} -U stats"
        print(f"page: {page}  user: stats  password: {USERS['stats']}\ntop:  {top}\nends in {minutes} minutes, or by Ctrl-C",
              flush=True)
        if facts:
            facts.write_text(json.dumps({"page": page, "http": scene.http, "port": pooler.port, "top": top}))
        scene.stopping.wait(minutes * 60)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("number", type=int, nargs="?")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--reveal", action="store_true")
    parser.add_argument("--facts", type=Path, help="write the addresses into this file, as JSON")
    arguments = parser.parse_args()
    number = random.randrange(1000) if arguments.number is None else arguments.number
    if arguments.reveal:
        found = incident(number)
        return print(f"{found.__name__}: {found.__doc__}")
    # SIGTERM ends it as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with contextlib.suppress(KeyboardInterrupt):
            play(number, arguments.minutes, arguments.facts)
    finally:
        print(f"that was number {number}", flush=True)


if __name__ == "__main__":
    main()
