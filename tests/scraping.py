"""Requests over HTTP, and Prometheus' text formats read back."""

import http.client
import re
import socket

OPEN = "application/openmetrics-text; version=1.0.0"

_SAMPLE = re.compile(r'(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)')
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')
_ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path, timeout=20):
        super().__init__("localhost", timeout=timeout)
        self._path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Answer:
    """The answer to a request."""

    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.text = response.read().decode()


def ask(connection, path, method="GET", body=None, **headers):
    """Sends a request on a connection of its own."""
    try:
        connection.request(method, path, body, {name.replace("_", "-"): text for name, text in headers.items()})
        return Answer(connection.getresponse())
    finally:
        connection.close()


def get(port, path, method="GET", host="127.0.0.1", timeout=20, body=None, **headers):
    """Sends a request over TCP."""
    return ask(http.client.HTTPConnection(host, port, timeout=timeout), path, method, body, **headers)


class Metrics:
    """The samples of a scrape: values by name and labels."""

    def __init__(self, text, is_open=False):
        self.samples = {}
        self.types = {}
        self.helps = {}
        lines = text.splitlines()
        assert text.endswith("\n")
        if is_open:
            assert lines.pop() == "# EOF"
        family = None
        for line in lines:
            if line.startswith("# HELP "):
                _, _, family, help_text = line.split(" ", 3)
                assert family not in self.helps, f"{family} is there twice"
                self.helps[family] = help_text
            elif line.startswith("# TYPE "):
                _, _, name, kind = line.split(" ")
                assert name == family, line
                self.types[name] = kind
            else:
                found = _SAMPLE.fullmatch(line)
                assert found, line
                assert found["name"].startswith(family), f"{line} in family {family}"
                key = (found["name"], self._labels(found["labels"] or ""))
                assert key not in self.samples, f"{line} is there twice"
                self.samples[key] = float(found["value"])
        self.names = {name for name, _ in self.samples}

    @staticmethod
    def _labels(text):
        labels, at = {}, 0
        while at < len(text):
            found = _LABEL.match(text, at)
            assert found, text
            labels[found[1]] = re.sub(r'\\["\\n]', lambda escape: _ESCAPES[escape[0]], found[2])
            at = found.end()
        return frozenset(labels.items())

    def value(self, name, /, **labels):
        """The value of the one series of this name and these labels, or 0."""
        return self.samples.get((name, frozenset(labels.items())), 0)

    def series(self, name, /, **labels):
        """Labels and values of all series of this name that have these labels."""
        wanted = labels.items()
        return [(dict(own), value) for (one, own), value in self.samples.items() if one == name and wanted <= dict(own).items()]


def scrape(port, **headers):
    """The metrics of a pooler."""
    answer = get(port, "/metrics", **headers)
    assert answer.status == 200, answer.text
    return Metrics(answer.text, "openmetrics" in answer.headers["Content-Type"])
