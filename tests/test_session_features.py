"""The table of docs/sessions.md: what a session can do on a direct connection, behind PgBouncer and behind pgweir. The
test runs every cell. `PGWEIR_WRITE_DOCS=1 pytest tests/test_session_features.py -n 0` writes the page.
"""

import os
import shutil
from pathlib import Path

import pytest

import pooler as poolers
import session_features
from rawclient import RawClient

PAGE = poolers.ROOT / "docs" / "sessions.md"
WAYS = ("PostgreSQL", "PgBouncer, session", "PgBouncer, transaction", "pgweir")
USERS = {"trusty": "", "postgres": "", "admin": "admin password"}
END = "\n<!-- The table ends here; tests/test_session_features.py keeps what follows. -->\n"
HEAD = """<!-- The table is generated from tests/session_features.py by tests/test_session_features.py. -->

# Sessions in transaction mode

With `pool_mode = transaction` a client has a server for one transaction at a time. pgweir moves the client's session state
from server to server: settings, role, prepared statements, LISTEN. A client with state that can't be moved keeps its server.
This is `session_state = transparent`, the default; `session_state = off` works as PgBouncer does.

A test runs each cell: a client sends the same statements through the pooler and directly to PostgreSQL, while a second
client takes each server that the first one has used. `yes`: the answers are the same, and the second client sees no
state of the first client's session. `no`: the answers differ. `no, and others see it`: the second client sees state of the
first one. PgBouncer is Debian's (1.18, `server_reset_query = DISCARD ALL`). pgweir is in
transaction mode; the results are the same on a stock PostgreSQL and with pgweir's assist extension. In session mode
each client keeps a server for as long as it is connected.

"""


@pytest.fixture
def bouncer(run_folder, newest_pg, folder):
    """Starts Debian's PgBouncer in a pool mode."""
    started = []

    def start(pool_mode):
        program = Path(shutil.which("pgbouncer", path="/usr/sbin:/usr/bin"))
        made = poolers.Pooler(program, folder, newest_pg, pgbouncer=True, users=USERS, pool_mode=pool_mode,
                              default_pool_size=3, server_reset_query="DISCARD ALL")
        started.append(made)
        return made.start()

    yield start
    for made in started:
        made.finish()


def test_directly(newest_pg):
    check("PostgreSQL", newest_pg, newest_pg)


@pytest.mark.parametrize("pool_mode", ("session", "transaction"))
def test_pgbouncer(bouncer, newest_pg, pool_mode):
    check(f"PgBouncer, {pool_mode}", bouncer(pool_mode), newest_pg)


@pytest.mark.parametrize("assist", (False, True), ids=("plain", "assisted"))
def test_pgweir(start_pooler, shared_clusters, assist):
    pg = shared_clusters(18, assist or None)
    check("pgweir", start_pooler(pg, users=USERS, workers=1, default_pool_size=3), pg)


def check(way, target, pg):
    """Runs a column and compares it with the page, or writes it there."""
    found = session_features.column(connector(target), connector(pg))
    told = read_page()
    if os.environ.get("PGWEIR_WRITE_DOCS"):
        told[way] = found
        write_page(told)
    assert found == told.get(way)


def connector(target):
    def connect(user, **parameters):
        client = RawClient.tcp(target.host, target.port, timeout=3)
        return client.login(user, "app", **parameters)

    return connect


def read_page():
    """{way: {title: cell}} of the page."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")] if PAGE.exists() else []
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]
    return {way: {row[0]: row[n + 1] for row in rows} for n, way in enumerate(WAYS)}


def write_page(told):
    lines = ["| what a client does | " + " | ".join(WAYS) + " |", "|---" * (len(WAYS) + 1) + "|"]
    for feature in session_features.FEATURES:
        cells = [told.get(way, {}).get(feature.title, "?") for way in WAYS]
        lines.append(f"| {feature.title} | " + " | ".join(cells) + " |")
    # The text after the table is written by hand, and is kept.
    behind = PAGE.read_text().partition(END)[2] if PAGE.exists() else ""
    PAGE.write_text(HEAD + "\n".join(lines) + "\n" + END + behind)
