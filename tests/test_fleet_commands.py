"""Console commands with ON ALL run on each node of a fleet."""

import base64
import json
import shutil
import signal
import threading

import psycopg
import pytest

import machine
from fleetfixtures import LEASE
from httpfixtures import http_port  # noqa: F401 (a fixture)
from scraping import get, scrape

pytestmark = [
    pytest.mark.pgweir_only("PgBouncer does not know etcd"),
    pytest.mark.skipif(shutil.which("etcd") is None, reason="needs etcd: tools/install-deps full"),
]

COMMANDS, ANSWERS = "/pgweir/pgweir/command/", "/pgweir/pgweir/answer/"
MAY_BE_OLD = "this node has just connected to etcd, and the command may be an old one"


@pytest.fixture
def start_fleet(start_node):
    """Starts three nodes, and waits until each knows all of them."""
    def start(**settings):
        nodes = [start_node(fleet_command_timeout=20, **settings) for _ in range(3)]
        for node in nodes:
            machine.wait_until(lambda node=node: _active(node) == 3, 30, f"{node.pooler.log_path} knows the fleet")
        return nodes
    return start


def _active(node):
    return sum(row["state"] in ("this", "active") for row in node.pooler.console("SHOW FLEET"))


def _number(node):
    """The node's number, as SHOW FLEET has it."""
    return next(row["node"] for row in node.pooler.console("SHOW FLEET") if row["state"] == "this")


def _on_all(node, command):
    """The results of a command by node. Repeats it while a node refuses it since it has just connected to etcd."""
    while True:
        rows = node.pooler.console(f"{command} ON ALL")
        if not any(row["result"] == MAY_BE_OLD for row in rows):
            return {row["node"]: row["result"] for row in rows}


def _are(nodes, column, value, database="app"):
    for node in nodes:
        shown = {row["name"]: row[column] for row in node.pooler.console("SHOW DATABASES")}
        assert shown[database] == value, node.pooler.log_path


@pytest.mark.shows("fleet_command_timeout")
def test_a_command_runs_on_all_nodes(start_fleet, etcd):
    nodes = start_fleet()
    everywhere = {_number(node): "ok" for node in nodes}
    assert len(everywhere) == 3
    for command, column, value in (("PAUSE app", "paused", 1), ("RESUME app", "paused", 0), ("DISABLE app", "disabled", 1),
                                   ("ENABLE app", "disabled", 0), ("KILL app", "paused", 1), ("RESUME app", "paused", 0)):
        assert _on_all(nodes[0], command) == everywhere, command
        _are(nodes, column, value)
    for command in ("RELOAD", "RECONNECT app", "WAIT_CLOSE app", "UNBAN"):
        assert _on_all(nodes[1], command) == everywhere, command
    for node in nodes:
        own, log = _number(nodes[0]), node.pooler.log()
        assert f'at node {own}: command "PAUSE app": ok' in log
        assert f'at node {_number(nodes[1])}: command "RELOAD": ok' in log
        assert "RELOAD command issued" in log
    # Each command takes its keys with it.
    machine.wait_until(lambda: not etcd.keys(COMMANDS) and not etcd.keys(ANSWERS), 10, "the keys are gone")


def test_the_result_names_nodes_that_refuse_or_do_not_answer(start_fleet, http_port):  # noqa: F811 (a fixture)
    one, two, three = start_fleet()
    numbers = {node: _number(node) for node in (one, two, three)}
    _on_all(two, "PAUSE app")
    two.pooler.console("RESUME app")
    results = _on_all(one, "RESUME app")
    assert results[numbers[one]] == results[numbers[three]] == "ok"
    assert "not paused" in results[numbers[two]]
    one.pooler.expect_log('command "RESUME app ON ALL": 1 of 3 nodes have not carried it out')
    # A stopped node does not answer. When it goes on after the command has ended, it does not carry the command out.
    one.pooler.settings |= {"fleet_command_timeout": 1, "http_listen": f"127.0.0.1:{http_port}"}
    one.pooler.write_files()
    one.pooler.console("RELOAD")
    three.pooler.signal(signal.SIGSTOP)
    results = {row["node"]: row["result"] for row in one.pooler.console("DISABLE app ON ALL")}
    assert results[numbers[three]] == "no answer within 1 s; the command may still be in progress"
    machine.wait_until(lambda: scrape(http_port).value("pgweir_fleet_commands") == 0, 10, "the command has ended")
    # Later the others know that it is lost, and do not wait for it.
    machine.wait_until(lambda: _active(one) == 2, 10 * LEASE, "the node is lost")
    assert _on_all(one, "ENABLE app")[numbers[three]] == "lost: the command was not sent to this node"
    assert _on_all(one, "DISABLE app")[numbers[two]] == "ok"
    three.pooler.signal(signal.SIGCONT)
    machine.wait_until(lambda: _active(one) == 3, 10 * LEASE, "the node is back")
    # The third node has read etcd since it was continued.
    assert _on_all(one, "RELOAD")[numbers[three]] == "ok"
    _are((one, two), "disabled", 1)
    _are([three], "disabled", 0)


def test_a_command_for_all_nodes_over_http(start_fleet, etcd, http_port):  # noqa: F811 (a fixture)
    one, two, three = start_fleet()
    numbers = [_number(node) for node in (one, two, three)]
    one.pooler.settings |= {"http_listen": f"127.0.0.1:{http_port}", "stats_users": "stats"}
    one.pooler.write_files()
    one.pooler.console("RELOAD")
    everywhere = dict.fromkeys(numbers, "ok")
    status, answer = _post(http_port, "pause", {"database": "app", "nodes": "all"})
    assert (status, answer["command"], answer["outcome"]) == (200, 'PAUSE "app" ON ALL', "done")
    assert {node["node"]: node["result"] for node in answer["nodes"]} == everywhere
    _are((one, two, three), "paused", 1)
    # The log of each node names the sender.
    for node in (one, two, three):
        node.pooler.expect_log('audit: user "admin" from 127.0.0.1:')
        assert f'at node {numbers[0]}: command "PAUSE app": ok' in node.pooler.log()
    one.pooler.expect_log('http: audit: user "admin" from 127.0.0.1:')
    assert 'PAUSE "app" ON ALL: done' in one.pooler.log()
    # A node that refuses the command is named.
    two.pooler.console("RESUME app")
    status, answer = _post(http_port, "resume", {"database": "app", "nodes": "all"})
    assert (status, answer["detail"]) == (502, "1 of 3 nodes have not carried it out")
    results = {node["node"]: node["result"] for node in answer["nodes"]}
    assert "not paused" in results.pop(numbers[1]) and set(results.values()) == {"ok"}
    _are((one, two, three), "paused", 0)
    # The other seven commands.
    for name, body in (("reload", {}), ("kill", {"database": "app"}), ("resume", {"database": "app"}), ("disable", {"database": "app"}),
                       ("enable", {"database": "app"}), ("reconnect", {}), ("wait_close", {}), ("unban", {})):
        status, answer = _post(http_port, name, body | {"nodes": "all"})
        assert (status, {node["result"] for node in answer["nodes"]}) == (200, {"ok"}), name
    # Neither a wrong member nor a user with less than the role of an admin reaches another node.
    for name, body in (("set", {"key": "query_timeout", "value": 1, "nodes": "all"}), ("suspend", {"nodes": "all"}), ("pause", {"nodes": "some"})):
        assert _post(http_port, name, body)[0] == 422, name
    assert _post(http_port, "pause", {"nodes": "all"}, user="stats")[0] == 403
    # A node that does not answer in time.
    with two.pooler.connect() as client:
        client.execute("BEGIN")
        paused = _post(http_port, "pause", {"database": "app", "nodes": "all"})
        assert paused == (202, {"command": 'PAUSE "app" ON ALL', "outcome": "begun", "notices": []})
    _are((one, two, three), "paused", 1)


def _post(port, name, body, user="admin"):
    credentials = base64.b64encode(f"{user}:{user} password".encode()).decode()
    answer = get(port, f"/api/v1/commands/{name}", "POST", body=json.dumps(body), Content_Type="application/json",
                 Authorization=f"Basic {credentials}")
    return answer.status, json.loads(answer.text)


def test_pause_waits_for_transactions_on_all_nodes(start_fleet):
    one, two, three = start_fleet()
    results = []
    with two.pooler.connect() as client:
        client.execute("BEGIN")
        thread = threading.Thread(target=lambda: results.append(_on_all(one, "PAUSE app")))
        thread.start()
        for node in (one, two, three):
            machine.wait_until(lambda node=node: _is_paused(node), 20, "the node is paused")
        assert not results
        client.execute("COMMIT")
    thread.join(30)
    assert results == [{_number(node): "ok" for node in (one, two, three)}]


def _is_paused(node):
    return any(row["paused"] and row["name"] == "app" for row in node.pooler.console("SHOW DATABASES"))


def test_who_may_give_commands(start_fleet):
    one, *_ = start_fleet()
    for command in ("SHUTDOWN", "RESTART", "SUSPEND", "SHOW POOLS", "KILL_CLIENT 1"):
        with pytest.raises(psycopg.Error, match="cannot run ON ALL"):
            one.pooler.console(f"{command} ON ALL")
    with pytest.raises(psycopg.Error, match="invalid command"):
        one.pooler.console("SET query_timeout = 1 ON ALL")
    one.pooler.settings |= {"stats_users": "trusty"}
    one.pooler.write_files()
    one.pooler.console("RELOAD")
    with one.pooler.connect(dbname="pgbouncer") as viewer:
        with pytest.raises(psycopg.Error, match="admin access needed"):
            viewer.execute("PAUSE ON ALL")
    assert not _is_paused(one)


def test_without_a_fleet(start_pooler, newest_pg):
    pooler = start_pooler(newest_pg)
    with pytest.raises(psycopg.Error, match="ON ALL needs a fleet: fleet_etcd is not set"):
        pooler.console("PAUSE ON ALL")


def test_over_http_without_a_fleet(start_pooler, newest_pg, http_port):  # noqa: F811 (a fixture)
    start_pooler(newest_pg, http_listen=f"127.0.0.1:{http_port}").expect_log("process up")
    status, answer = _post(http_port, "pause", {"nodes": "all"})
    assert (status, answer["detail"]) == (422, "ON ALL needs a fleet: fleet_etcd is not set")


def _command(node, text="DISABLE app", **more):
    value = {"command": text, "user": "ann", "address": "10.0.0.7:1", "from": "1", "nodes": [_number(node)]} | more
    return json.dumps(value)


@pytest.mark.parametrize("key, value", [
    ("command/7", "x"), ("command/7", '{"command": "DISABLE app"}'), ("command/x\ny", "{}"),
    ("answer/7", '{"ok": true, "result": "ok"}'), ("answer/7/7", '{"ok": 1}'),
])
def test_garbage_in_a_key_of_a_command_is_ignored(start_fleet, etcd, key, value):
    nodes = start_fleet()
    etcd.put(f"/pgweir/pgweir/{key}", value)
    text = "has a value that pgweir does not understand, and is ignored"
    for node in nodes:
        node.pooler.expect_log(text, 10)
    assert set(_on_all(nodes[0], "DISABLE app").values()) == {"ok"}
    machine.stays_true(lambda: nodes[0].pooler.log().count(text) == 1, LEASE, "it says so once")
    assert "the lease has ended" not in nodes[0].pooler.log()


def test_etcd_cannot_give_other_commands_than_the_console(start_fleet, etcd):
    one, two, three = start_fleet()
    # Each of these is answered with a refusal. The last one is carried out, by the node that it names.
    for number, text in enumerate(("SHUTDOWN", "SET auth_type = 'trust'", "KILL_CLIENT 1", "DISABLE app; SHUTDOWN", "DISABLE nothing", "DISABLE app")):
        etcd.put(f"{COMMANDS}{number:016x}", _command(two, text))
        machine.wait_until(lambda number=number: f"{ANSWERS}{number:016x}/{_number(two)}" in etcd.keys(ANSWERS), 20, f"the node answers {text}")
    answers = list(etcd.keys(ANSWERS).values())
    assert [answer["result"] for answer in answers] == ["not a command for all nodes"] * 4 + ["no such database: nothing", "ok"]
    _are([two], "disabled", 1)
    _are((one, three), "disabled", 0)
    assert 'audit: user "ann" from 10.0.0.7:1, at node 0000000000000001: command "(unknown)": not a command' in two.pooler.log()
    assert "auth_type" not in two.pooler.log()


def test_an_old_command_that_comes_back_does_not_run(start_node, etcd):
    node = start_node(fleet_nodes=1, max_server_conn=20)
    machine.wait_until(lambda: _active(node) == 1, 20, "the node is known")
    key, own = f"{COMMANDS}{7:016x}", _number(node)
    etcd.put(key, _command(node))
    machine.wait_until(lambda: f"{ANSWERS}{7:016x}/{own}" in etcd.keys(ANSWERS), 20, "it is carried out")
    _are([node], "disabled", 1)
    node.pooler.console("ENABLE app")
    etcd.delete(key)
    etcd.delete(f"{ANSWERS}{7:016x}/{own}")
    etcd.put(key, _command(node))
    machine.stays_true(lambda: not etcd.keys(ANSWERS), LEASE, "the number was used already")
    _are([node], "disabled", 0)
    # A command that the store has when the node connects again may be an old one.
    etcd.delete(key)
    node.to_etcd.cut()
    etcd.put(f"{COMMANDS}{8:016x}", _command(node))
    node.pooler.expect_log("the lease has ended", 5 * LEASE)
    node.to_etcd.restore()
    machine.wait_until(lambda: f"{ANSWERS}{8:016x}/{own}" in etcd.keys(ANSWERS), 30, "it is refused")
    assert [answer["result"] for answer in etcd.keys(ANSWERS).values()] == [MAY_BE_OLD]
    _are([node], "disabled", 0)


def test_the_number_of_commands_is_limited(start_node, etcd):
    node = start_node(fleet_nodes=1, max_server_conn=20)
    machine.wait_until(lambda: _active(node) == 1, 20, "the node is known")
    with node.pooler.connect() as client:
        client.execute("BEGIN")
        etcd.put(f"{COMMANDS}{0:016x}", _command(node, "PAUSE app"))
        machine.wait_until(lambda: _is_paused(node), 20, "PAUSE waits for the transaction")
        for number in range(1, 8):
            etcd.put(f"{COMMANDS}{number:016x}", _command(node, "WAIT_CLOSE"))
        machine.wait_until(lambda: len(etcd.keys(ANSWERS)) == 7, 20, "the others are done")
        machine.wait_until(lambda: not _is_accepted(node), 20, "the console refuses a ninth command")
        # A command whose key is gone has ended for the fleet, but its order stays in force.
        for number in range(8):
            etcd.delete(f"{COMMANDS}{number:016x}")
        machine.wait_until(lambda: _is_accepted(node), 20, "the console accepts a command")
        node.pooler.expect_log('command "PAUSE app": nobody waits for the end of the command any more')
        assert _is_paused(node)


def _is_accepted(node):
    try:
        return node.pooler.console("RELOAD ON ALL")[0]["result"] == "ok"
    except psycopg.Error as error:
        assert "8 commands with ON ALL are in progress already" in str(error)
        return False


def test_without_etcd_the_console_says_so(start_node, etcd):
    node = start_node(fleet_nodes=1, max_server_conn=20)
    machine.wait_until(lambda: _active(node) == 1, 20, "the node is known")
    etcd.stop()
    with pytest.raises(psycopg.Error, match="cannot pass the command on through etcd"):
        node.pooler.console("PAUSE ON ALL")
    assert not _is_paused(node)
