"""PostgreSQL's functions that leave session state: the scanner's list is compared with real servers, without a pooler.
crates/core has the list, and another one of functions that were examined and leave no state. A new version of
PostgreSQL makes these tests fail until its functions were examined.
"""

import re
from pathlib import Path

SQL = Path(__file__).parent.parent / "crates/core/src/session/sql"
LISTS = re.findall(r'"([a-z0-9_ \\\n]+)"', (SQL / "denied.rs").read_text())
DENIED = set(re.findall(r"[a-z0-9_]+", " ".join(LISTS)))
assert {"setseed", "query_to_xml", "pg_class"} <= DENIED
HARMLESS = (SQL / "harmless.txt").read_text().split()
# Functions that a client can't call: SQL can't express their arguments or results.
UNCALLABLE = """'internal'::regtype = ANY (proargtypes) OR prorettype = ANY ('{trigger, event_trigger, internal,
    language_handler, fdw_handler, index_am_handler, table_am_handler, tsm_handler}'::regtype[])"""


def callable_ones(pg, condition):
    """Returns the names of the server's functions that a client can call."""
    return {name for (name,) in pg.rows(
        f"SELECT proname FROM pg_proc WHERE oid < 16384 AND NOT ({UNCALLABLE}) AND ({condition})")}


def is_denied(name):
    return name in DENIED or name.startswith("binary_upgrade_")


def test_every_function_that_may_keep_state_was_examined(pg):
    found = callable_ones(pg, "provolatile = 'v' OR proparallel <> 's'")
    unknown = {name for name in found - set(HARMLESS) if not is_denied(name)}
    assert unknown == set(), "look at these, and add them to denied.rs or harmless.txt"


def test_functions_that_run_queries_are_denied(pg):
    by_name = callable_ones(
        pg, "proname ~ '_to_xml|^lo_|^lo(read|write)$|replication_origin_(session|xact)|_validator$|backup_st'")
    harmless = {"pg_replication_origin_session_is_setup"}
    assert {name for name in by_name - harmless if not is_denied(name)} == set()


def test_no_harmless_function_is_denied():
    assert [name for name in HARMLESS if is_denied(name)] == []
    assert HARMLESS == sorted(set(HARMLESS))


def test_every_table_of_the_catalog_is_on_the_list(pg):
    tables = {name for (name,) in pg.rows(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'pg_catalog'::regnamespace"
        " AND oid < 16384")}
    assert tables - DENIED == set(), "who writes to these changes what objects are"
