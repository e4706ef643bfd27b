"""The values with which sessions begin change. A client keeps the values that PgBouncer tracks and those of its startup
packet. The values that were reported to a client are always those of its server.
"""

import pytest

import cluster as clusters
import machine

DATE = "SELECT date '2026-11-22'"
NAMES = ("DateStyle", "IntervalStyle", "TimeZone", "default_transaction_read_only", "work_mem")
WHOSE = ["ROLE trusty", "DATABASE app", "ROLE trusty IN DATABASE app", "ROLE ALL"]


@pytest.fixture(params=[(0, None), (-1, None), (-1, True)], ids=["oldest", "newest", "assisted"])
def pg(request, shared_clusters):
    which, assist = request.param
    made = shared_clusters(clusters.VERSIONS[which], assist=assist)
    yield made
    with made.connect(options="-c default_transaction_read_only=off") as db:
        for name in NAMES:
            for whose in WHOSE:
                db.execute(f"ALTER {whose} RESET {name}")
            db.execute(f"ALTER SYSTEM RESET {name}")
    reload(made, "DateStyle", "ISO, MDY")


def reload(pg, name, value):
    """Makes the server read its configuration file again."""
    pg.run("SELECT pg_reload_conf()")
    machine.wait_until(lambda: pg.value(f"SHOW {name}") == value, 30, f"{name} is {value}")


def change(pg, how, name, value):
    if how == "SYSTEM":
        pg.run(f"ALTER SYSTEM SET {name} = '{value}'")
        return reload(pg, name, value)
    return pg.run(f"ALTER {how} SET {name} = '{value}'")


@pytest.fixture
def pooler(start_pooler, pg):
    return start_pooler(pg, default_pool_size=1)


def parameters_and_rows(messages):
    """Returns the parameters and rows in the order in which they arrive."""
    return [dict([m.parameter]) if m.kind == "S" else m.row[0] for m in messages if m.kind in "SD"]


@pytest.mark.parametrize("how", WHOSE)
def test_connected_clients_keep_reported_values(pooler, pg, how):
    with pooler.raw() as one, pooler.raw(application_name="named") as named:
        zone = one.parameters["TimeZone"]
        for client in (one, named):
            assert parameters_and_rows(client.query(DATE)) == ["2026-11-22"]
        named.query("SET work_mem = '77kB'")
        change(pg, how, "DateStyle", "German, DMY")
        change(pg, how, "TimeZone", "Asia/Tokyo")
        pooler.console("RECONNECT")
        with pooler.raw() as new:
            assert new.parameters["DateStyle"] == "German, DMY"
            assert new.parameters["TimeZone"] == "Asia/Tokyo"
            for _ in range(2):
                assert parameters_and_rows(new.query(DATE)) == ["22.11.2026"]
                for client in (one, named):
                    assert parameters_and_rows(client.query(DATE)) == ["2026-11-22"]
                    assert parameters_and_rows(client.query("SHOW TimeZone")) == [zone]
            assert named.value("SHOW work_mem") == "77kB"
            # RESET restores this value.
            for reset in ("RESET DateStyle", "RESET ALL", "DISCARD ALL"):
                one.query("SET DateStyle = 'SQL, MDY'")
                assert one.value(DATE) == "11/22/2026"
                one.query(reset)
                assert one.parameters["DateStyle"] == "ISO, MDY"
                assert parameters_and_rows(one.query(DATE)) == ["2026-11-22"]
            assert parameters_and_rows(new.query(DATE)) == ["22.11.2026"]


def test_connected_clients_do_not_follow_the_configuration_file(pooler, pg):
    """As with PgBouncer, the reported value counts."""
    with pooler.raw() as one, pooler.raw(DateStyle="ISO, MDY") as wants, pooler.raw(application_name="x") as other:
        for client in (one, wants, other):
            assert parameters_and_rows(client.query(DATE)) == ["2026-11-22"]
        change(pg, "SYSTEM", "DateStyle", "German, DMY")
        pooler.console("RECONNECT")
        with pooler.raw() as new:
            for _ in range(2):
                assert parameters_and_rows(new.query(DATE)) == ["22.11.2026"]
                for client in (one, wants, other):
                    assert parameters_and_rows(client.query(DATE)) == ["2026-11-22"]
            for client in (one, wants):
                client.query("SET DateStyle = 'SQL, MDY'")
                assert parameters_and_rows(new.query(DATE)) == ["22.11.2026"]
                client.query("RESET DateStyle")
                assert client.parameters["DateStyle"] == "ISO, MDY"
                assert parameters_and_rows(client.query(DATE)) == ["2026-11-22"]


def test_an_open_server_adopts_the_new_default(pooler, pg):
    with pooler.raw() as one, pooler.raw() as other, pooler.raw(DateStyle="ISO, MDY") as wants:
        for client in (one, other, wants):
            assert parameters_and_rows(client.query(DATE)) == ["2026-11-22"]
        change(pg, "SYSTEM", "DateStyle", "German, DMY")

        def seen():
            with pooler.raw() as new:
                new.query(DATE)
                return new.parameters["DateStyle"] == "German, DMY"

        machine.wait_until(seen, 20, "the server has heard of it")
        for client in (one, other, wants):
            assert parameters_and_rows(client.query(DATE)) == [client.value(DATE)]
        assert wants.value(DATE) == "2026-11-22"


def test_a_startup_parameter_that_the_client_has_set_again(pooler, pg):
    with pooler.raw(DateStyle="ISO, MDY") as wants, pooler.raw() as one:
        wants.query("SET DateStyle = 'SQL, MDY'")
        change(pg, "SYSTEM", "DateStyle", "German, DMY")
        pooler.console("RECONNECT")
        assert parameters_and_rows(wants.query(DATE)) == ["11/22/2026"]
        wants.query("RESET DateStyle")
        assert wants.parameters["DateStyle"] == "ISO, MDY"
        assert parameters_and_rows(wants.query(DATE)) == ["2026-11-22"]
        assert parameters_and_rows(one.query(DATE)) == ["2026-11-22"]


@pytest.mark.parametrize("how", ["SYSTEM", "DATABASE app"])
def test_a_new_default_of_default_transaction_read_only(pooler, pg, how):
    """After RECONNECT, a new default of `default_transaction_read_only` applies to connected clients, too."""
    with pooler.raw() as one:
        assert one.value("SHOW default_transaction_read_only") == "off"
        change(pg, how, "default_transaction_read_only", "on")
        pooler.console("RECONNECT")
        assert one.value("SHOW transaction_read_only") == "on"
        with pooler.raw() as new:
            assert new.value("SHOW transaction_read_only") == "on"
        assert one.value("SHOW transaction_read_only") == "on"


@pytest.mark.parametrize("startup", [{}, {"extra_float_digits": "2"}, {"IntervalStyle": "iso_8601"}])
def test_a_login_after_reconnect_gets_the_new_values(pooler, pg, startup):
    with pooler.raw(**startup) as before:
        before.value("SELECT 1")
        for style in ("German, DMY", "SQL, MDY"):
            change(pg, "ROLE trusty", "DateStyle", style)
            pooler.console("RECONNECT")
            with pooler.raw(**startup) as new:
                assert new.parameters["DateStyle"] == style
                assert parameters_and_rows(new.query("SHOW DateStyle")) == [style]
        assert parameters_and_rows(before.query("SHOW DateStyle")) == ["ISO, MDY"]
