"""A tool is a function with typed parameters that a model may call. A `ToolContext` tells it where it works.

This file says what a tool is. Running one, with its beats and its rollback, is `tool_executor`.

JSON schemas of parameters and outputs, in the form that providers take: one object, no references, closed.

Counts the calls of an agent's tools, by name: a fold over its session, and counters for Prometheus.

Names are those of tools that exist; what a model makes up is counted as `unknown`, so that no model can invent labels.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import msgspec

from tenure.agent.budget import Countdown, Deadline
from tenure.agent.events import Event, ToolAnswered
from tenure.beat.heartbeat import Heartbeat
from tenure.beat.metrics import counter
from tenure.clock import SystemClock
from tenure.errors import AgentError, ConfigurationError, LimitError, ResourceMissingError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from tenure.agent.prompt import Prompt
    from tenure.agent.session import Session


_REF = "#/$defs/"


def schema_of(kind: Any) -> dict[str, Any]:
    """Returns the schema of a type, with its references put in place. Recursive types are refused: providers do not take them."""
    try:
        schema = msgspec.json.schema(kind)
    except TypeError as error:
        raise ConfigurationError(
            f"{kind!r} has no JSON schema: {error}",
            remedy="Use a dataclass, a msgspec.Struct or a TypedDict of plain JSON types",
        ) from error
    found: dict[str, Any] = _inlined(schema, schema.get("$defs", {}), ())
    found.pop("$defs", None)
    return found


def closed(schema: Any) -> Any:
    """Returns the schema as strict modes want it: every property is required, and no other is allowed."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(value) for key, value in schema.items() if key != "default"}
    if isinstance(schema.get("properties"), dict):
        found["properties"] = {name: closed(value) for name, value in schema["properties"].items()}
        found["required"] = list(schema["properties"])
        found["additionalProperties"] = False
    return found


def _inlined(part: Any, definitions: dict[str, Any], inside: tuple[str, ...]) -> Any:
    if isinstance(part, list):
        return [_inlined(one, definitions, inside) for one in part]
    if not isinstance(part, dict):
        return part
    reference = part.get("$ref")
    if isinstance(reference, str) and reference.startswith(_REF):
        name = reference.removeprefix(_REF)
        if name in inside:
            raise ConfigurationError(f"{name} contains itself, and no provider takes such a schema")
        rest = {key: value for key, value in part.items() if key != "$ref"}
        return {**_inlined(definitions[name], definitions, (*inside, name)), **rest}
    return {key: _inlined(value, definitions, inside) for key, value in part.items() if key != "$defs"}


ParamsT = TypeVar("ParamsT")
ValueT = TypeVar("ValueT")
ResourceT = TypeVar("ResourceT")


class Resources:
    """Objects that tools work with, by type: `context.resources.get(Filesystem)`."""

    def __init__(self, provided: Mapping[type[object], object] | None = None) -> None:
        self._provided = dict(provided or {})
        for kind, thing in self._provided.items():
            if not isinstance(thing, kind):
                raise ConfigurationError(f"the resource for {kind.__name__} is a {type(thing).__name__}")

    @classmethod
    def of(cls, given: Mapping[type[object], object] | Resources | None) -> Resources:
        return given if isinstance(given, Resources) else cls(given)

    def get(self, kind: type[ResourceT]) -> ResourceT:
        try:
            return cast(ResourceT, self._provided[kind])
        except KeyError:
            raise ResourceMissingError(kind) from None

    def __contains__(self, kind: type[object]) -> bool:
        return kind in self._provided


@dataclass(frozen=True, slots=True)
class Effort:
    """The time and the beats that a call took."""

    seconds: float = 0.0
    beats: int = 0


@dataclass(frozen=True)
class ToolResult(Generic[ValueT]):
    """The outcome of a tool call. The model reads a failure and may do better; the session is then as before the call."""

    success: bool
    value: ValueT | None = None
    message: str = ""
    effort: Effort = field(default=Effort(), repr=False, compare=False)
    """Measured by the executor."""

    @classmethod
    def ok(cls, value: ValueT, message: str = "") -> ToolResult[ValueT]:
        return cls(True, value, message)

    @classmethod
    def error(cls, message: str) -> ToolResult[ValueT]:
        return cls(False, None, message)

    def text(self) -> str:
        """Returns the result as the model reads it: the value as JSON (a string as it is), or what went wrong."""
        if not self.success:
            return f"Error: {self.message}"
        shown = self.value if isinstance(self.value, str) else msgspec.json.encode(self.value).decode()
        return f"{self.message}\n{shown}" if self.message else shown


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Context passed to tool handlers during execution."""

    prompt: Prompt[Any]
    session: Session
    deadline: Deadline | None = None
    heartbeat: Heartbeat | None = None
    resources: Resources = field(default_factory=Resources)
    countdown: Countdown = field(default_factory=lambda: Countdown(SystemClock()))
    """The deadline as it runs: `context.countdown.remaining_s`."""
    call_id: str = ""
    """Names this call: the same one when it is made again after a crash. Good as an idempotency key."""

    def beat(self, progress: float | None = None, note: str | None = None) -> None:
        """Record a heartbeat if available: call it as long work advances. Raises when the work's time is over."""
        if self.heartbeat is not None:
            self.heartbeat.beat(progress, note)

    def raise_if_cancelled(self) -> None:
        """Look whether the work's time is over, without proving anything: for waits that must end with it."""
        if self.heartbeat is not None:
            self.heartbeat.raise_if_interrupted()
        if self.countdown.over:
            raise AgentError("the deadline is over")


@dataclass(frozen=True)
class Tool(Generic[ParamsT, ValueT]):
    """A function that the model may call.

    `beat_every_s` is the tool's promise: it beats at least this often while it runs. A tool that breaks it is abandoned, and its call fails;
    the agent goes on. Without a promise a silent tool simply stops renewing the lease.

    `needs_approval`: a person has to approve each call, or each call for whose parameters a function returns True (docs/agents.md).
    """

    name: str
    description: str
    params: type[ParamsT]
    handler: Callable[..., Any]
    beat_every_s: float | None = None
    needs_approval: bool | Callable[[ParamsT], bool] = False
    approval_timeout_s: float | None = None
    """The longest wait for a person, after which the model hears that nobody answered; None for ever."""
    schema: dict[str, Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.name.replace("_", "").replace("-", "").isalnum() or len(self.name) > 64:
            raise ConfigurationError(f"tool name {self.name!r} must be at most 64 letters, digits, '_' and '-'")
        if not self.description.strip():
            raise ConfigurationError(
                f"tool {self.name!r} has no description", remedy="Say what it does: models choose by it"
            )
        if self.beat_every_s is not None and not self.beat_every_s > 0:
            raise LimitError(f"beat_every_s of tool {self.name!r}", self.beat_every_s, "above 0 seconds, or None")
        schema = schema_of(self.params)
        if schema.get("type") != "object":
            raise ConfigurationError(f"the parameters of tool {self.name!r} are no object", remedy="Use a dataclass")
        object.__setattr__(self, "schema", schema)

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.handler)

    def asks(self, params: ParamsT) -> bool:
        """Returns True for a call that a person has to approve."""
        return self.needs_approval(params) if callable(self.needs_approval) else self.needs_approval

    def parse(self, arguments: str) -> ParamsT:
        """Raises `msgspec.DecodeError`, whose message names the field."""
        return msgspec.json.decode(arguments or "{}", type=self.params)


def tool(
    handler: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    beat_every_s: float | None = None,
    needs_approval: bool | Callable[[Any], bool] = False,
    approval_timeout_s: float | None = None,
) -> Any:
    """Make a tool of a function: its name, its docstring's first paragraph, and the type of its first parameter.

    The function is called as `function(params, context=context)` and returns a `ToolResult`; it may be async, where the adapter is.
    """

    def make(function: Callable[..., Any]) -> Tool[Any, Any]:
        hints = typing.get_type_hints(function)
        first = next(iter(inspect.signature(function).parameters), None)
        if first is None or first not in hints:
            raise ConfigurationError(
                f"tool {function.__name__!r} has no typed parameter",
                remedy="Write `def name(params: SomeDataclass, *, context: ToolContext) -> ToolResult[...]`",
            )
        described = inspect.cleandoc(function.__doc__ or "").split("\n\n")[0]
        kind = name or function.__name__
        return Tool(kind, described, hints[first], function, beat_every_s, needs_approval, approval_timeout_s)

    return make if handler is None else make(handler)


UNKNOWN = "unknown"


class ToolUse(msgspec.Struct, frozen=True):
    """How often a tool was called, how often that failed, how long it ran in all, and how often it beat meanwhile."""

    calls: int = 0
    failures: int = 0
    seconds: float = 0.0
    beats: int = 0

    def __add__(self, other: ToolUse) -> ToolUse:
        return ToolUse(
            self.calls + other.calls,
            self.failures + other.failures,
            self.seconds + other.seconds,
            self.beats + other.beats,
        )


class ToolOutcome(StrEnum):
    """How a tool call ended."""

    OK = "ok"
    FAILED = "failed"
    INTERRUPTED = "interrupted"  # the work's time was over, or the model wants to see more of its prompt first


def tools_used(events: Iterable[Event]) -> dict[str, ToolUse]:
    """Returns the use of each tool, in the order of their first calls. Calls that were never made do not count."""
    found: dict[str, ToolUse] = {}
    for event in events:
        if isinstance(event, ToolAnswered) and event.made:
            use = ToolUse(1, int(not event.success), event.seconds, event.beats)
            found[event.call.name] = found.get(event.call.name, ToolUse()) + use
    return found


def count_tool_call(
    tool: str, outcome: ToolOutcome, seconds: float, beats: int, registry: CollectorRegistry | None = None
) -> None:
    """`tenure_tool_calls_total{tool, outcome}`, `tenure_tool_seconds_total{tool}` and `tenure_tool_beats_total{tool}`."""
    counter("tenure_tool_calls", "Calls of tools, by outcome.", ["tool", "outcome"], registry).labels(
        tool, outcome
    ).inc()
    counter("tenure_tool_seconds", "Seconds that tools ran.", ["tool"], registry).labels(tool).inc(seconds)
    counter("tenure_tool_beats", "Beats while tools ran.", ["tool"], registry).labels(tool).inc(beats)
