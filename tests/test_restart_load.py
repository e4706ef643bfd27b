"""Online restarts, reloads, pauses and changes of the certificate, all under the load of pgbench: no transaction
fails."""

import shutil
import subprocess

import pytest

import certs
import cluster as clusters
import machine
from restarting import Line
from tlsfixtures import NAMES

pytestmark = pytest.mark.pgweir_only("PgBouncer's online restart has other ways")

TAKEN = "accepts clients, ours leave for it"


class Bench:
    """A pgbench that runs for some seconds."""

    def __init__(self, pooler, *flags, tls, clients, seconds):
        script = pooler.folder / "script.sql"
        if not script.exists():
            script.write_text("BEGIN;\nSELECT 1;\nSELECT pg_sleep(0.001);\nEND;\nSELECT 2;\n")
            machine.give_to_service(script)
        # The pgbench of version 18 has no TLS.
        pgbench = clusters.bindir(clusters.VERSIONS[0]) / "pgbench"
        command = [pgbench, "-n", "-f", script, *flags, "-c", clients, "-j", clients,
                   "-T", seconds, "-h", pooler.host, "-p", pooler.port, "-U", "trusty", "app"]
        self.process = subprocess.Popen(
            [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={"PGSSLMODE": "require" if tls else "disable", "PATH": "/usr/bin:/bin"})

    def runs(self):
        return self.process.poll() is None

    def check(self):
        output, _ = self.process.communicate(timeout=120)
        assert self.process.returncode == 0 and "failed transactions: 0" in output, output
        assert "aborted" not in output and "error" not in output, output


class Operator:
    """Does what operators do, one command after the other."""

    def __init__(self, line, sites, place):
        self.line = line
        self.pooler = line.pooler
        self.sites = sites
        self.place = place
        self.restarts = self.turns = 0
        self.old = None

    def turn(self):
        """Reloads, and does one or two things more."""
        self.pooler.console("RELOAD")
        if self.turns % 2:
            self.pooler.console("PAUSE")
            self.pooler.console("RESUME")
        self.change_certificate(self.sites[self.turns % 2])
        self.restart()
        self.turns += 1

    def change_certificate(self, site):
        install(site, self.place)
        self.pooler.console("RELOAD")
        new = site.cert.read_text()
        shown = lambda: certs.served(self.pooler.host, self.pooler.port).strip() == new.strip()
        machine.wait_until(shown, what="the new certificate is shown")

    def restart(self):
        """Restarts only if the last process has ended: clients over TLS may still be connected to it."""
        if self.old and self.old.poll() is None:
            return
        self.end()
        self.old = self.line.restart()
        self.restarts += 1
        taken = lambda: self.pooler.log().count(TAKEN) >= self.restarts
        machine.wait_until(taken, 30, "the new process accepts")

    def end(self, seconds=30):
        """Checks that the last process has ended without an error."""
        if self.old:
            self.line.done(self.old, seconds)


def install(site, place):
    """Puts a certificate and its key where the pooler reads them."""
    for source, name in ((site.cert, "site.crt"), (site.key, "site.key")):
        new = place / f"{name}.new"
        shutil.copy(source, new)
        new.chmod(0o600)
        machine.give_to_service(new)
        new.rename(place / name)


@pytest.mark.parametrize("mode", ["simple", "extended", "prepared"])
def test_pgbench(new_pooler, newest_pg, certificates, mode, request):
    full = request.config.getoption("--full")
    seconds, clients = (60, 200) if full else (6, 40)
    pooler = new_pooler(newest_pg, max_client_conn=500, default_pool_size=10, client_tls_sslmode="allow")
    pooler.settings |= {"client_tls_cert_file": pooler.folder / "site.crt",
                        "client_tls_key_file": pooler.folder / "site.key"}
    sites = [certificates.authority.issue(f"change-{n}", names=NAMES) for n in range(2)]
    install(sites[1], pooler.folder)
    pooler.start()
    operator = Operator(Line(pooler), sites, pooler.folder)
    whole = {"seconds": seconds}
    benches = [
        Bench(pooler, "-M", mode, tls=False, clients=clients, **whole),
        # These clients stay with the process that they have connected to.
        Bench(pooler, "-M", mode, tls=True, clients=clients // 10, seconds=seconds // 3),
        # These clients connect again and see each new certificate.
        Bench(pooler, "-C", tls=True, clients=2, **whole),
    ]
    machine.wait_until(lambda: len(pooler.console("SHOW CLIENTS")) > clients, 30, "they run")
    while any(bench.runs() for bench in benches):
        operator.turn()
        try:
            benches[0].process.wait(1)
        except subprocess.TimeoutExpired:
            continue
    for bench in benches:
        bench.check()
    operator.end()
    assert operator.restarts >= (5 if full else 2)


def test_pgbench_in_session_mode(new_pooler, newest_pg):
    """Each client takes its server along."""
    pooler = new_pooler(newest_pg, pool_mode="session", default_pool_size=8)
    pooler.start()
    line = Line(pooler)
    bench = Bench(pooler, "-M", "prepared", tls=False, clients=8, seconds=4)
    machine.wait_until(lambda: len(newest_pg.backends("datname = 'app' AND usename = 'trusty'")) == 8, 20, "they run")
    servers = {row["ptr"]: row["remote_pid"] for row in pooler.console("SHOW SERVERS")}
    for _ in range(2):
        line.full()
    assert bench.runs()
    assert {row["remote_pid"] for row in pooler.console("SHOW SERVERS")} == set(servers.values())
    bench.check()
