"""`log_scheduling`: the log of which client gets which server, and why."""

import re

import pytest

import machine
import rawclient as wire


def lines(pooler):
    return [line.split("scheduling: ")[1] for line in pooler.log().splitlines() if "scheduling: " in line]


def only_server(pooler):
    """Returns the name of the only server in the log. Its number depends on earlier connections."""
    names = set(re.findall(r"S-0x[0-9a-f]+", pooler.log()))
    assert len(names) == 1, names
    return names.pop()


@pytest.mark.shows("log_scheduling")
def test_each_decision_is_logged(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, default_pool_size=1, log_scheduling=1, workers=1)
    holder, waiter = pooler.raw(), pooler.raw()
    before = len(lines(pooler))
    holder.query("BEGIN")
    waiter.send(wire.query("SELECT 1"))
    waiter.quiet(0.1)
    holder.query("COMMIT")
    waiter.until_ready()
    server = only_server(pooler)
    expected = [rf"gets {server}: idle", r"waits: no more servers are allowed; 1 server\(s\), 1 waiting",
                rf"gives back {server} after \d+\.\d{{3}} ms", rf"gets {server} after \d+\.\d{{3}} ms",
                rf"gives back {server} after \d+\.\d{{3}} ms"]
    machine.wait_until(lambda: len(lines(pooler)) >= before + len(expected), 5, "all lines")
    found = lines(pooler)[before:]
    assert len(found) == len(expected), found
    for line, pattern in zip(found, expected):
        assert re.fullmatch(pattern, line), (line, pattern)


@pytest.mark.shows("log_scheduling")
def test_log_scheduling_is_off_by_default(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg, default_pool_size=1)
    client = pooler.raw()
    client.query("SELECT 1")
    assert lines(pooler) == []
    pooler.console("SET log_scheduling = 1")
    client.query("SELECT 1")
    pooler.expect_log("scheduling: gets S-")


@pytest.mark.shows("log_scheduling")
@pytest.mark.parametrize(("options", "sql", "why"), [
    ({"session_state": "transparent"}, "CREATE TEMP TABLE t ()", r"pinned \(temporary objects\)"),
    ({"session_state": "transparent", "share_after": 1}, "SELECT 1", r"few clients \(share_after\)"),
    ({"pool_mode": "session"}, "SELECT 1", "session mode")])
def test_the_reason_for_which_a_client_keeps_its_server(start_pooler, newest_pg, options, sql, why):
    pooler = start_pooler(newest_pg, log_scheduling=1, workers=1, **options)
    client = pooler.raw()
    client.query(sql)
    machine.wait_until(lambda: any("keeps" in line for line in lines(pooler)), 5, "it is logged")
    assert re.fullmatch(rf"keeps {only_server(pooler)}: {why}", lines(pooler)[-1])
