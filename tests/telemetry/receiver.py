"""An OTLP/HTTP receiver as a process of its own: decodes with the official protobuf types, writes a JSON line each.

    python -m tests.telemetry.receiver

prints its port first, then `{"spans": [...]}` or `{"metrics": [...]}` for every request that it takes.
"""

import gzip
import json
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

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
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        traces = self.path == "/v1/traces"
        found = {"spans": spans(body)} if traces else {"metrics": metrics(body)}
        print(json.dumps(found), flush=True)
        answer = (ExportTraceServiceResponse() if traces else ExportMetricsServiceResponse()).SerializeToString()
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        """Say nothing: stdout is for what arrived."""


if __name__ == "__main__":
    server = HTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()
