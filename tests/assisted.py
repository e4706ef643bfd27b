"""A direct connection that reads the assist extension's reports, and the session state that SQL shows, to compare them.
"""

import re

import rawclient
from rawclient import RawClient

REPORT = "pgweir.session_state"

# Items that SQL can't show: whether the session has run LOAD or setseed.
UNKNOWABLE = {"l", "r"}

TRUTH = """
SELECT CASE context WHEN 'superuser' THEN 's' ELSE 'g' END || name || '=' || setting FROM pg_catalog.pg_settings
 WHERE source OPERATOR(pg_catalog.=) 'session' AND name NOT IN
   ('transaction_isolation', 'transaction_read_only', 'transaction_deferrable')
UNION ALL SELECT 'g' || name || '=' || value FROM (VALUES {customs}) AS _ (name, value)
 WHERE value OPERATOR(pg_catalog.<>) ''
UNION ALL SELECT 't' FROM pg_catalog.pg_depend
 WHERE refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_namespace'::pg_catalog.regclass
   AND refobjid OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema()
UNION ALL SELECT 'a' FROM pg_catalog.pg_locks
 WHERE locktype OPERATOR(pg_catalog.=) 'advisory' AND pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()
UNION ALL SELECT 'h' FROM pg_catalog.pg_cursors WHERE is_holdable
UNION ALL SELECT 'p' || name FROM pg_catalog.pg_prepared_statements WHERE from_sql
UNION ALL SELECT 'c' || channel FROM pg_catalog.pg_listening_channels() AS channel
"""


def unescaped(item):
    assert all(0x20 < ord(c) < 0x7F for c in item)
    raw = re.sub(r"\\([0-3][0-7]{2})", lambda m: chr(int(m[1], 8)), item)
    return raw.encode("latin-1").decode(errors="surrogateescape")


class Session(RawClient):
    """A direct connection that reads reports."""

    @classmethod
    def to(cls, pg, user="postgres", database="app", **parameters):
        return cls.tcp(pg.host, pg.port, timeout=30).login(user, database, **parameters)

    @property
    def held(self):
        """The items of the last report, unescaped, without the version; sorted."""
        version, *items = self.parameters[REPORT].split(";")
        assert version == "1"
        return sorted(unescaped(item) for item in items)

    def after(self, sql):
        """Runs the statements, and returns the session state that the last report contains."""
        self.query(sql)
        return self.held

    def truth(self, customs=()):
        """Returns the session state as SQL shows it; `customs` are the names of parameters that no view lists."""
        names = ("role", "session_authorization", *customs)
        known = ", ".join(f"('{name}', pg_catalog.current_setting('{name}', true))" for name in names)
        found = set(self.values(TRUTH.format(customs=known)))
        return found - {"grole=none", "gsession_authorization=postgres"}

    def check(self, customs=()):
        """Checks that the last report equals the session state that SQL shows."""
        reported = set(self.held)
        # A parameter set to an empty string or to its default looks like one that is not set.
        empty = {f"g{name}=" for name in customs} | {"grole=none", "gsession_authorization=postgres"}
        reported -= UNKNOWABLE | empty
        true = self.truth(customs)
        assert reported == true, f"not true: {reported - true}, not told: {true - reported}"


def is_idle(messages):
    """Returns whether the messages end with ReadyForQuery outside of a transaction."""
    return messages[-1].kind == "Z" and messages[-1].body == b"I"


__all__ = ["REPORT", "Session", "is_idle", "rawclient"]
