"""The startup values of a client that RESET takes away come back before the client's next request."""

import struct
from itertools import zip_longest

import pytest

import rawclient as wire
from rawclient import COPY_DONE, SYNC, bind, close, copy_data, describe, execute, extended, parse, query

PARAMETERS = {
    "options": r'-c search_path=pg_temp,\ "We\ ird",\ public -c work_mem=77kB -c app.tenant=seven',
    "DateStyle": "German, DMY", "application_name": "first"}
NAMES = ("search_path", "work_mem", "app.tenant", "DateStyle", "application_name")
READ = "SELECT " + ", ".join(f"current_setting('{name}')" for name in NAMES)
CHANGE = query("SET search_path = pg_catalog; SET work_mem = '1MB'; SET app.tenant = 'x'; SET DateStyle = ISO;"
               "SET application_name = 'second'")


def asked(sql=READ, name=""):
    return parse(sql, name) + bind(name=name) + describe() + execute()


def each(form):
    """A case for each way to reset parameters."""
    return {reset: form(reset) for reset in (
        "RESET ALL", "DISCARD ALL", "RESET search_path", "reset session_authorization", "SET DateStyle TO DEFAULT",
        "SET LOCAL app.tenant TO DEFAULT", "RESET Application_Name")}


# name: steps, each said at once
SCRIPTS = {
    **{f"{reset}, then a query": steps for reset, steps in each(lambda reset: [
        query(reset) + query(READ), query(READ), CHANGE + query(reset) + query(READ) + asked() + SYNC,
        CHANGE, query(reset) + query("SELECT 1") + query(READ), query(READ)]).items()},
    **{f"{reset}, then a query, extended": steps for reset, steps in each(lambda reset: [
        CHANGE, extended(reset) + SYNC + asked() + SYNC + asked() + SYNC, asked() + SYNC,
        CHANGE, extended(reset) + SYNC + parse(READ, "s") + SYNC + bind(name="s") + execute() + SYNC,
        close("S", "s") + SYNC, CHANGE, extended(reset) + SYNC + query(READ)]).items()},
    **{f"{reset}, behind what fails": steps for reset, steps in each(lambda reset: [
        CHANGE, extended("SELECT 1/0") + SYNC + extended("SELECT 1") + extended(reset) + SYNC + asked() + SYNC, query(READ),
        CHANGE, extended("SELECT 1/0") + SYNC + extended("BEGIN") + extended("RESET work_mem") + SYNC,
        query("ROLLBACK") + extended("SELECT 1") + extended(reset) + SYNC + asked() + SYNC, query(READ),
        query("SELECT 1/0") + query("SELECT 1/0") + parse("SELECT 1", "s") + extended(reset) + SYNC + asked() + SYNC,
        close("S", "s") + SYNC + asked() + SYNC]).items()},
    "by a named statement": [
        parse("RESET ALL", "r") + SYNC, CHANGE, bind(name="r") + execute() + SYNC + query(READ),
        CHANGE, bind(name="r") + execute() + SYNC + bind(name="r") + execute() + SYNC + asked() + SYNC],
    "in a transaction": [
        CHANGE, query("BEGIN") + query("RESET work_mem") + query("COMMIT"), query(READ),
        CHANGE + query("BEGIN") + query("RESET work_mem") + query("SAVEPOINT a") + query("ROLLBACK"), query(READ),
        CHANGE, query("BEGIN; RESET ALL; SELECT 1; COMMIT"), query(READ)],
    "that fails": [
        CHANGE, query("BEGIN") + query("SELECT 1/0") + query("RESET ALL") + query("ROLLBACK") + query(READ),
        query("RESET ALL; SELECT 1/0") + query(READ), extended("RESET ALL") + extended("SELECT 1/0") + SYNC + query(READ),
        query("RESET nothing") + query(READ)],
    "with COPY": [
        query("CREATE TEMP TABLE copied (a int)"), CHANGE,
        query("RESET ALL; COPY copied FROM STDIN") + copy_data(b"1\n2\n") + COPY_DONE + query(READ),
        query("SELECT count(*) FROM copied"), CHANGE,
        extended("RESET ALL") + SYNC + extended("COPY copied FROM STDIN") + copy_data(b"3\n") + COPY_DONE + SYNC
        + query(READ), query("SELECT count(*) FROM copied"), query("DROP TABLE copied"), query(READ)],
}

# Within one request whose other statements do not read the reset values.
WITHIN = {
    **{f"{reset}, in the same request": steps for reset, steps in each(lambda reset: [
        CHANGE, extended(reset) + extended("SELECT 1") + SYNC, asked() + SYNC,
        CHANGE, extended(reset) + extended("SELECT 1/0") + SYNC, asked() + SYNC,
        CHANGE, parse(reset, "r") + SYNC, bind(name="r") + execute() + extended("SELECT 1") + SYNC + asked() + SYNC]).items()},
    "DISCARD ALL, before something fails": [
        CHANGE, extended("DISCARD ALL") + extended("SELECT 1/0") + SYNC + asked() + SYNC],
    **{f"{reset}, said and not executed": steps for reset, steps in each(lambda reset: [
        CHANGE, parse(reset) + extended("SELECT 1") + asked() + SYNC, asked() + SYNC,
        CHANGE, parse(reset, "r") + bind(name="r", portal="r") + asked() + asked() + SYNC, asked() + SYNC,
        parse(reset) + SYNC + asked() + SYNC, asked() + SYNC, parse(reset) + describe("S") + SYNC,
        bind() + execute() + SYNC + asked() + SYNC, asked() + SYNC,
        extended("SELECT 1/0") + SYNC + parse(reset) + SYNC + bind() + execute() + SYNC + asked() + SYNC]).items()},
    "with transactions in the text": [
        CHANGE, query("BEGIN; RESET ALL; SELECT 1; ROLLBACK"), query(READ),
        query("RESET work_mem; RESET app.tenant; COMMIT; SELECT 1/0"), query(READ), CHANGE,
        query("RESET ALL; SELECT 1; ROLLBACK"), query(READ),
        query("RESET ALL; COMMIT; BEGIN; ROLLBACK"), query(READ), CHANGE,
        query("BEGIN; SAVEPOINT a; RESET ALL; SAVEPOINT b; SELECT 1; ROLLBACK TO a"), query(READ), query("COMMIT"),
        query(READ), query("RESET ALL; RESET nothing"), query(READ), query("BEGIN"),
        query("SAVEPOINT a; RESET work_mem"), query("SELECT 1/0") + query("ROLLBACK TO a"),
        query(READ), query("SET app.tenant = 'y'; RESET app.tenant; COMMIT"), query(READ)],
    **{f"{reset}, in the same text": steps for reset, steps in each(lambda reset: [
        CHANGE, query(f"{reset}; SELECT 1"), query(READ),
        CHANGE, query(f"SELECT ';'; {reset}; SELECT 'RESET ALL' ;; {reset}"), query(READ),
        query(f"{reset}; SELECT 1/0"), query(READ), query(f"{reset}; SELECT 'ü', nothing"),
        query(f"{reset}; SELECT 1; SELEKT"), query(READ)]).items()},
}

# Npgsql sends DISCARD ALL in front of its next request.
NPGSQL = [CHANGE, query("DISCARD ALL") + asked() + SYNC, CHANGE, extended("DISCARD ALL") + SYNC + asked() + SYNC,
          CHANGE, query("DISCARD ALL") + parse(READ, "s") + describe("S", "s") + SYNC + bind(name="s") + execute() + SYNC]
SCRIPTS["as Npgsql"] = NPGSQL


def answers(client, steps, before):
    heard = []
    for step in steps:
        before()
        heard.append((step, told(client.ask(step))))
    return heard


def told(messages):
    """Returns what a client can notice. The order of parameters is not compared, since PostgreSQL does not promise one.
    """
    seen, parameters = [], []
    for message in messages:
        if message.kind == "S":
            if not message.body.startswith(b"pgweir."):
                parameters.append(("S", *message.parameter))
            continue
        seen += sorted(parameters)
        parameters = []
        seen.append((message.kind, _SEEN.get(message.kind, lambda m: m.body)(message)))
    return seen


def _columns(message):
    """Returns names and types, without the parts that differ between two tables of one name."""
    at, fields = 2, []
    while at < len(message.body):
        end = message.body.index(b"\0", at)
        fields.append((message.body[at:end], struct.unpack_from("!I", message.body, end + 7)[0]))
        at = end + 19
    return fields


_SEEN = {"E": lambda m: tuple(m.fields.get(field) for field in "SCMP"), "T": _columns}


def differences(expected, found):
    """Returns each step with another answer, and the messages that differ."""
    wrong = []
    for (step, truth), (_, seen) in zip(expected, found):
        if truth != seen:
            pairs = zip_longest(truth, seen)
            wrong.append((step[5:60], *[pair for pair in pairs if pair[0] != pair[1]][:2]))
    return wrong


@pytest.mark.parametrize("scripts", [SCRIPTS, WITHIN], ids=["requests", "within"])
def test_reset_and_the_statements_after_it(start_pooler, plain_or_assisted_pg, scripts):
    weir = start_pooler(plain_or_assisted_pg, workers=1, default_pool_size=2)
    wrong = []
    with weir.raw() as other:
        for name, steps in scripts.items():
            with wire.RawClient.tcp(plain_or_assisted_pg.host, plain_or_assisted_pg.port) as direct:
                direct.login("trusty", "app", **PARAMETERS)
                expected = answers(direct, steps, lambda: None)
            with weir.raw(**PARAMETERS) as client:
                found = answers(client, steps, lambda: other.query("SET work_mem = '99kB'; SET app.tenant = 'other'"))
            wrong += [(name, *what) for what in differences(expected, found)]
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.parametrize("size", [4_000, 100_000])
@pytest.mark.parametrize("reset", ["RESET ALL", "SET LOCAL work_mem TO DEFAULT", "DISCARD ALL"])
@pytest.mark.parametrize("form", [query, lambda sql: extended(sql) + SYNC], ids=["simple", "extended"])
def test_reset_in_parts(start_pooler, plain_or_assisted_pg, size, reset, form):
    """A text that arrives in parts: the startup values are back for the next request, and for the next transaction."""
    weir = start_pooler(plain_or_assisted_pg, workers=1)
    is_within = size < 65536 and reset == "SET LOCAL work_mem TO DEFAULT"
    begin, end = (query("BEGIN"), query("COMMIT")) if is_within else (b"", b"")
    said = form("/* " + "x" * size + " */ " + reset) + (end or query(READ)) + query(READ)
    found = []
    for server in (plain_or_assisted_pg, weir):
        tcp = wire.RawClient.tcp
        with tcp(server.host, server.port) as client, tcp(server.host, server.port) as other:
            client.login("trusty", "app", **PARAMETERS)
            other.login("trusty", "app")
            client.ask(CHANGE + begin)
            client.send(said[:1000])
            other.query("SELECT 1")
            client.send(said[1000:])
            found.append([told(client.until_ready()) for _ in range(3)])
    assert found[0] == found[1]


@pytest.mark.parametrize("said", [
    query("RESET ALL") + query(READ), query("RESET ALL; SELECT 1") + query("DEALLOCATE ALL") + close("S", "s"),
    extended("RESET ALL") + asked() + asked()], ids=["resets", "names", "extended"])
def test_a_query_after_messages_without_a_sync(start_pooler, plain_or_assisted_pg, said):
    """The server skips all messages up to the Sync. pgweir sends the Sync although earlier messages have no answer."""
    weir = start_pooler(plain_or_assisted_pg, workers=1)
    with weir.raw(**PARAMETERS) as client:
        client.send(extended("SELECT pg_sleep(0.1), 1/0") + query("SELECT 2") + said + SYNC)
        assert wire.kinds(client.until_ready()).endswith("EZ")


def test_notices_at_login(start_pooler, pg):
    """The first client of a pool and later ones: each receives the notice."""
    def told(client):
        messages = client.login_messages
        notices = [(m.sqlstate, m.words) for m in messages if m.kind == "N"]
        assert "RNS" in wire.kinds(messages)
        return notices

    parameters = {"application_name": "n" * 70}
    with wire.RawClient.tcp(pg.host, pg.port) as direct:
        expected = told(direct.login("trusty", "app", **parameters))
    assert [code for code, _ in expected] == ["42622"]
    pooler = start_pooler(pg, default_pool_size=1)
    for _ in range(3):
        with pooler.raw(**parameters) as client:
            assert told(client) == expected
            assert client.value("SHOW application_name") == "n" * 63
