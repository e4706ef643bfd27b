"""io_uring where the kernel denies it or has too little memory: workers use epoll, and clients do not notice."""

import signal

import pytest

import machine
import seccomp
from httpfixtures import http_port  # noqa: F401 (a fixture)
from rawclient import query, value
from scraping import scrape

pytestmark = pytest.mark.pgweir_only("PgBouncer has no io_driver")


def lines(pooler):
    """The log's lines about io_uring."""
    return [line for line in pooler.log().splitlines() if "io_uring" in line]


def expect_service(pooler):
    """Checks that clients are served."""
    with pooler.raw() as client:
        for number in range(20):
            assert client.value(f"SELECT {number}") == str(number)
        assert client.value("SELECT length(repeat('x', 300000))") == "300000"


@pytest.fixture
def pooler(new_pooler, newest_pg, http_port):  # noqa: F811 (a fixture)
    """A pooler that is not started yet, with two workers that are to use io_uring."""
    pooler = new_pooler(newest_pg, workers=2, io_driver="io_uring", http_listen=f"127.0.0.1:{http_port}")
    pooler.http = http_port
    return pooler


@pytest.mark.parametrize("call", ["io_uring_setup", "io_uring_register"])
@pytest.mark.parametrize("driver", ["auto", "io_uring"])
def test_a_forbidden_ring_is_one_line(pooler, call, driver):
    """With seccomp, as in containers, all workers use epoll, also if only the creation of a ring is allowed."""
    pooler.settings["io_driver"] = driver
    seccomp.without(call, pooler.start)
    pooler.expect_log("process up")
    assert pooler.rings() == 0
    (line,) = lines(pooler)
    assert "io_uring is not available (Operation not permitted" in line and "workers use epoll" in line
    assert ("WARNING" in line) == (driver == "io_uring")
    expect_service(pooler)
    assert scrape(pooler.http).value("pgweir_io_uring_workers") == 0


def test_a_limit_on_locked_memory_is_one_line(pooler):
    """Newer kernels count the memory of a ring as the user's locked memory."""
    pooler.write_files()
    pooler.spawn(within=["prlimit", "--memlock=4096"]).listening().expect_log("process up")
    if pooler.rings() == 2:
        pytest.skip("this kernel does not count rings")
    (line,) = lines(pooler)
    assert "io_uring is not available (Cannot allocate memory" in line
    expect_service(pooler)


def test_a_ring_that_fails_later_is_replaced(pooler):
    """The kernel allows the ring, but not its use: each worker logs this, and continues with epoll."""
    seccomp.without("io_uring_enter", pooler.start)
    pooler.expect_log("process up")
    if any("not available" in line for line in lines(pooler)):
        pytest.skip("the kernel forbids io_uring")
    expect_service(pooler)
    failed = [line for line in lines(pooler) if "io_uring has failed: Operation not permitted" in line]
    assert len(failed) == 2
    assert pooler.rings() == 0
    metrics = scrape(pooler.http)
    assert metrics.value("pgweir_io_uring_workers") == 0
    assert metrics.value("pgweir_io_uring_failures_total") == 2


def test_metrics(pooler):
    """The rings and the buffers of both workers."""
    pooler.settings["io_uring_buffers"] = 8
    pooler.start().expect_log("process up")
    if pooler.rings() == 0:
        pytest.skip("the kernel forbids io_uring")
    metrics = scrape(pooler.http)
    assert metrics.value("pgweir_io_uring_workers") == 2
    assert metrics.value("pgweir_io_uring_buffers") == 16


def test_more_answers_than_buffers(pooler, newest_pg):
    """Twelve servers answer while the worker is stopped, and there are eight buffers: pgweir reads the other four as
    with epoll.
    """
    pooler.settings |= {"workers": 1, "io_uring_buffers": 8, "default_pool_size": 12}
    pooler.start().expect_log("process up")
    if pooler.rings() == 0:
        pytest.skip("the kernel forbids io_uring")
    clients = [pooler.raw(application_name=f"c{number}") for number in range(12)]
    for client in clients:
        client.value("BEGIN; SELECT 1")
        # After some short answers, the kernel receives the server's bytes.
        for number in range(10):
            assert client.value(f"SELECT {number}") == str(number)
    with newest_pg.connect("app") as holder:
        holder.execute("SELECT pg_advisory_lock(17)")
        for number, client in enumerate(clients):
            client.send(query(f"SELECT {number} FROM pg_advisory_lock_shared(17)"))
        machine.wait_until(lambda: len(newest_pg.running("%advisory_lock_shared(17)")) == 12, what="all wait")
        machine.stand_still(pooler.process)
    machine.wait_until(lambda: not newest_pg.running("%advisory_lock_shared(17)"), what="all have answered")
    pooler.signal(signal.SIGCONT)
    for number, client in enumerate(clients):
        assert value(client.until_ready()) == str(number)
        assert client.value("SELECT 'again'") == "again"
    # The kernel says for each receive that it found no buffer.
    assert scrape(pooler.http).value("pgweir_io_uring_buffer_shortages_total") >= 1
