"""The session state that a client sees on its server."""

import rawclient as wire
from leaks.line import SEED

# Parameters that differ between any two sessions.
UNSTEADY = {"transaction_isolation", "transaction_read_only", "transaction_deferrable"}
PREDICTED = 200

STATE = """
SELECT session_user, current_user, pg_catalog.current_setting('role'),
 (SELECT pg_catalog.string_agg(objid::text, ' ') FROM pg_catalog.pg_locks
   WHERE locktype = 'advisory' AND pid = pg_catalog.pg_backend_pid()),
 (SELECT pg_catalog.count(*) FROM pg_catalog.pg_depend
   WHERE refclassid = 'pg_catalog.pg_namespace'::pg_catalog.regclass AND refobjid = pg_catalog.pg_my_temp_schema()),
 (SELECT pg_catalog.string_agg(name, ' ') FROM pg_catalog.pg_cursors WHERE is_holdable),
 (SELECT pg_catalog.string_agg(channel, ' ') FROM pg_catalog.pg_listening_channels() channel),
 (SELECT pg_catalog.string_agg(name, ' ') FROM pg_catalog.pg_prepared_statement() WHERE from_sql),
 pg_catalog.random()"""
STATE_NAMES = ("session_user", "current_user", "role", "advisory locks", "temporary objects", "cursors WITH HOLD",
               "channels", "statements of PREPARE", "random")


class Refused(Exception):
    """The pooler gave the client no server, or disconnected it."""


class Looker:
    """Compares sessions of one user in one database with a fresh one."""

    def __init__(self, direct):
        """`direct` opens a session past the pooler."""
        with direct() as fresh:
            # Parameters of PL/pgSQL exist only in sessions that have run a function in PL/pgSQL.
            fresh.query("DO $$ BEGIN END $$")
            self._settings = dict(_rows(fresh, "SELECT name, setting FROM pg_catalog.pg_settings"))
            self._state = _rows(fresh, STATE)[0][:-1]
            _rows(fresh, f"SELECT setseed({SEED})")
            self._random = {row[0] for row in _rows(fresh, f"SELECT random() FROM generate_series(1, {PREDICTED})")}

    def leftover_state(self, client, customs, sequence=None):
        """Describes the session state that a fresh session does not have; `Refused` if there is no session."""
        found = []
        # The names of custom parameters are in no text that the pooler reads, so that it can't learn them.
        asked = ", ".join(f"pg_catalog.current_setting(pg_catalog.reverse('{name[::-1]}'), true)" for name in customs)
        try:
            settings = _rows(client, "SELECT name, setting, reset_val FROM pg_catalog.pg_settings")
            (state,) = _rows(client, STATE)
            values = _rows(client, f"SELECT {asked}")[0] if customs else ()
        except AssertionError as error:
            return [f"the look fails: {error}"]
        # A library that is loaded has parameters that a fresh session does not have.
        found += [f"{name} = {value}" for name, value, usual in settings
                  if value != self._settings.get(name, usual) and name not in UNSTEADY]
        found += [f"{name}: {value}" for name, value, own in zip(STATE_NAMES, state, self._state) if value != own]
        if state[-1] in self._random:
            found.append("the seed of random()")
        found += [f"{name} = {value}" for name, value in zip(customs, values) if value]
        return found + (self._sequences(client, sequence) if sequence else [])

    @staticmethod
    def _sequences(client, sequence):
        found = []
        for call in ("lastval()", f"currval('{sequence}')"):
            answer = _answer(client, f"SELECT {call}")
            found += [f"{call} is {row[0]}" for row in wire.rows(answer)]
        return found


def _answer(client, sql):
    try:
        answer = client.query(sql)
    except (wire.Closed, TimeoutError) as error:
        raise Refused(str(error)) from error
    fatal = [m.words for m in answer if m.kind == "E" and m.fields["S"] == "FATAL"]
    if fatal:
        raise Refused(fatal[0])
    return answer


def _rows(client, sql):
    answer = _answer(client, sql)
    errors = wire.errors(answer)
    assert not errors, errors
    return wire.rows(answer)
