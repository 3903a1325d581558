"""Exports spans and metrics to an OpenTelemetry collector, configured by the standard OTEL_* variables.

OpenTelemetry's SDK is imported only if one of them asks for an export. The SDK itself reads the rest:
OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_TRACES_SAMPLER, OTEL_EXPORTER_OTLP_HEADERS, OTEL_BSP_*, and so on.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from time import monotonic
from types import MappingProxyType
from typing import Any, Literal, Self, TypeAlias

from shortlist.observability.metrics import Family, Instruments, Labels, Reading

logger = logging.getLogger(__name__)

OtelSignal: TypeAlias = Literal["traces", "metrics"]
PROTOCOL = "http/protobuf"
SERVICE = "shortlist"
FLUSH_SECONDS = 2.0
"""How long a collector that does not answer may delay the exit."""


def wants(signal: OtelSignal, environment: Mapping[str, str]) -> bool:
    """Return whether the environment enables a signal: by an exporter, or by an endpoint."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporter = environment.get(f"OTEL_{signal.upper()}_EXPORTER")
    if exporter is not None:
        return "otlp" in (name.strip() for name in exporter.split(","))
    places = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
    return any(environment.get(place) for place in places)


class Export:
    """A running export to a collector."""

    def __init__(self, stops: Mapping[OtelSignal, Callable[[], None]] = MappingProxyType({})) -> None:
        self.signals = tuple(stops)
        self._enders = [threading.Thread(target=stop, daemon=True) for stop in stops.values()]
        self._ended = False

    def end(self) -> None:
        """Start the final flush in the background: clients do not wait long for an exit."""
        for thread in () if self._ended else self._enders:
            thread.start()
        self._ended = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        until = monotonic() + FLUSH_SECONDS
        for thread in self._enders:
            thread.join(max(until - monotonic(), 0))


def exporting(environment: Mapping[str, str], instruments: Instruments, version: str) -> Export:
    """Start the exports that the environment enables."""
    signals: tuple[OtelSignal, ...] = ("traces", "metrics")
    wanted = [signal for signal in signals if wants(signal, environment)]
    if not wanted:
        return Export()
    try:
        resource = _resource(environment, version)
    except ImportError:
        logger.warning(
            "OTEL_* variables ask for telemetry, but OpenTelemetry's SDK is not installed: "
            "pip install 'shortlist-mcp[otel]'. Nothing is exported."
        )
        return Export()
    _check_protocol(environment)
    start: Mapping[OtelSignal, Callable[[Any], Callable[[], None]]] = {
        "traces": _start_traces,
        "metrics": lambda resource: _start_metrics(resource, instruments),
    }
    return Export({signal: start[signal](resource) for signal in wanted})


def _check_protocol(environment: Mapping[str, str]) -> None:
    asked = environment.get("OTEL_EXPORTER_OTLP_PROTOCOL", PROTOCOL)
    if asked != PROTOCOL:
        logger.warning("OTEL_EXPORTER_OTLP_PROTOCOL is %r, but only %s is supported; using that.", asked, PROTOCOL)


def _resource(environment: Mapping[str, str], version: str) -> Any:
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - only when it is asked for

    named = environment.get("OTEL_SERVICE_NAME") or "service.name=" in environment.get("OTEL_RESOURCE_ATTRIBUTES", "")
    ours = {"service.version": version}
    return Resource.create(ours if named else {**ours, "service.name": SERVICE})


def _start_traces(resource: Any) -> Callable[[], None]:
    from opentelemetry import trace  # noqa: PLC0415
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)

    return provider.shutdown


def _start_metrics(resource: Any, instruments: Instruments) -> Callable[[], None]:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415

    reader = PeriodicExportingMetricReader(OTLPMetricExporter())
    provider = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
    instruments.mirror(MeterMirror(provider.get_meter(SERVICE)))
    return provider.shutdown


class MeterMirror:
    """Mirrors metric families as instruments of an OpenTelemetry meter."""

    def __init__(self, meter: Any) -> None:
        self._meter = meter
        self._made: dict[Family, Callable[[float, Mapping[str, str]], None]] = {}

    def add(self, family: Family, labels: Labels, amount: float) -> None:
        if family not in self._made:
            self._made[family] = self._make(family)
        self._made[family](amount, _attributes(family, labels))

    def watch(self, family: Family, reading: Reading) -> None:
        from opentelemetry.metrics import Observation  # noqa: PLC0415

        def observe(_: Any) -> list[Observation]:
            return [Observation(value, _attributes(family, labels)) for labels, value in reading().items()]

        counts = family.kind == "counter"
        create = self._meter.create_observable_counter if counts else self._meter.create_observable_gauge
        create(family.name, [observe], unit=family.unit, description=family.help)

    def _make(self, family: Family) -> Callable[[float, Mapping[str, str]], None]:
        if family.kind == "counter":
            add: Callable[[float, Mapping[str, str]], None] = self._meter.create_counter(
                family.name, unit=family.unit, description=family.help
            ).add
            return add
        record: Callable[[float, Mapping[str, str]], None] = self._meter.create_histogram(
            family.name,
            unit=family.unit,
            description=family.help,
            explicit_bucket_boundaries_advisory=family.buckets,
        ).record
        return record


def _attributes(family: Family, labels: Labels) -> dict[str, str]:
    return {key: value for key, value in zip(family.labels, labels, strict=True) if value}
