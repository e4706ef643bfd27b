"""The features of sessions. Each has the messages of a client, and a probe that shows whether another client of the
same servers sees the first client's state.
"""

from dataclasses import dataclass, field

import rawclient as wire
from differential import kinds, replies
from rawclient import SYNC, bind, execute, parse, query

LOCKS = f"SELECT {kinds.OWN_LOCKS}"
ASYNCPG_RESET = "SELECT pg_advisory_unlock_all();\nCLOSE ALL;\nUNLISTEN *;\nRESET ALL;"


@dataclass(frozen=True)
class Feature:
    """`steps` are simple Queries or messages; `probe` is a query that shows another client's state."""

    title: str
    steps: tuple
    probe: str = "SELECT 1"
    user: str = "trusty"
    login: dict = field(default_factory=dict)


FEATURES = [
    Feature("transactions, savepoints, errors", ("BEGIN", "SAVEPOINT s", "SELECT 1/0", "ROLLBACK TO s", "SELECT 2", "COMMIT")),
    Feature("cursors in a transaction", ("BEGIN", "DECLARE c CURSOR FOR SELECT generate_series(1, 3)", "FETCH 2 FROM c", "COMMIT")),
    Feature("`SET LOCAL`", ("BEGIN; SET LOCAL work_mem = '5MB'", "SHOW work_mem", "COMMIT", "SHOW work_mem"), "SHOW work_mem"),
    Feature("`SET`, `SHOW`", ("SET work_mem = '5MB'", "SHOW work_mem", "RESET work_mem", "SHOW work_mem"), "SHOW work_mem"),
    Feature("`SET search_path`", ("SET search_path = pg_catalog, public", "SHOW search_path", "SELECT current_schemas(false)"),
            "SHOW search_path"),
    Feature("`SET` that is rolled back", ("BEGIN; SET work_mem = '5MB'; ROLLBACK", "SHOW work_mem", "SET work_mem = '6MB'; SELECT 1/0",
                                          "SHOW work_mem"), "SHOW work_mem"),
    Feature("`SET TimeZone`, `DateStyle`: reported and kept", ("SET TimeZone = 'Asia/Tokyo'; SET DateStyle = 'German'",
                                                             "SELECT '2020-02-02 02:02+00'::timestamptz", "RESET DateStyle",
                                                             "SHOW DateStyle"), "SHOW TimeZone"),
    Feature("custom parameters (`app.tenant`)", ("SET app.tenant = 'acme'", "SELECT current_setting('app.tenant')"),
            "SELECT nullif(current_setting('app.tenant', true), '')"),
    Feature("settings made in `DO`, functions and triggers", ("DO $$ BEGIN PERFORM set_config('app.tenant', 'x', false); END $$",
                                                              "SELECT current_setting('app.tenant')"),
            "SELECT nullif(current_setting('app.tenant', true), '')"),
    Feature("`UPDATE pg_settings`", ("UPDATE pg_settings SET setting = '7MB' WHERE name = 'work_mem'", "SHOW work_mem"),
            "SHOW work_mem"),
    Feature("`SET ROLE`", ("SET ROLE hashed", "SELECT current_user, session_user", "RESET ROLE", "SELECT current_user"),
            "SELECT current_user", user="postgres"),
    Feature("`SET SESSION AUTHORIZATION`", ("SET SESSION AUTHORIZATION hashed", "SELECT current_user, session_user",
                                            "RESET SESSION AUTHORIZATION", "SELECT session_user"),
            "SELECT session_user", user="postgres"),
    Feature("settings of a superuser, kept after `SET ROLE`", (
        "SET log_min_duration_statement = '1min'; SET ROLE hashed", "SHOW log_min_duration_statement",
        "RESET log_min_duration_statement", "SELECT current_user", "RESET ROLE", "SHOW log_min_duration_statement",
        "RESET log_min_duration_statement"), "SHOW log_min_duration_statement", user="postgres"),
    Feature("`SET SESSION CHARACTERISTICS`", ("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", "SHOW transaction_read_only"),
            "SHOW transaction_read_only"),
    Feature("parameters at login, and `RESET` to them", ("SHOW work_mem", "SET work_mem = '9MB'", "SHOW work_mem", "RESET ALL",
                                                         "SHOW work_mem"), "SHOW work_mem", login={"work_mem": "6MB"}),
    Feature("`options` at login (PGOPTIONS)", ("SHOW search_path", "SHOW app.of_login"), "SHOW search_path",
            login={"options": "-c search_path=pg_catalog -c app.of_login=yes"}),
    Feature("`DISCARD ALL`", ("SET work_mem = '5MB'", "PREPARE p AS SELECT 1", "DISCARD ALL", "SHOW work_mem", "EXECUTE p"),
            "SHOW work_mem"),
    Feature("a driver's reset query (asyncpg)", ("SET work_mem = '5MB'", ASYNCPG_RESET, "SHOW work_mem", ASYNCPG_RESET), "SHOW work_mem"),
    Feature("prepared statements of the protocol", (parse("SELECT 'mine'", "p") + SYNC, bind(name="p") + execute() + SYNC,
                                                    wire.close("S", "p") + SYNC, bind(name="p") + execute() + SYNC)),
    Feature("`PREPARE`, `EXECUTE`, `DEALLOCATE`", ("PREPARE p AS SELECT 'mine'", "EXECUTE p", "DEALLOCATE p", "EXECUTE p"), "EXECUTE p"),
    Feature("one namespace for both kinds of prepared statements", (
        parse("SELECT 'mine'", "p") + SYNC, "EXECUTE p", "DEALLOCATE p", "PREPARE q AS SELECT 'q'", bind(name="q") + execute() + SYNC,
        "DEALLOCATE ALL", "EXECUTE q")),
    Feature("`LISTEN`, `NOTIFY`", ("LISTEN heard", "NOTIFY heard, 'one'", "BEGIN; NOTIFY heard, 'two'; COMMIT", "SELECT 1", "UNLISTEN heard",
                                   "NOTIFY heard, 'three'"), "SELECT * FROM pg_listening_channels()"),
    Feature("temporary tables", ("CREATE TEMP TABLE mine (n int)", "INSERT INTO mine VALUES (1)", "SELECT * FROM mine", "DROP TABLE mine"),
            "SELECT * FROM mine"),
    Feature("temporary views, functions, types", ("CREATE TEMP VIEW mine AS SELECT 5 AS n", "SELECT * FROM mine",
                                                  "CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS 'SELECT 6'",
                                                  "SELECT pg_temp.f()", "DISCARD TEMP", "SELECT * FROM mine"), "SELECT * FROM mine"),
    Feature("cursors `WITH HOLD`", ("DECLARE c CURSOR WITH HOLD FOR SELECT generate_series(1, 3)", "FETCH 2 FROM c", "FETCH 2 FROM c",
                                    "CLOSE c", "FETCH 1 FROM c"), "SELECT name FROM pg_cursors"),
    Feature("advisory locks of a session", ("SELECT pg_advisory_lock(4711)", LOCKS, "SELECT pg_advisory_unlock(4711)", LOCKS), LOCKS),
    Feature("`currval`, `lastval`", ("CREATE TEMP SEQUENCE s; SELECT nextval('s')", "SELECT currval('s')", "SELECT lastval()", "DISCARD ALL",
                                     "SELECT lastval()"), "SELECT lastval()"),
    Feature("`setseed`, `random`", ("SELECT setseed(0.25)", "SELECT random()", "SELECT random()")),
    Feature("`CALL` of a procedure that commits, then fails", (
        "DO $$ BEGIN SET work_mem = '5MB'; COMMIT; SET work_mem = '6MB'; PERFORM 1/0; END $$", "SHOW work_mem"), "SHOW work_mem"),
    Feature("two-phase commit", ("BEGIN; SET work_mem = '5MB'; PREPARE TRANSACTION 'features'", "SHOW work_mem", "COMMIT PREPARED 'features'"),
            "SHOW work_mem"),
    Feature("large objects, `COPY`", ("BEGIN; SELECT lo_creat(-1) IS NOT NULL; ROLLBACK", "COPY (VALUES (1), (2)) TO STDOUT")),
]


def column(connect, direct):
    """{title: "yes", "no" or "no, and others see it"} of all features, by what `connect` reaches."""
    return {feature.title: cell(feature, connect, direct) for feature in FEATURES}


def cell(feature, connect, direct):
    """How a feature works behind `connect(user, **parameters)`, compared with `direct`."""
    with direct(feature.user, **feature.login) as alone:
        truth = [_answer(alone, step) for step in feature.steps]
    with direct(feature.user) as alone:
        unseen = [m for m in _answer(alone, feature.probe) if m[0] in "DE"]
    try:
        client = connect(feature.user, **feature.login)
    except wire.LoginRefused:
        return "no"
    equal, seen = True, False
    with client, connect(feature.user) as holder, connect(feature.user) as taker:
        _answer(holder, "BEGIN")
        for step, expected in zip(feature.steps, truth, strict=True):
            try:
                # Another client takes the server that was used last, so that the client gets the other server.
                equal &= _answer(client, step) == expected
                _answer(taker, "BEGIN")
                seen |= [m for m in _answer(taker, feature.probe) if m[0] in "DE"] != unseen
                _answer(holder, "ROLLBACK")
            except (wire.Closed, TimeoutError):
                return "no"
            holder, taker = taker, holder
    return "no, and others see it" if seen else "yes" if equal else "no"


def _answer(client, step):
    said = step if isinstance(step, bytes) else query(step)
    messages = client.send(said).until_ready()
    # The other client runs the probe in a transaction, so the status in ReadyForQuery is not compared.
    return replies.comparable([(m.kind, m.body) for m in messages], client.pid)
