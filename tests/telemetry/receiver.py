"""An OTLP/HTTP receiver as a process of its own: decodes with the official protobuf types.

    python -m tests.telemetry.receiver

prints its port; `GET /` gives everything that has arrived: `{"spans": [...], "metrics": [...]}`.
"""

import gzip
import json
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


def attributes(pairs: Iterable[Any]) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


def spans(body: bytes) -> list[dict[str, Any]]:
    request = ExportTraceServiceRequest.FromString(body)
    return [
        {
            "name": span.name,
            "kind": span.kind,
            "trace": span.trace_id.hex(),
            "id": span.span_id.hex(),
            "parent": span.parent_span_id.hex(),
            "start": span.start_time_unix_nano,
            "end": span.end_time_unix_nano,
            "status": span.status.code,
            "scope": scope.scope.name,
            "attributes": attributes(span.attributes),
            "service": attributes(resource.resource.attributes)["service.name"],
        }
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def metrics(body: bytes) -> list[dict[str, Any]]:
    request = ExportMetricsServiceRequest.FromString(body)
    return [
        {
            "name": metric.name,
            "kind": metric.WhichOneof("data"),
            "points": [attributes(p.attributes) for p in getattr(metric, metric.WhichOneof("data") or "").data_points],
        }
        for resource in request.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    ]


class Handler(BaseHTTPRequestHandler):
    arrived: ClassVar[dict[str, list[dict[str, Any]]]] = {"spans": [], "metrics": []}

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        if self.path == "/v1/traces":
            self.arrived["spans"] += spans(body)
            self.answer("application/x-protobuf", ExportTraceServiceResponse().SerializeToString())
        else:
            self.arrived["metrics"] += metrics(body)
            self.answer("application/x-protobuf", ExportMetricsServiceResponse().SerializeToString())

    def do_GET(self) -> None:
        self.answer("application/json", json.dumps(self.arrived).encode())

    def answer(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()
