"""A fake of Patroni's REST API, which answers as a test demands."""

import contextlib
import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import machine


def member(name, role, server, **more):
    """A member as Patroni lists it."""
    state = "running" if role == "leader" else "streaming"
    return {"name": name, "role": role, "state": state, "host": server.host, "port": server.port, "timeline": 1, "lag": 0} | more


class FakePatroni:
    """Answers GET /cluster with `status`, `headers` and `body`, by TLS if `site` (a certificate) is given. With `clients` (a file with
    authorities), clients need a certificate. Does not answer while it is held.
    """

    def __init__(self, *members, site=None, token=None, clients=None):
        self.port = machine.free_port()
        self.url = f"{'https' if site else 'http'}://127.0.0.1:{self.port}"
        self.requests = 0
        self.site, self.token, self.clients = site, token, clients
        self._goes_on = threading.Event()
        self._server = None
        self.reports(*members)

    def reports(self, *members):
        """Sets the members that the API reports."""
        self.says(json.dumps({"members": list(members), "scope": "shop"}))

    def says(self, body, status=200, **headers):
        """Sets the answer."""
        self._goes_on.set()
        self.status, self.headers, self.body = status, headers, body.encode()

    def hold(self):
        """Stops answering requests."""
        self._goes_on.clear()

    def __enter__(self):
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                fake.requests += 1
                fake._goes_on.wait(30)
                with contextlib.suppress(OSError):
                    fake._answer(self)

            def log_message(self, *_):
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                """Ignores clients that close the connection early."""

        self._server = Server(("127.0.0.1", self.port), Handler)
        if self.site:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.site.cert, self.site.key)
            if self.clients:
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_verify_locations(self.clients)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self._goes_on.set()
        self._server.shutdown()
        self._server.server_close()
        machine.release_port(self.port)

    def _answer(self, request):
        status, body = self.status, self.body
        if request.path != "/cluster":
            status, body = 404, b""
        if self.token and request.headers.get("Authorization") != self.token:
            status, body = 401, b""
        request.send_response(status)
        for name, value in self.headers.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)
