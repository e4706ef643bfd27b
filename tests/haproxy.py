"""A HAProxy in front of poolers, which asks each one at /readyz whether it accepts clients."""

import contextlib
import csv
import shutil
import socket
import subprocess

import machine

PROGRAM = shutil.which("haproxy", path="/usr/sbin:/usr/bin")


class HaProxy:
    """Distributes connections to the poolers that are ready. `poolers`: by name, the address, the port for clients and the
    one for HTTP.
    """

    def __init__(self, folder, poolers):
        self.port = machine.free_port()
        self._socket = folder / "haproxy.sock"
        self._config = folder / "haproxy.cfg"
        self.log = folder / "haproxy.log"
        servers = [f"    server {name} {address}:{port} check port {http} inter 100ms fall 1 rise 1\n"
                   for name, (address, port, http) in poolers.items()]
        self._config.write_text(
            f"global\n    stats socket {self._socket} mode 600\n"
            "defaults\n    mode tcp\n    timeout connect 5s\n    timeout client 5m\n    timeout server 5m\n    timeout check 5s\n"
            "    retries 5\n    option redispatch 1\n"
            f"listen postgresql\n    bind 127.0.0.1:{self.port}\n    balance leastconn\n    option httpchk GET /readyz\n"
            "    http-check expect status 200\n" + "".join(servers))
        self._process = None

    def start(self):
        with open(self.log, "a") as out:
            self._process = subprocess.Popen([PROGRAM, "-db", "-f", str(self._config)], stdout=out, stderr=subprocess.STDOUT)
        machine.wait_until(lambda: bool(self.states()), 20, f"HAProxy answers ({self.log})")
        return self

    def states(self):
        """The state of each pooler, as HAProxy sees it: UP or DOWN."""
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as client:
            client.connect(str(self._socket))
            client.sendall(b"show stat\n")
            answer = b"".join(iter(lambda: client.recv(65536), b"")).decode()
            rows = csv.DictReader(answer.removeprefix("# ").splitlines())
            return {row["svname"]: row["status"].split()[0] for row in rows if row["svname"] not in ("FRONTEND", "BACKEND")}
        return {}

    def wait_for(self, name, state):
        machine.wait_until(lambda: self.states().get(name) == state, 30, f"HAProxy sees {name} {state} ({self.log})")

    def stop(self):
        if self._process:
            self._process.kill()
            self._process.wait()
        machine.release_port(self.port)
