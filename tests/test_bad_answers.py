"""A server whose answer to one of pgweir's own queries makes no sense: its session is not passed on to another client."""

import pytest

import fakeserver as fake
from rawclient import frame, u16, u32

pytestmark = pytest.mark.pgweir_only("PgBouncer cleans no session in transaction mode")


def row(*values):
    return frame("D", u16(len(values)) + b"".join(u32(len(value)) + value for value in values))


DONE = frame("C", b"SELECT 1\0")
GOOD = row(b"0", b"0", b"f")
CLEANS = {
    "error": fake.error("XX000", "no") + fake.READY,
    "silence": b"",
    "no row": DONE + fake.READY,
    "words instead of numbers": row(b"x", b"y", b"z") + DONE + fake.READY,
    "row cut off": row(b"0") + DONE + fake.READY,
    "a statement that pgweir has not prepared": row(b"0", b"7", b"f") + DONE + fake.READY,
    "nothing was run": frame("I", b"") + fake.READY,
    "another row behind the last": GOOD + row(b"0") + DONE + fake.READY,
    "in a transaction": GOOD + DONE + frame("Z", b"T"),
    "in a failed transaction": GOOD + DONE + frame("Z", b"E"),
}


@pytest.fixture
def start_bad(start_pooler, newest_pg):
    """Starts a pooler with one server, which answers cleans and inspections with these bytes, and any other query with the
    number of the connection.
    """
    servers = []

    def start(clean, inspection=None):
        def behave(connection):
            if not connection.welcome():
                return
            while (message := connection.read()).kind != "X":
                if "pg_advisory_unlock_all" in message.tag:
                    connection.send(clean)
                elif inspection is not None and "pg_my_temp_schema" in message.tag:
                    connection.send(inspection)
                else:
                    connection.send(fake.answer(str(connection.number)))

        server = fake.FakeServer(behave)
        servers.append(server)
        server.__enter__()
        entry = server.database.replace(" session_state=off", "")
        return start_pooler(newest_pg, databases={"bad": entry}, default_pool_size=1, workers=1, query_wait_timeout=8)

    yield start
    for server in servers:
        server.__exit__(None, None, None)


def test_a_good_clean(start_bad):
    """The other tests can fail: after a clean as PostgreSQL answers it, the next client gets the same server."""
    pooler = start_bad(GOOD + DONE + fake.READY)
    with pooler.raw(dbname="bad") as client:
        client.query("DO 'x'")
    with pooler.raw(dbname="bad") as other:
        assert other.value("SELECT 1") == "1"


@pytest.mark.parametrize("answer", CLEANS)
def test_after_a_bad_clean_the_server_is_closed(start_bad, answer):
    pooler = start_bad(CLEANS[answer])
    with pooler.raw(dbname="bad") as client:
        client.query("DO 'x'")
    with pooler.raw(dbname="bad") as other:
        assert other.value("SELECT 1") == "2"


@pytest.mark.parametrize("answer", [DONE, frame("I", b""), GOOD + DONE, row(b"off") + DONE],
                         ids=["no row", "nothing was run", "the row of a clean", "one value"])
def test_a_bad_inspection_pins_the_client(start_bad, answer):
    """pgweir does not take a session without an answer for one without state."""
    pooler = start_bad(GOOD + DONE + fake.READY, inspection=answer + fake.READY)
    with pooler.raw(dbname="bad") as client, pooler.raw(dbname="bad") as other:
        client.query("DO 'x'")
        assert other.value("SELECT 1") == "2"
        assert {pin["reason"] for pin in pooler.console("SHOW PINS")} == {"unknown state"}
