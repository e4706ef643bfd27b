"""The statements of scripts: those that change session state, those that read it, and those that only resemble them."""

STATEMENTS = ("p1", "p2", "p3", '"P 4"')
CUSTOM = ("app.a", "app.b", "my.odd_name", "app.role_default")

# Settings and values that any session may set, then those for superusers and their members.
SETTINGS = {
    "search_path": ("{schema}, public", "lib, public", '"$user", public', "pg_catalog", "public, pg_temp",
                    '"We ird", public', "public", "''"),
    "DateStyle": ("ISO", "'German, DMY'", "'SQL, YMD'", "'Postgres, MDY'"),
    "TimeZone": ("UTC", "'Asia/Tokyo'", "'America/St_Johns'", "'+03:30'"),
    "IntervalStyle": ("postgres", "iso_8601", "sql_standard"),
    "application_name": ("'one'", "'it''s'", "''", "'two words'"),
    "client_encoding": ("UTF8", "LATIN1", "SQL_ASCII", "'WIN1252'"),
    "standard_conforming_strings": ("on",),
    "default_transaction_isolation": ("'repeatable read'", "serializable", "'read committed'"),
    "default_transaction_read_only": ("off", "on", "off"),
    "extra_float_digits": ("0", "1", "3", "-2"),
    "bytea_output": ("hex", "escape"),
    "work_mem": ("'64kB'", "'5MB'", "4096", "'1GB'"),
    "enable_seqscan": ("off", "on", "false", "1"),
    "statement_timeout": ("0", "20000", "'30s'"),
    "lock_timeout": ("0", "'21s'"),
    "client_min_messages": ("notice", "warning", "error"),
    "row_security": ("on", "off"),
    "array_nulls": ("on", "off"),
    "seq_page_cost": ("1.25", "1e-1", "3"),
    "xmlbinary": ("base64", "hex"),
    "plan_cache_mode": ("auto", "force_generic_plan"),
    "default_text_search_config": ("'simple'", "'pg_catalog.english'"),
    "check_function_bodies": ("on", "off"),
    "idle_in_transaction_session_timeout": ("0", "'60s'"),
    "transform_null_equals": ("on", "off"),
    "nonsense": ("1",), "app.": ("1",), "shared_buffers": ("1",),
}
SUPER_SETTINGS = {
    "session_replication_role": ("replica", "origin"),
    "lc_messages": ("'C'",), "deadlock_timeout": ("'2s'", "1500"), "log_min_duration_statement": ("-1", "100000"),
}
CUSTOM_VALUES = ("'x'", "'it''s'", "''", "'one'", "'two'", "'a=b;c'", r"E'back\\slash'", "'ünïcode'", "1", "on",
                 "'" + "long " * 300 + "'")

READ_SETTINGS = [name for name in [*SETTINGS, *SUPER_SETTINGS] if name not in ("nonsense", "app.", "shared_buffers")]


class Names:
    """The names of one client's objects: its schema, locks, channels, transactions."""

    def __init__(self, who, number):
        self.who, self.number = who, number
        self.schema = f"s{who}"
        self.channel = f"channel{who}"
        self._gids = 0

    def key(self, rng):
        return 1000 * self.who + rng.randint(1, 3)

    def gid(self):
        """The name of a prepared transaction; the runner replaces the @ by the side."""
        self._gids += 1
        return f"@-{self.who}-{self.number}-{self._gids}"


# -- reading


def read(rng, names):
    """A statement that shows some of the session's state."""
    return rng.choice(READERS)(rng, names)


def _some_settings(rng, names):
    chosen = rng.sample(READ_SETTINGS, 6)
    columns = [f"current_setting('{name}')" for name in chosen]
    columns += [f"nullif(current_setting('{name}', true), '')" for name in rng.sample(CUSTOM, 2)]
    return "SELECT " + ", ".join([*columns, "current_user", "session_user"])


def _show(rng, names):
    return "SHOW " + rng.choice([*READ_SETTINGS, "role", "session_authorization", "TRANSACTION ISOLATION LEVEL",
                                 "TIME ZONE", "geqo_threshold", "gin_fuzzy_search_limit"])


def read_everything(names):
    """Returns a statement that reads all session state that may be compared."""
    columns = [f"current_setting('{name}')" for name in READ_SETTINGS if name != "client_encoding"]
    columns += [f"nullif(current_setting('{name}', true), '')" for name in CUSTOM]
    columns += ["current_user", "session_user", "(SELECT string_agg(name, ',' ORDER BY name) FROM pg_catalog.pg_cursors)",
                "(SELECT string_agg(name, ',' ORDER BY name)"
                " FROM pg_catalog.pg_prepared_statements)",
                OWN_LOCKS, OWN_TEMP]
    return "SELECT " + ", ".join(columns)


OWN_LOCKS = ("(SELECT count(*) FROM pg_catalog.pg_locks WHERE locktype = 'advisory'"
              " AND pid = pg_catalog.pg_backend_pid())")
OWN_TEMP = ("(SELECT string_agg(relname, ',' ORDER BY relname) FROM pg_catalog.pg_class"
             " WHERE relnamespace = pg_catalog.pg_my_temp_schema() AND relkind <> 'i')")

READERS = (
    _some_settings, _some_settings, _some_settings, _show, _show,
    lambda rng, names: read_everything(names),
    lambda rng, names: "SELECT name, setting FROM pg_settings WHERE name IN"
                       " ('work_mem', 'search_path', 'TimeZone', 'enable_seqscan', 'geqo_threshold') ORDER BY 1",
    lambda rng, names: "SELECT name, from_sql FROM pg_prepared_statements ORDER BY 1",
    lambda rng, names: "SELECT name, statement, is_holdable FROM pg_cursors ORDER BY 1",
    lambda rng, names: f"SELECT {OWN_LOCKS}",
    lambda rng, names: f"SELECT {OWN_TEMP}",
    lambda rng, names: "SELECT now() IS NOT NULL, '1 day 02:03'::interval, '2020-02-03 04:05+00'::timestamptz",
    lambda rng, names: r"SELECT 0.1::float8 + 0.2, '\x6162'::bytea, E'\\x', length('\\')",
    lambda rng, names: f"SELECT * FROM {names.schema}.tenants ORDER BY 2",
    lambda rng, names: f"SELECT count(*) FROM {names.schema}.plain",
    lambda rng, names: "SELECT * FROM t1 ORDER BY 1",
    lambda rng, names: "SELECT current_schema(), current_user, current_role, user",
    lambda rng, names: f"SELECT currval('{names.schema}.seq')",
    lambda rng, names: "SELECT lastval()",
    lambda rng, names: "SELECT 'ünïcode' AS \"ï\", length('ünï')",
)


# -- changing


def statement(rng, names, moves=False):
    """A random statement. With `moves`, it does not keep the client on its server, and more often prepares a statement."""
    drawn = rng.random()
    if moves and drawn >= 0.35:
        return rng.choice(MOVERS)(rng, names)
    if drawn < 0.25:
        return setting(rng, names)
    if drawn < 0.35:
        return read(rng, names)
    return rng.choice(CHANGERS)(rng, names)


def setting(rng, names):
    """A SET, RESET or set_config of some parameter."""
    table = SETTINGS | (SUPER_SETTINGS if rng.random() < 0.5 else {})
    if rng.random() < 0.3:
        name = rng.choice(CUSTOM)
        # Without the extension, a parameter with a default of the role that was set to an empty string looks like one
        # that was reset.
        value = rng.choice([value for value in CUSTOM_VALUES if value != "''" or name != "app.role_default"])
    else:
        name = rng.choice(list(table))
        value = rng.choice(table[name]).format(schema=names.schema)
    form = rng.random()
    if form < 0.45:
        return f"SET {name} = {value}"
    if form < 0.55:
        return f"SET LOCAL {name} TO {value}"
    if form < 0.60:
        return f"SET {rng.choice(('SESSION', 'SESSION', 'LOCAL'))} {name} TO DEFAULT"
    if form < 0.70:
        return f"RESET {name}"
    quoted = value if value.startswith(("'", "E'")) else "'" + value.replace("'", "''") + "'"
    local = rng.choice(("false", "false", "false", "true", "1 = 2"))
    return f"SELECT set_config('{name}', {quoted}, {local})"


def _role(rng, names):
    return rng.choice((
        "SET ROLE diff_one", "SET ROLE diff_two", 'SET ROLE "Diff Odd"', "SET ROLE NONE", "RESET ROLE",
        "SET LOCAL ROLE diff_two", "SET ROLE diff_boss", "SET LOCAL ROLE diff_boss", "SELECT set_config('role', 'diff_one', false)", "SET ROLE postgres",
        "SET SESSION AUTHORIZATION diff", "SET SESSION AUTHORIZATION DEFAULT", "RESET SESSION AUTHORIZATION",
        "SET SESSION AUTHORIZATION diff_one", "SET LOCAL SESSION AUTHORIZATION diff"))


def _privileged(rng, names):
    """A superuser's setting, kept under a lower role."""
    name = rng.choice(list(SUPER_SETTINGS))
    change = rng.choice((f"SET {name} = {rng.choice(SUPER_SETTINGS[name])}", f"RESET {name}"))
    return rng.choice((
        f"SET ROLE diff_boss; {change}; RESET ROLE", f"SET ROLE diff_boss; {change}; SET ROLE diff_one", change,
        f"BEGIN; SET LOCAL ROLE diff_boss; {change}; COMMIT", "SELECT lib.raised()", "SET ROLE diff_boss", f"SHOW {name}"))


def _special_set(rng, names):
    return rng.choice((
        "SET TIME ZONE 'Europe/Paris'", "SET TIME ZONE LOCAL", "SET TIME ZONE INTERVAL '-08:00' HOUR TO MINUTE",
        "SET NAMES 'LATIN1'", "SET NAMES DEFAULT", "SET SCHEMA 'lib'",
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ WRITE",
        "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE", "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        "SET XML OPTION DOCUMENT", "SET CONSTRAINTS ALL DEFERRED", "SET search_path FROM CURRENT"))


def _discard(rng, names):
    return rng.choice(("DISCARD ALL", "DISCARD TEMP", "DISCARD SEQUENCES", "DISCARD PLANS", "RESET ALL", "RESET ALL",
                       "DISCARD ALL", "DEALLOCATE ALL", "CLOSE ALL", "UNLISTEN *", "SELECT pg_advisory_unlock_all()"))


def _function(rng, names):
    word = rng.choice(("hid", "den", ""))
    return rng.choice((
        f"SELECT lib.hidden('{word}')", f"SELECT lib.deeper('{word}')", "SELECT lib.dynamic('99MB')",
        "SELECT lib.clean(1)", "SELECT lib.with_clause()", "SELECT lib.clause_and_set()", "SELECT lib.local_set()",
        "SELECT lib.set_then_fail()", "SELECT lib.set_and_catch()", "SELECT lib.make_temp()",
        f"SELECT lib.take_lock({names.key(rng)})", f"SELECT lib.drop_lock({names.key(rng)})",
        f"SELECT lib.hear('{names.channel}')", f"SELECT lib.say('{names.channel}', 'hidden')",
        "SELECT lib.raised()", "SELECT lib.clean(3)"))


def _procedure(rng, names):
    word = rng.choice(("c1", "c2"))
    return rng.choice((f"CALL lib.commits('{word}')", f"CALL lib.commits_then_fails('{word}')",
                       f"CALL lib.rolls_back('{word}')", f"CALL lib.commits('{word}')"))


def _do(rng, names):
    body = rng.choice((
        "PERFORM set_config('app.a', 'do', false)", "SET work_mem = '85MB'", "EXECUTE 'SET DateStyle = ISO'",
        "PERFORM 1", "CREATE TEMP TABLE t1 (n int); INSERT INTO t1 VALUES (5)", "EXECUTE 'DISCARD TEMP'",
        f"PERFORM pg_advisory_lock({names.key(rng)})", "PERFORM set_config('app.b', 'do', true)",
        f"EXECUTE 'LISTEN {names.channel}'", "SET ROLE diff_one",
        "SET LOCAL work_mem = '1MB'; COMMIT; SET work_mem = '86MB'", "RAISE NOTICE 'said'"))
    return f"DO $x$ BEGIN {body}; END $x$"


def _hostile(rng, names):
    s, word = names.schema, rng.choice(("h1", "h2"))
    return rng.choice((
        f"/* SELECT 1 */ SET/**/app.a='{word}'", f"SELECT set_config /*x*/ ('app.a', '{word}', false)",
        f"SELECT set_config\n(\n'app.a', '{word}', false)", f"SELECT pg_catalog . \"set_config\"('app.a','{word}',false)",
        f"SELECT U&\"set\\005fconfig\"('app.a', '{word}', false)", f"-- SELECT\nSET app.a = '{word}'",
        f"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF) SELECT set_config('app.a', '{word}', false)",
        f"EXPLAIN (COSTS OFF) SELECT set_config('app.a', '{word}', false)",
        f"WITH x AS (SELECT set_config('app.a', '{word}', false)) SELECT * FROM x",
        "UPDATE pg_settings SET setting = '87MB' WHERE name = 'work_mem'",
        "SELECT * FROM lib.sets", "SELECT * FROM lib.sets_twice", "TABLE lib.sets",
        f"INSERT INTO {s}.trig VALUES ({rng.randint(1, 9)})", "SELECT 1 OPERATOR(lib.###) 2",
        f"COPY (SELECT set_config('app.a', '{word}', false)) TO STDOUT", f"SELECT '{word}'::lib.word",
        f"INSERT INTO {s}.typed VALUES ('{word}')", f"INSERT INTO {s}.defaulted VALUES (1)",
        f"INSERT INTO {s}.ruled VALUES (1)", f"SELECT count(*) FROM {s}.guarded", "SELECT 5::lib.wrapped",
        f"SELECT CAST({rng.randint(1, 9)} AS lib.wrapped)", "SELECT lib.total(n) FROM generate_series(1, 3) n",
        f"VALUES (set_config('app.b', '{word}', false))", f"SELECT 'set_config(app.a, {word})'",
        f"SELECT query_to_xml('select set_config(''app.a'', ''{word}'', false)', false, false, '') IS NOT NULL",
        f"SELECT 1 AS \"set_config\" WHERE lib.hidden('{word}') = ''",
        f"CREATE TEMP TABLE t2 AS SELECT set_config('app.b', '{word}', false)",
        "SELECT $$ SET app.a = 1 $$", "SELECT $a$ ; DISCARD ALL; $a$", "SELECT 'it''s; SET app.a = 1'",
        r"SELECT 'back\'; SET app.a = 1 --'", ";", "", ";; SELECT 1;;", "SELECT 1 /* /* nested */ SET app.a=1 */",
        f"SELECT E'\\'', set_config('app.a', '{word}', false)", "SELECT (((1", "SELEKT", "SELECT 'open"))


def _reached(rng, names):
    """A statement that runs code which the text does not name."""
    s, n, word = names.schema, rng.randint(1, 9), rng.choice(("r1", "r2"))
    return rng.choice(REACHED).format(s=s, n=n, word=word)


REACHED = (
    'SELECT lib."odd name"()', "SELECT lib.long_" + "n" * 70 + "()", "SELECT ({n}::lib.wrapped).of_row",
    "SELECT x.of_row FROM (SELECT {n}::lib.wrapped) AS y (x)", "SELECT lib.atomic()", "SELECT {n} LIKE '{word}'::text",
    "SELECT {n} IN ('{word}'::text)", "SELECT CASE {n} WHEN '{word}'::text THEN 'yes' END", "SELECT NULLIF({n}, '{word}'::text)",
    "SELECT {n} IS DISTINCT FROM '{word}'::text", "SELECT {n} = ANY (ARRAY['{word}'::text])",
    "SELECT g FROM generate_series(1, {n}) g WHERE NOT (g OPERATOR(lib.===) {n})",
    "SELECT g FROM generate_series(1, 3) g ORDER BY g USING OPERATOR(lib.<<<)", "SELECT lib.last_total(g) FROM generate_series(1, {n}) g",
    "SELECT lib.last_total(g) OVER (ORDER BY g) FROM generate_series(1, 3) g", "SELECT '{{{word}}}'::lib.word[]",
    "SELECT '({word},{n})'::lib.pair", "SELECT json_populate_record(NULL::lib.pair, '{{\"w\": \"{word}\"}}')",
    "SELECT * FROM json_to_record('{{\"w\": \"{word}\"}}') AS t (w lib.word)", "SELECT ROW('{word}', {n})::lib.pair",
    "INSERT INTO {s}.given (n) VALUES ({n})", "INSERT INTO {s}.parted VALUES ({n})", "INSERT INTO {s}.child VALUES ({n})",
    "UPDATE {s}.parent SET n = {n}", "INSERT INTO {s}.keys VALUES ({n}); INSERT INTO {s}.refs VALUES ({n})",
    "DELETE FROM {s}.keys", "TRUNCATE {s}.keys CASCADE", "INSERT INTO {s}.generated VALUES ({n})",
    "INSERT INTO {s}.deferred VALUES ({n})", "SELECT {s}.later({n})", "SELECT {s}.made_function({n})",
    "SELECT 1 FROM {s}.plain JOIN {s}.trig ON word OPERATOR(pg_catalog.<>) set_config('app.b', '{word}', false)",
    "SELECT 1 AS a$b$, set_config($$app.a$$, '{word}', false), 2 AS c$b$",
    "SELECT E'a'\n'\\'', set_config($$app.b$$, $${word}$$, false) --'",
    "SELECT 1 -- it's\r, set_config('app.a', '{word}', false)",
    "SELECT set_config('app.' || 'b', '{word}', false)", "SELECT query_to_xml('SELECT lib.hidden(''{word}'')', true, true, '') IS NULL",
    "SELECT ts_stat('SELECT lib.hidden(''{word}'')::tsvector')",
)


def later(names):
    """DDL that is committed by COMMIT PREPARED."""
    return (f"CREATE OR REPLACE FUNCTION {names.schema}.later(int) RETURNS text LANGUAGE sql AS"
            " $$ SELECT set_config('app.a', 'later ' || $1, false) $$")


def _made(rng, names):
    """Returns statements that call a function without naming it, in objects that the client creates and uses."""
    s, word = names.schema, rng.choice(("m1", "m2"))
    return rng.choice(MADE + USES).format(s=s, word=word, n=rng.randint(1, 9))


MADE = (
    "CREATE DOMAIN {s}.made_domain AS text CHECK (lib.check_word(VALUE))", "DROP DOMAIN {s}.made_domain",
    "CREATE OPERATOR {s}.=== (LEFTARG = int, RIGHTARG = int, FUNCTION = lib.op)", "DROP OPERATOR {s}.=== (int, int)",
    "CREATE TYPE {s}.made_type AS (v int); CREATE FUNCTION {s}.made_cast(int) RETURNS {s}.made_type LANGUAGE sql AS"
    " $$ SELECT ROW(length(lib.hidden('cast ' || $1)))::{s}.made_type $$;"
    " CREATE CAST (int AS {s}.made_type) WITH FUNCTION {s}.made_cast(int)", "DROP TYPE {s}.made_type CASCADE",
    "CREATE TABLE {s}.made (n int, word text DEFAULT 'made')", "CREATE TABLE {s}.made (n int, word text DEFAULT 'made')",
    "CREATE INDEX ON {s}.made (lib.indexed(n))", "DROP TABLE {s}.made",
    "CREATE SCHEMA {s}_made CREATE VIEW look AS SELECT lib.hidden('schema') AS v", "DROP SCHEMA {s}_made CASCADE",
    "CREATE TRIGGER made BEFORE INSERT ON {s}.made FOR EACH ROW EXECUTE FUNCTION lib.on_insert()",
    "DROP TRIGGER made ON {s}.made", "ALTER TABLE {s}.made ADD CHECK (lib.check_word(word))",
    "ALTER TABLE {s}.made ALTER word SET DEFAULT lib.hidden('made default')",
    "CREATE OR REPLACE FUNCTION {s}.made_function(int) RETURNS int LANGUAGE sql AS 'SELECT $1 + 1'",
    "CREATE OR REPLACE FUNCTION {s}.made_function(int) RETURNS int LANGUAGE plpgsql AS"
    " $$ BEGIN PERFORM set_config('app.b', 'made ' || $1, false); RETURN $1; END $$")
USES = (
    "SELECT '{word}'::{s}.made_domain", "SELECT 1 OPERATOR({s}.===) {n}", "SELECT {n}::{s}.made_type",
    "SELECT CAST({n} AS {s}.made_type)", "INSERT INTO {s}.made VALUES ({n})", "INSERT INTO {s}.made VALUES ({n})",
    "SELECT * FROM {s}_made.look", "SELECT v FROM {s}_made.look")


def _prepare(rng, names):
    name = rng.choice(STATEMENTS)
    return rng.choice((
        f"PREPARE {name} AS {preparable(rng, names)}", f"PREPARE {name} AS {preparable(rng, names)}",
        f"EXECUTE {name}", f"EXECUTE {name}", f"EXECUTE {name}", f"DEALLOCATE {name}", f"DEALLOCATE PREPARE {name}",
        f"PREPARE {name} (int) AS SELECT $1 + {names.who}", f"EXECUTE {name}({names.who})",
        f"EXPLAIN (COSTS OFF) EXECUTE {name}", f"CREATE TEMP TABLE t3 AS EXECUTE {name}"))


def preparable(rng, names):
    """A statement that PREPARE accepts."""
    return rng.choice((
        f"SELECT 'client {names.who}' AS w, {rng.randint(1, 5)} AS n", "SELECT current_setting('work_mem')",
        f"SELECT word FROM {names.schema}.plain LIMIT 1", f"INSERT INTO {names.schema}.plain VALUES (3) RETURNING id",
        f"SELECT set_config('app.a', 'prepared {rng.randint(1, 5)}', false)", "SELECT nullif(current_setting('app.a', true), '')",
        "SELECT current_schema()", "SELECT current_user", f"SELECT n FROM {names.schema}.made ORDER BY n LIMIT 1",
        f"SELECT v FROM {names.schema}_made.look"))


def _listen(rng, names):
    channel = rng.choice((names.channel, names.channel, f'"{names.channel} Odd"'))
    literal = "'" + channel.strip('"') + "'"
    return rng.choice((
        f"LISTEN {channel}", f"LISTEN {channel}", f"UNLISTEN {channel}", "UNLISTEN *",
        f"NOTIFY {channel}, 'w{rng.randint(1, 9)}'", f"NOTIFY {channel}", f"SELECT pg_notify({literal}, 'x')"))


def _temp(rng, names):
    name = rng.choice(("t1", "t2", "pg_temp.t1"))
    commit = rng.choice(("", "", " ON COMMIT PRESERVE ROWS", " ON COMMIT DELETE ROWS", " ON COMMIT DROP"))
    return rng.choice((
        f"CREATE TEMP TABLE {name} (n int){commit}", f"CREATE TEMPORARY TABLE {name} (n int PRIMARY KEY){commit}",
        f"CREATE LOCAL TEMP TABLE {name} (n int){commit}",
        f"INSERT INTO {name} VALUES ({names.who})", f"SELECT * FROM {name}", f"DROP TABLE {name}", f"DROP TABLE {name}",
        f"DROP TABLE IF EXISTS {name}", f"SELECT {names.who} AS n INTO TEMP {name}",
        f"CREATE TEMP TABLE {name}{commit} AS SELECT {names.who} AS n", f"CREATE TEMP VIEW v1 AS SELECT {names.who} AS n",
        "SELECT * FROM v1", "DROP VIEW v1", "CREATE TEMP SEQUENCE q1", "SELECT nextval('q1')", "DROP SEQUENCE q1",
        f"CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS 'SELECT {names.who}'", "SELECT pg_temp.f()",
        "DROP FUNCTION pg_temp.f()", "CREATE TYPE pg_temp.ty AS (a int)", "DROP TYPE pg_temp.ty",
        f"CREATE TABLE pg_temp.t4 AS SELECT {names.who} AS n", "DROP TABLE pg_temp.t4", "TRUNCATE t1",
        "ALTER TABLE t1 ADD COLUMN m int", "DISCARD TEMP", "CREATE UNLOGGED TABLE pg_temp.t5 (n int)"))


def _cursor(rng, names):
    name = rng.choice(("c1", "c2"))
    return rng.choice((
        f"DECLARE {name} CURSOR WITH HOLD FOR SELECT g FROM generate_series(1, 5) g",
        f"DECLARE {name} SCROLL CURSOR WITH HOLD FOR SELECT {names.who}",
        f"DECLARE {name} CURSOR FOR SELECT g FROM generate_series(1, 5) g", f"FETCH 2 FROM {name}",
        f"FETCH ALL {name}", f"MOVE 1 IN {name}", f"CLOSE {name}", f"CLOSE {name}", "CLOSE ALL"))


def _lock(rng, names):
    key = names.key(rng)
    return rng.choice((
        f"SELECT pg_advisory_lock({key})", f"SELECT pg_try_advisory_lock({key})", f"SELECT pg_advisory_unlock({key})",
        f"SELECT pg_advisory_unlock({key})", f"SELECT pg_advisory_lock_shared({key}, 1)",
        f"SELECT pg_advisory_unlock_shared({key}, 1)", f"SELECT pg_advisory_xact_lock({key})",
        f"SELECT pg_try_advisory_xact_lock({key})", "SELECT pg_advisory_unlock_all()"))


def _sequence(rng, names):
    s = names.schema
    return rng.choice((
        f"SELECT nextval('{s}.seq')", f"SELECT currval('{s}.seq')", "SELECT lastval()", f"SELECT setval('{s}.seq', 40)",
        f"INSERT INTO {s}.tab (word) VALUES ('w') RETURNING id", f"SELECT currval('{s}.tab_id_seq')",
        f"INSERT INTO {s}.tab (word) VALUES ('w')", f"SELECT currval(pg_get_serial_sequence('{s}.tab', 'id'))",
        "DISCARD SEQUENCES"))


def _ordinary(rng, names):
    s = names.schema
    return rng.choice((
        "SELECT 1", f"INSERT INTO {s}.plain VALUES (1, 'w')", f"UPDATE {s}.plain SET word = 'v'",
        f"DELETE FROM {s}.plain", f"SELECT * FROM {s}.counted", "SELECT 1/0", "SELECT count(*) FROM pg_class WHERE false",
        f"LOCK TABLE {s}.plain IN ROW SHARE MODE", "VALUES (1), (2)", "SELECT relname FROM pg_class WHERE relname = 'pg_class'",
        f"EXPLAIN (COSTS OFF) SELECT * FROM {s}.plain", f"VACUUM {s}.tenants", "CHECKPOINT", "SHOW nonsense",
        "COPY (VALUES (1)) TO STDOUT", "SELECT generate_series(1, 3)", "BEGIN", "COMMIT"))


CHANGERS = (
    _role, _privileged, _special_set, _discard, _function, _procedure, _do, _hostile, _hostile, _prepare, _prepare, _listen, _temp,
    _temp, _cursor, _lock, _sequence, _ordinary, _ordinary, _made, _reached, _reached,
)

# No kinds with temporary objects, cursors or locks, which keep a client on its server.
MOVERS = (_role, _privileged, _special_set, _discard, _procedure, _hostile, _listen, _ordinary, _made, _reached,
          *(_prepare,) * 8)
