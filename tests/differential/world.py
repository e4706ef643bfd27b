"""The objects in the database that the scripts use. The direct database and the pooled one differ only in their names.
"""

import contextlib

import psycopg

import machine

ROLES = ("diff", "diff_super")
TRUTH, POOLED = "diff_truth", "diff_pooled"
# Another entry of [databases] for the same database.
ALIAS = "diff_alias"

SETUP = r"""
CREATE SCHEMA lib;
GRANT ALL ON SCHEMA lib, public TO PUBLIC;
CREATE FUNCTION lib.hidden(v text) RETURNS text LANGUAGE plpgsql AS
  $$ BEGIN PERFORM set_config('app.a', v, false); RETURN v; END $$;
CREATE FUNCTION lib.deeper(v text) RETURNS text LANGUAGE sql AS $$ SELECT lib.hidden(v || '+') $$;
CREATE FUNCTION lib.dynamic(v text) RETURNS text LANGUAGE plpgsql AS
  $$ BEGIN EXECUTE 'SE' || 'T work_mem = ' || quote_literal(v); RETURN current_setting('work_mem'); END $$;
CREATE FUNCTION lib.clean(v int) RETURNS int LANGUAGE sql IMMUTABLE AS $$ SELECT v + 1 $$;
CREATE FUNCTION lib.with_clause() RETURNS text LANGUAGE plpgsql SET work_mem = '77MB' AS
  $$ BEGIN RETURN current_setting('work_mem'); END $$;
CREATE FUNCTION lib.clause_and_set() RETURNS text LANGUAGE plpgsql SET work_mem = '78MB' AS
  $$ BEGIN SET work_mem = '79MB'; RETURN current_setting('work_mem'); END $$;
CREATE FUNCTION lib.local_set() RETURNS text LANGUAGE plpgsql AS
  $$ BEGIN SET LOCAL work_mem = '80MB'; RETURN current_setting('work_mem'); END $$;
CREATE FUNCTION lib.set_then_fail() RETURNS text LANGUAGE plpgsql AS
  $$ BEGIN SET work_mem = '81MB'; RAISE EXCEPTION 'on purpose'; END $$;
CREATE FUNCTION lib.set_and_catch() RETURNS text LANGUAGE plpgsql AS
  $$ BEGIN
       SET work_mem = '82MB';
       BEGIN SET work_mem = '83MB'; RAISE EXCEPTION 'caught'; EXCEPTION WHEN OTHERS THEN NULL; END;
       RETURN current_setting('work_mem');
     END $$;
CREATE FUNCTION lib.raised() RETURNS text LANGUAGE plpgsql SECURITY DEFINER AS
  $$ BEGIN SET deadlock_timeout = '3s'; RETURN current_user; END $$;
CREATE FUNCTION lib.make_temp() RETURNS int LANGUAGE plpgsql AS
  $$ BEGIN EXECUTE 'CREATE TE' || 'MP TABLE t1 (n int)'; INSERT INTO t1 VALUES (42); RETURN 1; END $$;
CREATE FUNCTION lib.take_lock(k int) RETURNS bool LANGUAGE plpgsql AS
  $$ BEGIN RETURN pg_try_advisory_lock(k); END $$;
CREATE FUNCTION lib.drop_lock(k int) RETURNS bool LANGUAGE plpgsql AS
  $$ BEGIN RETURN pg_advisory_unlock(k); END $$;
CREATE FUNCTION lib.hear(channel text) RETURNS text LANGUAGE plpgsql AS
  $$ BEGIN EXECUTE 'LISTEN ' || quote_ident(channel); RETURN channel; END $$;
CREATE FUNCTION lib.say(channel text, word text) RETURNS text LANGUAGE plpgsql AS
  $$ BEGIN PERFORM pg_notify(channel, word); RETURN word; END $$;
CREATE FUNCTION lib.prepares(v int) RETURNS int LANGUAGE plpgsql AS
  $$ BEGIN EXECUTE 'PREP' || 'ARE p1 AS SELECT ' || v || ' AS hidden'; RETURN v; END $$;
CREATE PROCEDURE lib.commits(v text) LANGUAGE plpgsql AS
  $$ BEGIN PERFORM set_config('app.a', v, false); COMMIT; PERFORM set_config('app.b', v, false); END $$;
CREATE PROCEDURE lib.commits_then_fails(v text) LANGUAGE plpgsql AS
  $$ BEGIN PERFORM set_config('app.a', v, false); COMMIT; SET work_mem = '84MB'; PERFORM 1/0; END $$;
CREATE PROCEDURE lib.rolls_back(v text) LANGUAGE plpgsql AS
  $$ BEGIN PERFORM set_config('app.a', v, false); ROLLBACK; PERFORM set_config('app.b', v, false); END $$;
CREATE VIEW lib.sets AS SELECT set_config('app.a', 'by a view', false) AS v;
CREATE VIEW lib.sets_twice AS SELECT v || v AS v FROM lib.sets;
CREATE FUNCTION lib.op(a int, b int) RETURNS text LANGUAGE sql AS $$ SELECT lib.hidden(a || ' op ' || b) $$;
CREATE OPERATOR lib.### (LEFTARG = int, RIGHTARG = int, FUNCTION = lib.op);
CREATE FUNCTION lib.check_word(v text) RETURNS bool LANGUAGE plpgsql AS
  $$ BEGIN PERFORM set_config('app.b', 'checked ' || v, false); RETURN true; END $$;
CREATE DOMAIN lib.word AS text CHECK (lib.check_word(VALUE));
CREATE TYPE lib.wrapped AS (v int);
CREATE FUNCTION lib.wrap(v int) RETURNS lib.wrapped LANGUAGE plpgsql AS
  $$ BEGIN PERFORM set_config('app.b', 'cast ' || v, false); RETURN ROW(v)::lib.wrapped; END $$;
CREATE CAST (int AS lib.wrapped) WITH FUNCTION lib.wrap(int);
CREATE FUNCTION lib.on_insert() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN PERFORM set_config('app.a', 'trigger ' || new.n, false); RETURN new; END $$;
CREATE FUNCTION lib.sfunc(a int, b int) RETURNS int LANGUAGE plpgsql AS
  $$ BEGIN PERFORM set_config('app.b', 'aggregate ' || b, false); RETURN a + b; END $$;
CREATE AGGREGATE lib.total(int) (SFUNC = lib.sfunc, STYPE = int, INITCOND = 0);
CREATE FUNCTION lib.indexed(v int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
  $$ BEGIN PERFORM set_config('app.b', 'index ' || v, false); RETURN v; END $$;
-- Code that no text names, and bodies that a reader of SQL may misread.
CREATE FUNCTION lib."odd name"() RETURNS text LANGUAGE plpgsql AS
  $$ BEGIN -- it's hidden
     RETURN lib.hidden('odd'); -- ' and again
     END $$;
CREATE FUNCTION lib.long_nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn() RETURNS text LANGUAGE sql AS
  $$ SELECT U&"\0073et_config"('app.a', 'a, true)', false) $$;
CREATE FUNCTION lib.of_row(lib.wrapped) RETURNS text LANGUAGE plpgsql AS
  $$ BEGIN RETURN set_config('app.' || 'b', 'row ' || $1.v, false); END $$;
CREATE FUNCTION lib.atomic() RETURNS text LANGUAGE sql BEGIN ATOMIC SELECT set_config('app.b', 'atomic', false); END;
CREATE FUNCTION lib.like_it(a int, b text) RETURNS bool LANGUAGE plpgsql AS
  $$ BEGIN PERFORM set_config('app.a', a || ' like ' || b, false); RETURN true; END $$;
CREATE OPERATOR lib.~~ (LEFTARG = int, RIGHTARG = text, FUNCTION = lib.like_it);
CREATE OPERATOR lib.= (LEFTARG = int, RIGHTARG = text, FUNCTION = lib.like_it);
CREATE FUNCTION lib.unlike(a int, b int) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN RETURN false; END $$;
CREATE FUNCTION lib.negated(a int, b int) RETURNS bool LANGUAGE plpgsql AS
  $$ BEGIN PERFORM set_config('app.b', 'negated ' || b, false); RETURN true; END $$;
CREATE OPERATOR lib.=== (LEFTARG = int, RIGHTARG = int, FUNCTION = lib.unlike, NEGATOR = OPERATOR(lib.!==));
CREATE OPERATOR lib.!== (LEFTARG = int, RIGHTARG = int, FUNCTION = lib.negated, NEGATOR = OPERATOR(lib.===));
CREATE FUNCTION lib.compared(a int, b int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
  $$ BEGIN PERFORM set_config('app.b', 'compared', false); RETURN btint4cmp(a, b); END $$;
CREATE OPERATOR lib.<<< (LEFTARG = int, RIGHTARG = int, FUNCTION = int4lt);
CREATE OPERATOR CLASS lib.ints FOR TYPE int USING btree AS OPERATOR 1 lib.<<<, OPERATOR 3 =,
  FUNCTION 1 lib.compared(int, int);
CREATE FUNCTION lib.final(a int) RETURNS int LANGUAGE plpgsql AS
  $$ BEGIN PERFORM set_config('app.a', 'final ' || a, false); RETURN a; END $$;
CREATE AGGREGATE lib.last_total(int) (SFUNC = int4pl, STYPE = int, INITCOND = 0, FINALFUNC = lib.final);
CREATE FUNCTION lib.given() RETURNS int LANGUAGE plpgsql AS
  $$ BEGIN PERFORM set_config('app.a', 'given', false); RETURN 5; END $$;
CREATE DOMAIN lib.given_domain AS int DEFAULT lib.given();
CREATE TYPE lib.pair AS (w lib.word, n int);
CREATE FUNCTION lib.by_argument() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN PERFORM set_config(TG_ARGV[0], TG_OP, false); RETURN COALESCE(NEW, OLD); END $$;
GRANT ALL ON ALL TABLES IN SCHEMA lib TO PUBLIC;

CREATE FUNCTION lib.fresh(who int) RETURNS void LANGUAGE plpgsql AS $$
  DECLARE s text := 's' || who; t text;
  BEGIN
    IF to_regnamespace(s) IS NULL THEN
      PERFORM lib.make(s);
      RETURN;
    END IF;
    FOREACH t IN ARRAY '{refs, keys, parent, parted, generated, deferred, given, tab, plain, typed, defaulted, trig, ruled}'::text[] LOOP
      EXECUTE format('DELETE FROM %I.%I', s, t);
    END LOOP;
    -- What scripts make themselves.
    EXECUTE format('DROP TABLE IF EXISTS %I.made CASCADE', s);
    EXECUTE format('DROP DOMAIN IF EXISTS %I.made_domain CASCADE', s);
    EXECUTE format('DROP TYPE IF EXISTS %I.made_type CASCADE', s);
    EXECUTE format('DROP OPERATOR IF EXISTS %I.=== (int, int) CASCADE', s);
    EXECUTE format('DROP FUNCTION IF EXISTS %I.made_function(int), %I.later(int)', s, s);
    EXECUTE format('DROP SCHEMA IF EXISTS %I CASCADE', s || '_made');
    PERFORM setval(s || '.tab_id_seq', 1, false), setval(s || '.seq', 1, false);
  END $$;
CREATE FUNCTION lib.make(s text) RETURNS void LANGUAGE plpgsql AS $$
  BEGIN
    EXECUTE format('CREATE SCHEMA %I', s);
    EXECUTE format('CREATE TABLE %I.tab (id serial PRIMARY KEY, word text)', s);
    EXECUTE format('CREATE TABLE %I.plain (id int, word text DEFAULT ''none'')', s);
    EXECUTE format('CREATE TABLE %I.typed (w lib.word)', s);
    EXECUTE format('CREATE TABLE %I.defaulted (id int, w text DEFAULT lib.hidden(''default''))', s);
    EXECUTE format('CREATE TABLE %I.trig (n int)', s);
    EXECUTE format('CREATE TRIGGER t BEFORE INSERT ON %I.trig FOR EACH ROW EXECUTE FUNCTION lib.on_insert()', s);
    EXECUTE format('CREATE TABLE %I.ruled (n int)', s);
    EXECUTE format('CREATE RULE r AS ON INSERT TO %I.ruled DO ALSO SELECT lib.hidden(''rule'')', s);
    EXECUTE format('CREATE TABLE %I.guarded (n int)', s);
    EXECUTE format('INSERT INTO %I.guarded VALUES (1)', s);
    EXECUTE format('ALTER TABLE %I.guarded ENABLE ROW LEVEL SECURITY', s);
    EXECUTE format('CREATE POLICY p ON %I.guarded USING (lib.hidden(''policy'') <> '''')', s);
    EXECUTE format('CREATE TABLE %I.tenants (t text, n int)', s);
    EXECUTE format('INSERT INTO %I.tenants VALUES (''one'', 1), (''two'', 2), (''two'', 3)', s);
    EXECUTE format('ALTER TABLE %I.tenants ENABLE ROW LEVEL SECURITY', s);
    EXECUTE format('CREATE POLICY p ON %I.tenants USING (t = nullif(current_setting(''app.a'', true), ''''))', s);
    EXECUTE format($f$
      CREATE TABLE %1$I.parted (n int) PARTITION BY LIST (n);
      CREATE TABLE %1$I.part PARTITION OF %1$I.parted DEFAULT;
      CREATE TRIGGER t BEFORE INSERT ON %1$I.part FOR EACH ROW EXECUTE FUNCTION lib.on_insert();
      CREATE TABLE %1$I.parent (n int);
      CREATE TABLE %1$I.child () INHERITS (%1$I.parent);
      CREATE TRIGGER t BEFORE UPDATE ON %1$I.child FOR EACH ROW EXECUTE FUNCTION lib.by_argument('app.b');
      CREATE TABLE %1$I.keys (n int PRIMARY KEY);
      CREATE TABLE %1$I.refs (n int REFERENCES %1$I.keys ON DELETE CASCADE);
      CREATE TRIGGER t BEFORE DELETE ON %1$I.refs FOR EACH ROW EXECUTE FUNCTION lib.by_argument('app.a');
      CREATE TRIGGER u AFTER TRUNCATE ON %1$I.refs FOR EACH STATEMENT EXECUTE FUNCTION lib.by_argument('app.b');
      CREATE TABLE %1$I.generated (n int, g int GENERATED ALWAYS AS (lib.indexed(n)) STORED);
      CREATE TABLE %1$I.deferred (n int);
      CREATE CONSTRAINT TRIGGER t AFTER INSERT ON %1$I.deferred DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION lib.on_insert();
      CREATE TABLE %1$I.given (n int, d lib.given_domain)$f$, s);
    EXECUTE format('CREATE SEQUENCE %I.seq', s);
    EXECUTE format('CREATE VIEW %I.counted AS SELECT count(*) AS n FROM %I.plain', s, s);
    EXECUTE format('GRANT ALL ON SCHEMA %I TO PUBLIC', s);
    EXECUTE format('GRANT ALL ON ALL TABLES IN SCHEMA %I TO PUBLIC', s);
    EXECUTE format('GRANT ALL ON ALL SEQUENCES IN SCHEMA %I TO PUBLIC', s);
  END $$;
"""

CLUSTER_SETUP = """
CREATE ROLE diff LOGIN;
CREATE ROLE diff_super LOGIN SUPERUSER;
CREATE ROLE diff_one;
CREATE ROLE diff_boss SUPERUSER;
CREATE ROLE diff_two NOLOGIN;
CREATE ROLE "Diff Odd" NOLOGIN;
GRANT diff_one, diff_two, diff_boss, "Diff Odd" TO diff;
ALTER ROLE diff SET geqo_threshold = 13;
ALTER ROLE diff SET app.role_default = 'of the role';
"""


def build(cluster):
    """Makes roles and databases on a cluster, once."""
    if cluster.value("SELECT count(*) FROM pg_database WHERE datname = %s", TRUTH):
        return
    cluster.run(CLUSTER_SETUP)
    cluster.run(f"CREATE DATABASE {TRUTH} TEMPLATE template0")
    cluster.run(SETUP, dbname=TRUTH)
    cluster.run(f"CREATE DATABASE {POOLED} TEMPLATE {TRUTH}")
    for name in (TRUTH, POOLED):
        cluster.run(f"ALTER DATABASE {name} SET gin_fuzzy_search_limit = 17; GRANT CREATE ON DATABASE {name} TO PUBLIC")


# The keys of a client's locks are its number, times 1000, and a little more: alone, or as the first of two.
HELD_LOCKS = """SELECT pid FROM pg_catalog.pg_locks
 WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
 AND CASE objsubid WHEN 2 THEN classid ELSE objid END::bigint / 1000 = %(who)s"""


class Keeper:
    """Restores a client's schema to its initial state."""

    def __init__(self, cluster):
        self._sessions = {name: cluster.connect(dbname=name, options="-c lock_timeout=10s")
                          for name in (TRUTH, POOLED)}

    def fresh(self, who, database):
        db = self._sessions[database]
        machine.wait_until(lambda: self._is_free(db, who, database),
                           what=f"the last session of client {who} has released its advisory locks")
        db.execute("SELECT lib.fresh(%s)", (who,))

    @staticmethod
    def _is_free(db, who, database):
        """Rolls back the prepared transactions of the client's last session, since the session may wait for one of them.
        Returns whether there were none and the session has released its advisory locks. PostgreSQL and the pooler notice
        a moment later that a client has disconnected, and until then its locks would block the next client. A lock that
        stays is a fault.
        """
        gids = db.execute("SELECT gid FROM pg_prepared_xacts WHERE database = %s AND gid LIKE %s",
                          (database, f"_-{who}-%")).fetchall()
        for (gid,) in gids:
            # Another session may end the same transaction at this moment.
            with contextlib.suppress(psycopg.errors.UndefinedObject, psycopg.errors.ObjectNotInPrerequisiteState):
                db.execute(f"ROLLBACK PREPARED '{gid}'")
        return not gids and not db.execute(HELD_LOCKS, {"who": who}).fetchall()

    def close(self):
        for db in self._sessions.values():
            db.close()
