"""A real etcd on loopback ports, and proxies in front of it and of PostgreSQL that a test can cut."""

import asyncio
import base64
import contextlib
import http.client
import json
import shutil
import signal
import ssl
import subprocess
import threading

import machine


class Etcd:
    """One etcd in a folder. `options` are additional flags. `Members` makes several of them one etcd."""

    def __init__(self, folder, *options, tls=None, name="etcd"):
        self.folder, self.name = folder, name
        self.members = [self]
        self.port, self._peers = machine.free_port(), machine.free_port()
        self._scheme, self._tls = ("https", tls) if tls else ("http", None)
        self._options = options
        self.log = folder / "etcd.log"
        self._process = None

    @property
    def url(self):
        return f"{self._scheme}://127.0.0.1:{self.port}"

    @property
    def _peer_url(self):
        return f"http://127.0.0.1:{self._peers}"

    def start(self):
        self.launch()
        return self.wait()

    def launch(self):
        """Starts the process, and does not wait until it answers."""
        peers = self._peer_url
        everyone = ",".join(f"{one.name}={one._peer_url}" for one in self.members)
        with open(self.log, "a") as out:
            self._process = subprocess.Popen(
                ["etcd", "--name", self.name, "--data-dir", str(self.folder / self.name), "--listen-client-urls", self.url,
                 "--advertise-client-urls", self.url, "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
                 "--initial-cluster", everyone, "--unsafe-no-fsync", "--log-level", "error", *self._options],
                stdout=out, stderr=subprocess.STDOUT)

    def wait(self):
        machine.wait_until(lambda: self.post("/v3/kv/range", key="/") is not None or self._answers(), 20,
                           f"etcd answers ({self.log})")
        return self

    def _answers(self):
        with contextlib.suppress(OSError):
            return self.request("/v3/kv/range", {"key": _encoded("/")})[0] < 500
        return False

    def stop(self):
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self):
        self._process.send_signal(signal.SIGSTOP)

    def resume(self):
        self._process.send_signal(signal.SIGCONT)

    def remove(self):
        self.stop()
        for port in (self.port, self._peers):
            machine.release_port(port)
        shutil.rmtree(self.folder / self.name, ignore_errors=True)

    def save(self):
        """Keeps a copy of the data, as a backup would. etcd must be stopped."""
        shutil.copytree(self.folder / self.name, self.folder / "copy")

    def go_back(self):
        """Replaces the data by the copy of `save`. etcd must be stopped."""
        shutil.rmtree(self.folder / self.name)
        shutil.copytree(self.folder / "copy", self.folder / self.name)

    def request(self, path, body, token=None):
        if self._tls:
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=5, context=self._tls)
        else:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        with contextlib.closing(connection):
            connection.request("POST", path, json.dumps(body), {"Authorization": token} if token else {})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def post(self, path, key=None, value=None, **more):
        """The answer to a request, or None without one."""
        body = more | {name: _encoded(text) for name, text in (("key", key), ("value", value)) if text is not None}
        try:
            status, answer = self.request(path, body)
        except (OSError, ssl.SSLError):
            return None
        return answer if status == 200 else None

    def put(self, key, value):
        assert self.post("/v3/kv/put", key, value) is not None

    def keys(self, prefix="/pgweir/"):
        """The keys with this prefix, and their values."""
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        answer = self.post("/v3/kv/range", prefix, range_end=_encoded(end))
        return {_decoded(pair["key"]): json.loads(_decoded(pair["value"])) for pair in answer.get("kvs", [])}

    def delete(self, key):
        assert self.post("/v3/kv/deleterange", key) is not None


class Members:
    """Several processes of one etcd, in a folder."""

    def __init__(self, folder, count):
        self.members = [Etcd(folder, name=f"member{number}") for number in range(count)]
        for one in self.members:
            one.members = self.members

    @property
    def urls(self):
        return ", ".join(one.url for one in self.members)

    def start(self):
        for one in self.members:
            one.launch()
        for one in self.members:
            one.wait()
        return self

    def remove(self):
        for one in self.members:
            one.remove()


def _encoded(text):
    return base64.b64encode(text.encode()).decode()


def _decoded(text):
    return base64.b64decode(text).decode()


class Proxy:
    """Forwards connections to a port, from an address of its own. While it is cut, it forwards nothing and closes
    nothing. `delay` is the number of seconds that a new connection takes, `lag` that of each message. `host` is the address on
    which the proxy listens.
    """

    def __init__(self, target, source="127.0.0.1", host="127.0.0.1"):
        self.host, self.port = host, machine.free_port()
        self.delay, self.lag = 0, 0
        self._target, self._source = target, source
        self._loop = asyncio.new_event_loop()
        self._flows = None
        self._writers = set()
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        started.wait()

    def _run(self, started):
        asyncio.set_event_loop(self._loop)
        self._flows = asyncio.Event()
        self._flows.set()
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, self.host, self.port))
        started.set()
        self._loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    async def _serve(self, reader, writer):
        await self._pass(self.delay)
        await self._flows.wait()
        try:
            there = await asyncio.open_connection("127.0.0.1", self._target, local_addr=(self._source, 0))
        except OSError:
            writer.close()
            return
        self._writers = {one for one in self._writers if not one.is_closing()} | {writer, there[1]}
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(self._pump(reader, there[1]), self._pump(there[0], writer))

    async def _pass(self, seconds):
        is_due = asyncio.Event()
        self._loop.call_later(seconds, is_due.set)
        await is_due.wait()

    async def _pump(self, reader, writer):
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if self.lag:
                    await self._pass(self.lag)
                await self._flows.wait()
                writer.write(data)
                await writer.drain()
        with contextlib.suppress(OSError, RuntimeError):
            writer.close()

    def drop(self):
        """Closes all connections."""
        self._loop.call_soon_threadsafe(lambda: [writer.close() for writer in self._writers])

    def cut(self):
        self._loop.call_soon_threadsafe(self._flows.clear)

    def restore(self):
        self._loop.call_soon_threadsafe(self._flows.set)

    def stop(self):
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        machine.release_port(self.port)
