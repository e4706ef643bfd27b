"""Fixtures of the tests of HTTP: a pooler that answers requests."""

import pytest

import machine


@pytest.fixture
def http_port():
    port = machine.free_port()
    yield port
    machine.release_port(port)


@pytest.fixture
def start(start_pooler, newest_pg, http_port):  # noqa: F811 (a fixture)
    """Starts a pooler that answers HTTP; `pooler.http` is its port."""
    def start_one(pg=newest_pg, **settings):
        pooler = start_pooler(pg, **{"http_listen": f"127.0.0.1:{http_port}"} | settings)
        pooler.http = http_port
        if pooler.settings["http_listen"]:  # its sockets are opened after those for clients
            pooler.expect_log("process up")
        return pooler
    return start_one


def reload(pooler, **settings):
    """Changes settings in the file, and reads it again."""
    pooler.settings |= settings
    pooler.write_files()
    pooler.console("RELOAD")
