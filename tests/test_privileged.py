"""Settings that were made under a role with more privileges, and that PostgreSQL keeps after SET ROLE to another
role. The login user could not make them on another server, so the client keeps its server. They must not affect the
next client of the server.
"""

import pytest

import cluster as clusters
import rawclient as wire

PARAMETER = "log_min_duration_statement"
SHOW = f"SHOW {PARAMETER}"
AS_BOSS = "SET ROLE privileged_boss; {}; RESET ROLE"
SET = f"SET {PARAMETER} = '1min'"
REFUSED = f'permission denied to set parameter "{PARAMETER}"'


@pytest.fixture(params=[pytest.param((name, assist), id=f"{name}-{'assisted' if assist else 'plain'}")
                        for name in ("oldest", "newest") for assist in (False, True)])
def superuser_pg(request, shared_clusters):
    """A PostgreSQL where `trusty` may take the role of a superuser."""
    version = clusters.VERSIONS[0 if request.param[0] == "oldest" else -1]
    pg = shared_clusters(version, assist=request.param[1] or None)
    pg.run("CREATE ROLE privileged_boss SUPERUSER; GRANT privileged_boss TO trusty;"
           f" CREATE FUNCTION privileged_set() RETURNS text LANGUAGE sql SECURITY DEFINER"
           f" AS $$ SELECT set_config('{PARAMETER}', '60000', false) $$", dbname="app")
    yield pg
    pg.run("DROP FUNCTION privileged_set(); DROP ROLE privileged_boss", dbname="app")


@pytest.mark.parametrize("make", [AS_BOSS.format(SET), "SELECT privileged_set()",
                                  f"BEGIN; SET LOCAL ROLE privileged_boss; {SET}; COMMIT"])
def test_a_privileged_setting_pins_its_client(start_pooler, superuser_pg, make):
    pooler = start_pooler(superuser_pg, default_pool_size=1, pinned_overflow=0)
    with pooler.raw() as one, pooler.raw() as other:
        for reset in (AS_BOSS.format(f"RESET {PARAMETER}"), "RESET ALL", "DISCARD ALL"):
            assert not wire.errors(one.query(make))
            other.send(wire.query(SHOW))
            other.quiet(0.2)
            assert one.value(SHOW) == "1min"
            (row,) = pooler.console("SHOW PINS")
            assert row["reason"] == "privileged setting"
            assert REFUSED in str(wire.errors(one.query(f"RESET {PARAMETER}")))
            assert one.value(SHOW) == "1min"
            assert not wire.errors(one.query(reset))
            assert wire.value(other.until_ready()) == "-1"
            assert one.value(SHOW) == "-1"


def test_a_departed_client_affects_no_other(start_pooler, superuser_pg):
    pooler = start_pooler(superuser_pg, default_pool_size=1)
    with pooler.raw() as one:
        one.query(AS_BOSS.format(SET))
    with pooler.raw() as other:
        other.query("SET work_mem = '77kB'")
        assert other.value(SHOW) == "-1"


@pytest.mark.parametrize("login", [{}, {"options": "-c work_mem=77kB"}], ids=["at_checkout", "at_login"])
def test_a_granted_parameter_pins_its_client_too(start_pooler, superuser_pg, login):
    """pgweir does not ask which parameters were granted to a user. A revoked grant affects no other client."""
    pooler = start_pooler(superuser_pg, default_pool_size=1)
    superuser_pg.run(f"GRANT SET ON PARAMETER {PARAMETER} TO trusty")
    try:
        with pooler.raw() as one:
            assert not wire.errors(one.query(SET))
            with pooler.raw() as other:
                assert other.value(SHOW) == "-1"
            (row,) = pooler.console("SHOW PINS")
            assert row["reason"] == "privileged setting"
            superuser_pg.run(f"REVOKE SET ON PARAMETER {PARAMETER} FROM trusty")
            with pooler.raw(**login) as other:
                for _ in range(2):
                    assert other.value(SHOW) == "-1"
                    assert one.value(SHOW) == "1min"
                assert other.value("SHOW work_mem") == ("77kB" if login else "4MB")
            assert REFUSED in str(wire.errors(one.query(f"RESET {PARAMETER}")))
            assert not wire.errors(one.query("RESET ALL"))
            one.query("SELECT 1")
            assert pooler.console("SHOW PINS") == []
    finally:
        superuser_pg.run(f"REVOKE SET ON PARAMETER {PARAMETER} FROM trusty")


@pytest.mark.parametrize("assist", [False, True], ids=["plain", "assisted"])
def test_a_superusers_settings_move_to_another_server(start_pooler, shared_clusters, assist):
    pg = shared_clusters(clusters.VERSIONS[-1], assist=assist or None)
    pooler = start_pooler(pg, default_pool_size=1, users={"postgres": "", "admin": "admin password"})
    with pooler.raw("postgres") as one, pooler.raw("postgres") as other:
        one.query(f"{SET}; SET ROLE trusty")
        for _ in range(2):
            assert other.value(SHOW) == "-1"
            assert one.value(SHOW) == "1min"
            assert one.value("SELECT current_user") == "trusty"
        assert pooler.console("SHOW PINS") == []
