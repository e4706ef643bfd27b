"""An OpenTelemetry collector that keeps what it gets: OTLP over HTTP, in protobuf."""

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

import machine


def values(attributes):
    """Attributes as a dict."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


class Collector:
    """Answers requests to `url` with `status`. Does not answer while `holds` is set."""

    def __init__(self):
        self.port = machine.free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.status = 200
        self.requests = []
        self.problems = []
        self._goes_on = threading.Event()
        self._goes_on.set()
        self._server = None

    # -- start and end

    def start(self):
        collector = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                collector._take(self)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def stop(self):
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def hold(self):
        """Stops answering requests."""
        self._goes_on.clear()

    def go_on(self):
        self._goes_on.set()

    def end(self):
        self.go_on()
        self.stop()
        machine.release_port(self.port)
        assert self.problems == []

    def _take(self, handler):
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        if handler.headers["Content-Type"] != "application/x-protobuf":
            self.problems.append(f"Content-Type {handler.headers['Content-Type']}")
        self._goes_on.wait()
        if self.status == 200:
            kind = {"/v1/traces": ExportTraceServiceRequest, "/v1/metrics": ExportMetricsServiceRequest}.get(handler.path)
            if kind is None:
                self.problems.append(f"path {handler.path}")
            else:
                self.requests.append(kind.FromString(body))
        with contextlib.suppress(OSError):
            handler.send_response(self.status)
            handler.send_header("Content-Length", "0")
            handler.end_headers()

    # -- received data

    def resources(self):
        """The attributes of each resource that has sent something."""
        taken = list(self.requests)
        parts = [part for request in taken for part in getattr(request, "resource_spans", None) or request.resource_metrics]
        return [values(part.resource.attributes) for part in parts]

    def spans(self, name=None):
        """All spans, or those of this name."""
        taken = [request for request in list(self.requests) if isinstance(request, ExportTraceServiceRequest)]
        spans = [span for request in taken for part in request.resource_spans for scope in part.scope_spans for span in scope.spans]
        return [span for span in spans if name in (None, span.name)]

    def metrics(self):
        """The last report of metrics, by name."""
        taken = [request for request in list(self.requests) if isinstance(request, ExportMetricsServiceRequest)]
        if not taken:
            return {}
        return {metric.name: metric for part in taken[-1].resource_metrics for scope in part.scope_metrics for metric in scope.metrics}


def duration_us(span):
    return (span.end_time_unix_nano - span.start_time_unix_nano) / 1000
