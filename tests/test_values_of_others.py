"""The result of a client's statement does not depend on settings or roles of other clients of the same server.

One client sets something and runs a statement; the next client on the same server runs the same statement, and gets the
result of a direct session. Plans, PL/pgSQL's bodies and answers to Parse are shared, but not the
values that PostgreSQL has computed in them for one client.
"""

import pytest

import cluster as clusters
import rawclient as wire
from leaks import stage as stages
from rawclient import SYNC, bind, execute, parse

pytestmark = pytest.mark.pgweir_only("it shares prepared statements between clients that set something")

SETUP = r"""
SET check_function_bodies = off;
CREATE SCHEMA closed; GRANT USAGE ON SCHEMA closed TO trusty, insider; CREATE TABLE closed.t (a int);
CREATE SCHEMA inside; GRANT USAGE ON SCHEMA inside TO insider; CREATE TABLE inside.t (a int);
GRANT SELECT ON closed.t, inside.t TO PUBLIC;
CREATE SCHEMA insider; GRANT USAGE ON SCHEMA insider TO insider; CREATE TABLE insider.own AS SELECT 'x'::text AS a;
CREATE SCHEMA leak_role; GRANT USAGE ON SCHEMA leak_role TO leak_role; CREATE TABLE leak_role.own AS SELECT 1 AS a, 2 AS b;
GRANT SELECT ON insider.own, leak_role.own TO PUBLIC;
CREATE TABLE secret (a int); REVOKE ALL ON secret FROM PUBLIC; GRANT SELECT ON secret TO trusty;
CREATE TABLE owned (t text); INSERT INTO owned VALUES ('a'), ('b'); ALTER TABLE owned ENABLE ROW LEVEL SECURITY;
CREATE POLICY p ON owned USING (t = current_setting('app.tenant', true));
CREATE VIEW seen AS SELECT current_setting('app.tenant', true) AS t;

CREATE FUNCTION by_sql() RETURNS text IMMUTABLE LANGUAGE sql AS $$ SELECT current_setting('app.tenant', true) $$;
CREATE FUNCTION by_plpgsql() RETURNS text IMMUTABLE LANGUAGE plpgsql AS
  $$ BEGIN RETURN current_setting('app.tenant', true); END $$;
CREATE FUNCTION by_tree() RETURNS text IMMUTABLE LANGUAGE sql RETURN current_setting('app.tenant', true);
CREATE FUNCTION by_table() RETURNS text IMMUTABLE LANGUAGE plpgsql AS
  $$ BEGIN RETURN (SELECT string_agg(t, ',') FROM owned); END $$;
CREATE FUNCTION by_view() RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RETURN (SELECT t FROM seen); END $$;
CREATE FUNCTION stable() RETURNS text STABLE LANGUAGE plpgsql AS
  $$ BEGIN RETURN current_setting('app.tenant', true); END $$;
CREATE FUNCTION by_stable() RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RETURN stable(); END $$;
CREATE FUNCTION in_body() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN by_plpgsql(); END $$;
CREATE FUNCTION in_sql() RETURNS text LANGUAGE sql AS $$ SELECT by_plpgsql() $$;
CREATE FUNCTION who() RETURNS text IMMUTABLE LANGUAGE sql AS $$ SELECT current_user::text $$;
CREATE FUNCTION who_in_body() RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RETURN CURRENT_ROLE; END $$;
CREATE FUNCTION who_in_tree() RETURNS text IMMUTABLE LANGUAGE sql RETURN session_user || current_user;
CREATE FUNCTION may() RETURNS text IMMUTABLE LANGUAGE plpgsql AS
  $$ BEGIN RETURN has_table_privilege('secret', 'SELECT')::text; END $$;

CREATE FUNCTION point() RETURNS text LANGUAGE plpgsql AS
  $$ BEGIN RETURN extract(epoch FROM timestamptz '2020-06-01 00:00')::text; END $$;
CREATE FUNCTION in_tokyo() RETURNS text LANGUAGE plpgsql SET TimeZone = 'Asia/Tokyo' AS $$ BEGIN RETURN point(); END $$;
CREATE FUNCTION backslashes() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN length('a\\b')::text; END $$;
CREATE FUNCTION and_others() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN length('a\\b')::text; END $$;
"""
TENANTS = ("SET app.tenant = 'a'", "SET app.tenant = 'b'")
LOCAL = tuple(f"BEGIN; {text.replace('SET', 'SET LOCAL')}" for text in TENANTS)
NOTHING = "SELECT 1"
# words: what one client says first, what the other says first, and what both say then
CASES = {
    **{name: (*TENANTS, f"SELECT {name}()") for name in (
        "by_sql", "by_plpgsql", "by_tree", "by_table", "by_view", "by_stable", "in_body", "in_sql")},
    "by_sql, SET LOCAL": (*LOCAL, "SELECT by_sql()"),
    "in_body, SET LOCAL": (*LOCAL, "SELECT in_body()"),
    **{name: ("SET ROLE insider", NOTHING, f"SELECT {name}()") for name in ("who", "who_in_body", "who_in_tree", "may")},
    "quote_ident": ("SET quote_all_identifiers = on", NOTHING, "SELECT quote_ident('a')"),
    "a SET clause of the caller": ("SELECT in_tokyo()", NOTHING, "SELECT point()"),
    "a SET clause in DO": ("DO $$ BEGIN SET LOCAL TimeZone = 'Asia/Tokyo'; PERFORM point(); END $$", NOTHING, "SELECT point()"),
    "a SET clause in EXECUTE": ("DO $$ BEGIN EXECUTE 'SET LOCAL Time' || 'Zone = 5'; PERFORM point(); END $$", NOTHING, "SELECT point()"),
    "a body under standard_conforming_strings": ("SET standard_conforming_strings = off", NOTHING, "SELECT backslashes()"),
    "a body under it, for a transaction": ("BEGIN; SET LOCAL standard_conforming_strings = off", NOTHING,
                                           "SELECT and_others()"),
    # The privilege to use a schema is checked when a statement is analysed, and never again.
    "a role without a privilege": (NOTHING, "SET ROLE leak_role", "SELECT count(*) FROM closed.t"),
    "SET LOCAL ROLE without a privilege": (NOTHING, "BEGIN; SET LOCAL ROLE leak_role", "SELECT count(*) FROM closed.t"),
    "set_config of such a role": (NOTHING, "BEGIN; SELECT set_config('role', 'leak_role', true)",
                                  "SELECT count(*) FROM closed.t"),
    "a role with a privilege": ("SET ROLE insider", NOTHING, "SELECT count(*) FROM inside.t"),
    "SET LOCAL ROLE with a privilege": ("BEGIN; SET LOCAL ROLE insider", NOTHING, "SELECT count(*) FROM inside.t"),
}


@pytest.fixture(params=clusters.VERSIONS)
def cluster(request, shared_clusters):
    return shared_clusters(request.param)


@pytest.fixture
def database(cluster):
    cluster.run(stages.ROLES)
    # The login is a member that does not inherit: otherwise it has all rights of the role.
    grant = "GRANT insider TO trusty WITH INHERIT FALSE" if cluster.version >= 16 else (
        "GRANT insider TO trusty; ALTER ROLE trusty NOINHERIT")
    cluster.run(f"CREATE ROLE insider; {grant}")
    stages.make_database(cluster, "values_of_others", [SETUP])
    yield "values_of_others"
    cluster.run("DROP DATABASE values_of_others WITH (FORCE)")
    cluster.run("DROP ROLE insider; ALTER ROLE trusty INHERIT")


def seen(client, before, text, prepares):
    """Runs a text often enough for a generic plan, and returns the answer."""
    client.query(before)
    if prepares:
        answer = client.send(parse(text, "s") + SYNC).until_ready()
        for _ in range(0 if wire.errors(answer) else 7):
            answer = client.send(bind(name="s") + execute() + SYNC).until_ready()
    else:
        for _ in range(3):
            answer = client.query(text)
    client.query("ROLLBACK")
    return wire.errors(answer) or wire.rows(answer)


@pytest.mark.parametrize("prepares", [True, False], ids=["prepared", "simple"])
def test_values_of_another_client_are_never_seen(cluster, database, start_pooler, prepares):
    weir = start_pooler(cluster, databases={database: f"host={cluster.host} port={cluster.port} dbname={database}"},
                        default_pool_size=1, workers=1, query_wait_timeout=3)
    for _ in range(2):  # its catalog is read
        weir.raw(stages.USER, database).query("SELECT 1")
    wrong = []
    for words, (before, then, text) in CASES.items():
        with wire.RawClient.tcp(cluster.host, cluster.port).login(stages.USER, database) as direct:
            expected = seen(direct, then, text, prepares)
        with weir.raw(stages.USER, database) as one, weir.raw(stages.USER, database) as other:
            first = seen(one, before, text, prepares)
            found = seen(other, then, text, prepares)
        if first == expected and not words.startswith("a SET clause"):
            wrong.append(f"{words}: both get {first} directly, too")
        if found != expected:
            wrong.append(f"{words}: {found} behind {first}, directly {expected}")
    assert not wrong, "\n".join(wrong)


# How a client gets a role.
ROLE_CASES = {
    "SET ROLE": "SET ROLE {}",
    "set_config": "SELECT set_config('role', '{}', false)",
    # PostgreSQL skips the schemas that the role may not use.
    "schemas that only one role may use": "SET search_path = insider, leak_role; SET ROLE {}",
}


def test_a_name_that_means_another_table_for_each_role(cluster, database, start_pooler):
    """PostgreSQL looks names up anew under another role, but a prepared statement may not get other columns."""
    weir = start_pooler(cluster, databases={database: f"host={cluster.host} port={cluster.port} dbname={database}"},
                        default_pool_size=1, workers=1, query_wait_timeout=3)
    roles = (("insider", ("x",)), ("leak_role", ("1", "2")))
    wrong = []
    for words, text in ROLE_CASES.items():
        with weir.raw(stages.USER, database) as one, weir.raw(stages.USER, database) as other:
            for client, (role, _) in zip((one, other), roles):
                client.query(text.format(role))
            made = parse("SELECT * FROM own", "s")
            for turn in range(3):
                for client, (role, row) in zip((one, other), roles):
                    heard = client.send(made + bind(name="s") + execute() + SYNC).until_ready()
                    if (wire.rows(heard), wire.errors(heard)) != ([row], []):
                        wrong.append(f"{words}, turn {turn}, {role}: {wire.errors(heard) or wire.rows(heard)}")
                made = b""
    assert not wrong, "\n".join(wrong)
