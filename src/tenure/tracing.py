"""Traces, where OpenTelemetry is installed and set up; elsewhere every function here does nothing, and imports nothing.

One trace for each submission: the client's span, the job as its leader saw it, each attempt, and whatever the workflow itself opens. The
context travels in the label `traceparent` of the submission (W3C Trace Context) and in the work item.

A program that has set up a tracer provider is traced. Nodes set one up themselves when OTEL_EXPORTER_OTLP_ENDPOINT (or
OTEL_EXPORTER_OTLP_TRACES_ENDPOINT) is set and `tenure[otel]` is installed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanKind, Tracer
    from opentelemetry.trace import TracerProvider as Provider

LABEL = "traceparent"
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")

_provider: Provider | None = None
"""For tests; a program's own is asked of OpenTelemetry."""


def tracer() -> Tracer | None:
    """Returns the tracer; None where nobody collects traces, which costs a look into a dictionary."""
    if _provider is not None:
        return _provider.get_tracer("tenure")
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    found = trace.get_tracer_provider()
    if type(found).__name__ in ("ProxyTracerProvider", "NoOpTracerProvider", "DefaultTracerProvider"):
        return None  # the library is there, and nobody set it up
    made: Tracer = found.get_tracer("tenure")
    return made


def set_up(service: str) -> bool:
    """Export this process's spans, if the environment says where to; True when it does."""
    if tracer() is not None or not any(os.environ.get(name) for name in ENDPOINTS):
        return False
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        return False
    named = os.environ.get("OTEL_SERVICE_NAME") or service
    provider = TracerProvider(resource=Resource.create({"service.name": named}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return True


def flush() -> None:
    """Sends what is waiting, for two seconds at most, before a process ends without ado."""
    if tracer() is None:
        return
    provider = _provider or sys.modules["opentelemetry.trace"].get_tracer_provider()
    if hasattr(provider, "force_flush"):
        provider.force_flush(2_000)


class Spanned:
    """A span that is open, or nothing."""

    def __init__(self, span: Span | None = None) -> None:
        self._span = span

    @property
    def traceparent(self) -> str:
        """The trace context for a child in another process; empty when nothing is traced."""
        if self._span is None:
            return ""
        context = self._span.get_span_context()
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"

    def fail(self, reason: str, stack: str = "") -> None:
        """Marks the span as failed. `stack` becomes the stack trace of an `exception` event, as OpenTelemetry has it."""
        if self._span is not None:
            from opentelemetry.trace import Status, StatusCode

            self._span.set_status(Status(StatusCode.ERROR, reason[:500]))
            if stack:
                told = {"exception.message": reason[:500], "exception.stacktrace": stack}
                self._span.add_event("exception", told)


UNTRACED = nullcontext(Spanned())
"""One for all: a slot opens two spans for each attempt, and nearly nobody collects them."""


def span(
    name: str, attributes: Mapping[str, Any], *, kind: str = "INTERNAL", parent: str = ""
) -> AbstractContextManager[Spanned]:
    """Open a span as the current one; below `parent`, a traceparent, where it is given."""
    found = tracer()
    return UNTRACED if found is None else _opened(found, name, attributes, kind, parent)


@contextmanager
def _opened(found: Tracer, name: str, attributes: Mapping[str, Any], kind: str, parent: str) -> Iterator[Spanned]:
    with found.start_as_current_span(
        name, context=_context(parent), kind=_kind(kind), attributes=dict(attributes), end_on_exit=True
    ) as opened:
        yield Spanned(opened)


def record(
    name: str, attributes: Mapping[str, Any], *, parent: str, begun: float, ended: float, error: str = ""
) -> None:
    """Records a span of the past. Times are Unix seconds."""
    found = tracer()
    if found is None:
        return
    made = found.start_span(
        name,
        context=_context(parent),
        kind=_kind("INTERNAL"),
        attributes=dict(attributes),
        start_time=round(begun * 1e9),
    )
    if error:
        Spanned(made).fail(error)
    made.end(round(max(begun, ended) * 1e9))


def trace_id(traceparent: str) -> str:
    """Returns the 32 digits by which logs and traces find each other; empty for what is none."""
    parts = traceparent.split("-")
    return parts[1] if len(parts) == 4 and len(parts[1]) == 32 else ""


def _kind(name: str) -> SpanKind:
    from opentelemetry.trace import SpanKind

    return SpanKind[name]


def _context(traceparent: str) -> Any:
    """Returns the context of a traceparent; None stands for the current one."""
    if not trace_id(traceparent):
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({"traceparent": traceparent})
