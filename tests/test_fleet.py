"""Several poolers share a limit on the server connections to one PostgreSQL."""

import pytest

import rawclient as wire
from httpfixtures import http_port, start  # noqa: F401 (fixtures)
from scraping import scrape

pytestmark = pytest.mark.pgweir_only("PgBouncer has no limit over several processes")


@pytest.mark.shows("fleet_nodes", "max_server_conn")
def test_nodes_never_use_more_than_the_limit(start_pooler, start, idle_pg):  # noqa: F811 (a fixture)
    """Each of three nodes has two of seven servers, however many clients it has; one server is the remainder."""
    settings = {"fleet_nodes": 3, "max_server_conn": 7}
    fleet = [start(idle_pg, **settings)] + [start_pooler(idle_pg, **settings) for _ in range(2)]
    holders = [pooler.raw() for pooler in fleet for _ in range(2)]
    for holder in holders:
        holder.query("BEGIN")
    late = [pooler.raw() for pooler in fleet]
    for client in late:
        client.send(wire.query("SELECT 1"))
        client.quiet()
    assert idle_pg.count_servers() == 6
    for pooler in fleet:
        assert (pooler.setting("max_server_conn"), pooler.setting("fleet_share")) == ("7", "2")
    assert scrape(fleet[0].http).value("pgweir_server_connections_limit") == 2
    # The share follows a change of either setting.
    fleet[0].console("SET max_server_conn = 9")
    assert wire.value(late[0].until_ready()) == "1"
    assert idle_pg.count_servers() == 7
    fleet[1].console("SET fleet_nodes = 2")
    assert wire.value(late[1].until_ready()) == "1"
    assert fleet[1].setting("fleet_share") == "3"
    late[2].quiet()


def test_a_node_without_a_server_of_its_own_is_refused(start_pooler, idle_pg):
    pooler = start_pooler(idle_pg, fleet_nodes=3, max_server_conn=3)
    client = pooler.raw("admin", "pgbouncer")
    for text in ("SET max_server_conn = 2", "SET fleet_nodes = 4"):
        messages = client.query(text)
        assert wire.errors(messages) == [("08P01", "SET failed")]
        assert "so that each node has a server" in messages[0].fields["D"]
    assert pooler.setting("fleet_share") == "1"
    pooler.console("SET max_server_conn = 0")
    assert pooler.setting("fleet_share") == "0"
