"""Random sessions with the assist extension: at each idle ReadyForQuery, the report agrees with the state that SQL
shows.
"""

import os
import random

import pytest

import rawclient
from assisted import Session, is_idle

pytestmark = pytest.mark.pgweir_only("the extension is pgweir's own")

CUSTOMS = ("my.tenant", "my.other")

SETUP = """
CREATE OR REPLACE FUNCTION hidden(what int) RETURNS void LANGUAGE plpgsql AS $$BEGIN
  CASE what
    WHEN 0 THEN PERFORM set_config('my.tenant', 'hidden', false);
    WHEN 1 THEN EXECUTE 'RE' || 'SET ALL';
    WHEN 2 THEN EXECUTE 'CREATE TEMP TABLE IF NOT EXISTS hid' || 'den (x int)';
    WHEN 3 THEN PERFORM pg_advisory_lock(9);
    WHEN 4 THEN EXECUTE 'PREPARE hidden AS SELECT 1';
    WHEN 5 THEN BEGIN SET work_mem = 777; RAISE 'no'; EXCEPTION WHEN raise_exception THEN END;
    WHEN 6 THEN SET LOCAL work_mem = 778;
    ELSE RAISE 'no';
  END CASE; END$$;
CREATE OR REPLACE PROCEDURE commits(fails bool) LANGUAGE plpgsql AS $$BEGIN
  SET work_mem = 555; CREATE TEMP TABLE IF NOT EXISTS procedural (x int); COMMIT;
  PERFORM pg_advisory_unlock_all(); RESET work_mem; DROP TABLE procedural;
  IF fails THEN RAISE 'no'; END IF; END$$;
CREATE OR REPLACE FUNCTION sets_both() RETURNS int LANGUAGE sql SET my.other = 'inside'
  AS 'SELECT set_config(''my.tenant'', ''of a function'', false); SELECT 1';
CREATE TABLE IF NOT EXISTS triggered (x int);
CREATE OR REPLACE FUNCTION on_insert() RETURNS trigger LANGUAGE plpgsql AS
  'BEGIN PERFORM set_config(''my.other'', NEW.x::text, false); RETURN NEW; END';
CREATE OR REPLACE TRIGGER sets BEFORE INSERT ON triggered FOR EACH ROW EXECUTE FUNCTION on_insert();
"""

# Statements to choose from; {n} is a small number.
STATEMENTS = """
SET work_mem = {n}00|SET LOCAL work_mem = {n}01|RESET work_mem|SET work_mem TO DEFAULT|RESET ALL|SET my.tenant = 'a {n}'
SET my.other = ''|SET LOCAL my.tenant = 'local'|RESET my.tenant|SET search_path = public, pg_temp|RESET search_path
SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ|SET TRANSACTION ISOLATION LEVEL SERIALIZABLE
SELECT set_config('my.tenant', '{n}', false)|SELECT set_config('my.other', '{n}', true)|SET TIME ZONE '+{n}'
UPDATE pg_settings SET setting = '{n}00' WHERE name = 'temp_buffers'|SET ROLE scrammed|RESET ROLE|SET ROLE none
SET SESSION AUTHORIZATION scrammed|RESET SESSION AUTHORIZATION|SET LOCAL ROLE hashed|SET seq_page_cost = {n}.5
CREATE TEMP TABLE t{n} (x int)|DROP TABLE t{n}|CREATE TEMP TABLE c{n} ON COMMIT DROP AS SELECT 1|DROP TABLE IF EXISTS pg_temp.hidden
CREATE TEMP TABLE d{n} (x int) ON COMMIT DELETE ROWS|DROP TABLE d{n}|SELECT 1 AS x INTO TEMP t{n}|DISCARD TEMP
CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS 'SELECT 1'|DROP FUNCTION pg_temp.f()|CREATE TEMP VIEW v{n} AS SELECT 1
DROP VIEW v{n}|CREATE TEMP SEQUENCE s{n}|DROP SEQUENCE s{n}|DROP OWNED BY scrammed|CREATE TYPE pg_temp.y AS ENUM ('a')|DROP TYPE pg_temp.y
SELECT pg_advisory_lock({n})|SELECT pg_advisory_unlock({n})|SELECT pg_advisory_unlock_all()|SELECT pg_advisory_xact_lock({n})
SELECT pg_try_advisory_lock_shared({n})|SELECT pg_advisory_unlock_shared({n})
DECLARE h{n} CURSOR WITH HOLD FOR SELECT 1|DECLARE q{n} CURSOR FOR SELECT 1|CLOSE h{n}|CLOSE ALL|FETCH h{n}
LISTEN channel{n}|UNLISTEN channel{n}|UNLISTEN *|NOTIFY channel{n}
PREPARE p{n} AS SELECT 1|PREPARE p{n} AS SELECT set_config('my.tenant', 'prepared', false)|EXECUTE p{n}|DEALLOCATE p{n}|DEALLOCATE ALL
BEGIN|BEGIN|COMMIT|COMMIT|ROLLBACK|COMMIT AND CHAIN|ROLLBACK AND CHAIN|SAVEPOINT s|SAVEPOINT s|ROLLBACK TO s|RELEASE s
SELECT 1/(SELECT count(*) FROM pg_class WHERE false)|SELECT 1|SELECT nothing|PREPARE TRANSACTION 'phase'|ROLLBACK PREPARED 'phase'
SELECT hidden({n})|SELECT sets_both()|CALL commits(false)|CALL commits(true)|INSERT INTO triggered VALUES ({n})
DO $$BEGIN PERFORM hidden({n}); END$$|DISCARD ALL|DISCARD PLANS
"""
CHOICES = [choice for line in STATEMENTS.strip().splitlines() for choice in line.split("|")]


def messages_of(rng, session):
    """Returns the messages of one to four statements, by a random protocol, and the number of answers to read."""
    many = [rng.choice(CHOICES).format(n=rng.randrange(1, 8)) for _ in range(rng.choice((1, 1, 1, 2, 4)))]
    way = rng.randrange(3)
    if way == 0:
        session.send(rawclient.query("; ".join(many)))
        return many, 1
    if way == 1:  # a pipeline with one Sync
        session.send(*(rawclient.extended(sql) for sql in many), rawclient.SYNC)
        return many, 1
    session.send(*(rawclient.extended(sql) + rawclient.SYNC for sql in many))
    return many, len(many)


@pytest.mark.parametrize("number", range(3))
def test_a_random_session(assisted_pg, number, request):
    seed = int(os.environ.get("PGWEIR_ASSIST_SEED", random.randrange(1 << 32)))
    rng = random.Random(seed)
    done = []
    try:
        for _ in range(30 if request.config.getoption("--full") else 3):
            run_session(rng, assisted_pg, done)
    except AssertionError as error:
        raise AssertionError(f"PGWEIR_ASSIST_SEED={seed}, after {done[-12:]}: {error}") from error
    finally:
        with Session.to(assisted_pg) as session:
            session.query("ROLLBACK PREPARED 'phase'")
            session.query("DROP TABLE triggered; DROP FUNCTION hidden, sets_both, on_insert; DROP PROCEDURE commits(bool)")


def run_session(rng, pg, done):
    del done[:]
    # A lock may be held by the session's own prepared transaction.
    with Session.to(pg, options="-c lock_timeout=100ms") as session:
        session.query("ROLLBACK PREPARED 'phase'")  # state that the last session may have left
        assert not rawclient.errors(session.query(SETUP))
        for _ in range(120):
            statements, count = messages_of(rng, session)
            done.append(statements)
            for _ in range(count):
                last = session.until_ready()
            if is_idle(last):
                session.check(CUSTOMS)
