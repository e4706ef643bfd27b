"""Failed logins: their errors are delayed, and after several of them the user is banned from the address."""

import time

import psycopg
import pytest

import rawclient as wire
from pooler import default_users
from rawclient import LoginRefused

pytestmark = pytest.mark.pgweir_only("has no bans")
BANNED = "too many failed logins (auth_failure_limit)"


def refusal(pooler, user, password, **options):
    with pytest.raises(LoginRefused) as refused:
        pooler.raw(user, password=password, **options)
    return refused.value.sqlstate, refused.value.words


def log_in(pooler, user):
    assert pooler.raw(user, password=default_users()[user]).value("SELECT 1") == "1"


def bans(pooler):
    return pooler.console("SHOW BANS")


def start(start_pooler, pg, **settings):
    settings = {"auth_type": "scram-sha-256", "auth_failure_limit": 3, "auth_failure_delay": 0} | settings
    return start_pooler(pg, **settings)


OTHER = "hashed"
WRONG = ("28P01", "SASL authentication failed")


@pytest.mark.shows("auth_failure_limit", "auth_ban_time")
@pytest.mark.parametrize("user", ["scrammed", "stranger"])
def test_a_ban_after_failures(start_pooler, newest_pg, user):
    """The ban holds in all workers, for this user and this address only, whether the user exists or not."""
    pooler = start(start_pooler, newest_pg, auth_ban_time=3, workers=2)
    for _ in range(3):
        assert refusal(pooler, user, "wrong") == WRONG
    for _ in range(6):
        assert refusal(pooler, user, None) == ("28000", BANNED)
    (row,) = bans(pooler)
    assert (row["address"], row["user"], row["state"], row["failures"]) == ("127.0.0.1", user, "banned", 3)
    assert 1 <= row["ends_in"] <= 3
    pooler.expect_log("3 failed logins from 127.0.0.1: banned for 3 s")
    (event,) = [row for row in pooler.console("SHOW EVENTS") if row["kind"] == "login_banned"]
    assert event["user"] == ("scrammed" if user == "scrammed" else "")
    log_in(pooler, OTHER)
    if user == "scrammed":
        deadline = time.monotonic() + 10
        while bans(pooler):
            assert time.monotonic() < deadline
        log_in(pooler, "scrammed")


def test_the_right_password_does_not_help_a_login_that_is_under_way(start_pooler, newest_pg):
    pooler = start(start_pooler, newest_pg, auth_type="plain")
    early = pooler.socket()
    early.send(wire.startup(user="scrammed", database="app"))
    early.expect("R")
    for _ in range(3):
        refusal(pooler, "scrammed", "wrong")
    early.send(wire.frame("p", wire.text(default_users()["scrammed"])))
    (error,) = wire.errors(early.rest())
    assert error == ("28000", BANNED)


def test_a_success_sets_the_count_to_0(start_pooler, newest_pg):
    pooler = start(start_pooler, newest_pg)
    for _ in range(3):
        refusal(pooler, "scrammed", "wrong")
        refusal(pooler, "scrammed", "wrong")
        log_in(pooler, "scrammed")
    assert bans(pooler) == []


@pytest.mark.shows("auth_failure_window")
def test_failures_long_ago_do_not_count(start_pooler, newest_pg):
    pooler = start(start_pooler, newest_pg, auth_failure_window=1)
    refusal(pooler, "scrammed", "wrong")
    refusal(pooler, "scrammed", "wrong")
    deadline = time.monotonic() + 10
    while bans(pooler):
        assert time.monotonic() < deadline
    refusal(pooler, "scrammed", "wrong")
    log_in(pooler, "scrammed")


@pytest.mark.shows("auth_failure_delay")
def test_each_failure_is_answered_later(start_pooler, newest_pg):
    """The delay grows, and does not delay others."""
    pooler = start(start_pooler, newest_pg, auth_failure_limit=10, auth_failure_delay=0.5)
    took = []
    for _ in range(3):
        before = time.monotonic()
        assert refusal(pooler, "scrammed", "wrong") == WRONG
        took.append(time.monotonic() - before)
    assert 0.45 < took[0] < 1.5, took
    assert 0.95 < took[1] < 2, took
    assert 1.95 < took[2] < 3.5, took
    slow = pooler.socket()
    slow.send(wire.startup(user="stranger", database="app"))
    before = time.monotonic()
    log_in(pooler, OTHER)
    assert time.monotonic() - before < 0.4


def test_unban(start_pooler, newest_pg):
    pooler = start(start_pooler, newest_pg, auth_failure_limit=1)
    for whom in ("scrammed", "127.0.0.1", '"127.0.0.1"', ""):
        refusal(pooler, "scrammed", "wrong")
        assert refusal(pooler, "scrammed", None) == ("28000", BANNED)
        pooler.console(f"UNBAN {whom}")
        assert bans(pooler) == []
        log_in(pooler, "scrammed")
    with pytest.raises(psycopg.Error, match="no failed logins of: nobody"):
        pooler.console("UNBAN nobody")
    pooler.expect_log("audit: ")


@pytest.mark.guards("console_rights")
def test_only_admins_see_and_lift_bans(start_pooler, newest_pg):
    stats = start(start_pooler, newest_pg).raw("stats", "pgbouncer", "stats password")
    for text in ("SHOW BANS", "UNBAN", "UNBAN 10.0.0.1"):
        assert wire.errors(stats.query(text)) == [("08P01", "admin access needed")], text


@pytest.mark.shows("auth_ban_size")
def test_the_table_is_bounded(start_pooler, newest_pg):
    pooler = start(start_pooler, newest_pg, auth_ban_size=5)
    for number in range(20):
        refusal(pooler, f"stranger{number}", "wrong")
        assert len(bans(pooler)) <= 5
    assert bans(pooler)[0]["user"] == "stranger19"


def test_nothing_is_counted_without_the_limit(start_pooler, newest_pg):
    pooler = start(start_pooler, newest_pg, auth_failure_limit=0)
    for _ in range(5):
        assert refusal(pooler, "scrammed", "wrong") == WRONG
    assert bans(pooler) == []
    log_in(pooler, "scrammed")


def test_unix_sockets_are_exempt(start_pooler, newest_pg):
    pooler = start(start_pooler, newest_pg, auth_failure_limit=1)
    for _ in range(3):
        with pytest.raises(psycopg.OperationalError, match="SASL authentication failed"):
            psycopg.connect(host=str(pooler.folder), port=pooler.port, user="scrammed", password="wrong", dbname="app")
    assert bans(pooler) == []
