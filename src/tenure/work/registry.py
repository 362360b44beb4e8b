"""Which functions are workflows, and whether given arguments fit them.

A workflow is a module-level function marked with `@workflow`. Nothing is registered globally and no code is ever shipped: a worker
imports the modules that it was told to serve (`served_modules`) and collects what is marked in them.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, ParamSpec, Self, TypeVar, Unpack, overload

import msgspec

from tenure.attempt_data import MAX_MESSAGE_RESULT_BYTES
from tenure.backoff import Retry
from tenure.beat.proof import Proof
from tenure.bound_checks import check
from tenure.bounds import FunctionName, Priority, QueueName, VersionName
from tenure.codec import Codec
from tenure.errors import ArgumentsError, ConfigurationError, LimitError, UnknownWorkflowError
from tenure.served_workflow import CompatibleVersions, KeyLimit, ServedWorkflow, Unique, version_order
from tenure.work.middleware import Resource, Surroundings, resources_among
from tenure.work.plain_arguments import plain_arguments
from tenure.work.retry_verdict import ANY_ERROR, RetryRules
from tenure.work.schemas import SignalTypes, checked_signals, schema_of, signals_schema
from tenure.work.signatures import arguments_of, hints_of
from tenure.work.submit_options import SubmitOptions, known_options, unique_of
from tenure.work.workflow_settings import WorkflowSettings

P = ParamSpec("P")
R = TypeVar("R")

MAX_RESULT_BYTES = MAX_MESSAGE_RESULT_BYTES
"""The most bytes of an encoded result where no leader counts: it travels in a message."""

MAX_OFFER_BYTES = 196_608
"""The most bytes of all that one worker registers. Schemas that do not fit into it are left out."""


@dataclass(frozen=True, eq=False)
class Workflow(Generic[P, R]):
    """A marked function with what the runtime needs to know of it. Calling it calls the function. `R` is the type of its result."""

    function: Callable[P, Any]
    name: str
    version: str = "1"
    timeout: float | None = None
    stall: float | None = None
    learn: bool = False  # a learned stall threshold may hold
    job_timeout: float | None = None  # of a job whose submission has none; `timeout` bounds one attempt
    retry: Retry = field(default_factory=Retry)
    proof: Proof | None = None  # None: what it shows decides
    queue: str | None = None  # of a job whose submission has none
    priority: int | None = None
    retry_rules: RetryRules = ANY_ERROR
    concurrency: KeyLimit | None = None
    unique: Unique | None = None
    compatible_with: tuple[str, ...] = ()  # earlier versions whose work it goes on with
    signals: SignalTypes = field(default_factory=dict)
    preset: SubmitOptions = field(default_factory=SubmitOptions)
    """The options of its submissions, as `options` sets them."""

    def __post_init__(self) -> None:
        check(self.name, FunctionName, field="workflow name")
        check(self.version, VersionName, field=f"version of {self.name}")
        self.retry.checked(self.name)
        for what, setting in (("concurrency", self.concurrency), ("unique", self.unique)):
            if setting is not None:
                check(setting, field=f"{what} of {self.name}")
        check(self.compatible_with, CompatibleVersions, field=f"compatible_with of {self.name}")
        if self.queue is not None:
            check(self.queue, QueueName, field=f"queue of {self.name}")
        if self.priority is not None:
            check(self.priority, Priority, field=f"priority of {self.name}")
        for what, value in (("timeout", self.timeout), ("stall", self.stall), ("job_timeout", self.job_timeout)):
            if value is not None and not (isinstance(value, int | float) and 0 < value < float("inf")):
                learns = ', or "learn"' if what == "stall" else ""
                raise LimitError(f"{what} of {self.name}", value, f"above 0 seconds{learns}")
        for name in ("__doc__", "__name__", "__qualname__", "__module__"):
            self.__dict__[name] = getattr(self.function, name, None)
        self.__dict__["__wrapped__"] = self.function
        _ = self._arguments  # a signature that cannot be served is found where it is written, not where it is called

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self.function(*args, **kwargs)
        return result

    def options(self, **options: Unpack[SubmitOptions]) -> Self:
        """Returns this workflow with options of `submit`: `submit(encode.options(timeout=hours(6)), path="a.mov")`.

        Type checkers then check the options and the arguments, which they cannot do where both are given by name in one call.
        """
        return dataclasses.replace(self, preset=SubmitOptions(**{**self.preset, **known_options(options)}))

    @functools.cached_property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function)

    @functools.cached_property
    def _hints(self) -> dict[str, Any]:
        return hints_of(self.function, self.name)

    @functools.cached_property
    def resources(self) -> dict[str, Resource]:
        """The resources that it asks for, by parameter. They are no arguments of its jobs."""
        return resources_among(self._hints)

    @functools.cached_property
    def _arguments(self) -> type[msgspec.Struct]:
        return arguments_of(self.function, self.name, self._hints, without=self.resources)

    @property
    def argument_type(self) -> type[msgspec.Struct]:
        """The arguments as one struct, whose schema is what this workflow accepts."""
        return self._arguments

    def check_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the arguments as the function's types want them. Raises `ArgumentsError` that says which one and why."""
        try:
            found = msgspec.convert(dict(arguments), self._arguments)
        except msgspec.ValidationError as error:
            parameters = list(inspect.signature(self.function).parameters.values())[1:]
            wanted = ", ".join(str(one) for one in parameters if one.name not in self.resources)
            raise ArgumentsError(
                f"the arguments of {self.name} do not fit: {error}", remedy=f"It takes ({wanted})"
            ) from error
        return {name: getattr(found, name) for name in self._arguments.__struct_fields__}

    def sendable(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the arguments as plain JSON, checked against the function's types before anything is sent."""
        plain = plain_arguments(self.name, arguments)
        self.check_arguments(plain)
        return plain

    @functools.cached_property
    def positional(self) -> tuple[str, ...]:
        """The names of the arguments that may be given without a name, in order."""
        found = list(inspect.signature(self.function).parameters.values())[1:]
        return tuple(
            one.name for one in found if one.kind is one.POSITIONAL_OR_KEYWORD and one.name not in self.resources
        )

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of its arguments, in the order of the function."""
        return self._arguments.__struct_fields__

    @functools.cached_property
    def served(self) -> ServedWorkflow:
        """The workflow as its worker registers it."""
        code = inspect.unwrap(self.function).__code__
        about = inspect.getdoc(self.function) or ""
        return ServedWorkflow(
            name=self.name,
            version=self.version,
            arguments=schema_of(self._arguments),
            result=_text_of(self._hints.get("return", "")),
            retry=None if self.retry == Retry() else self.retry,
            timeout=self.timeout,
            stall=self.stall,
            learn=self.learn,
            job_timeout=self.job_timeout,
            queue=self.queue or "",
            priority=self.priority,
            concurrency=self.concurrency,
            unique=self.unique,
            compatible_with=self.compatible_with,
            signals=signals_schema(self.signals),
            description=as_text(about.partition("\n")[0]),
            source=as_text(f"{code.co_filename.rpartition('/')[2]}:{code.co_firstlineno}"),
        )

    def decode_result(self, value: Any) -> Any:
        """Returns a result that came as plain JSON, as the annotated return type has it."""
        kind = self._hints.get("return", Any)
        if kind is Any or self._result_decoder is None:
            return value
        return msgspec.convert(value, kind)

    def encode_result(self, result: Any, most: int = MAX_RESULT_BYTES) -> bytes:
        """Returns the result as JSON, checked against the annotated return type and the size limit."""
        try:
            encoded = msgspec.json.encode(result)
            if self._result_decoder is not None:
                self._result_decoder.decode(encoded)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ArgumentsError(
                f"the result of {self.name}, of type {type(result).__name__}, does not fit: {error}",
                remedy="Return plain JSON types, a dataclass or a msgspec.Struct, as annotated",
            ) from error
        if len(encoded) > most:
            raise LimitError(
                f"result of {self.name}",
                f"{len(encoded):,} bytes",
                f"at most {most:,} bytes",
                remedy="Store large results elsewhere and return their address",
            )
        return encoded

    @functools.cached_property
    def _result_decoder(self) -> msgspec.json.Decoder[Any] | None:
        kind = self._hints.get("return", Any)
        if kind is Any:
            return None
        try:
            return msgspec.json.Decoder(kind)
        except TypeError:
            return None  # a return annotation may be looser than JSON, such as `object`


@dataclass(frozen=True, eq=False)
class AsyncWorkflow(Workflow[P, R]):
    """An async function, marked. Calling it gives what the function gives, a coroutine, and its result is what that returns."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:  # type: ignore[override]  # as its function
        made: Coroutine[Any, Any, R] = self.function(*args, **kwargs)
        return made


class WorkflowMark(typing.Protocol):
    """Marks a function, as `workflow(...)` with settings does."""

    @overload
    def __call__(self, marked: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncWorkflow[P, R]: ...

    @overload
    def __call__(self, marked: Callable[P, R], /) -> Workflow[P, R]: ...


@overload
def workflow(function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncWorkflow[P, R]: ...


@overload
def workflow(function: Callable[P, R], /) -> Workflow[P, R]: ...


@overload
def workflow(**settings: Unpack[WorkflowSettings]) -> WorkflowMark: ...


def workflow(function: Callable[..., Any] | None = None, /, **settings: Any) -> Any:
    """Mark a function, sync or async, as a workflow. `WorkflowSettings` has the settings: `@workflow(stall=600, max_attempts=1)`."""
    for setting in settings.keys() - WorkflowSettings.__annotations__:
        raise ConfigurationError(
            f"@workflow has no setting {setting!r}", remedy=f"It has: {', '.join(WorkflowSettings.__annotations__)}"
        )
    return (lambda marked: _marked(marked, settings)) if function is None else _marked(function, settings)


def _marked(function: Callable[..., Any], given: dict[str, Any]) -> Workflow[..., Any]:
    settings = {**given, **({"stall": None, "learn": True} if given.get("stall") == "learn" else {})}
    name = settings.pop("name", None) or str(getattr(function, "__name__", ""))
    most, proof = settings.pop("max_attempts", None), settings.pop("proof", None)
    give_up_on, retry_on = settings.pop("give_up_on", ()), settings.pop("retry_on", None)
    key, most_of_key = settings.pop("concurrency_key", ""), settings.pop("max_per_key", None)
    limit = KeyLimit(key=key, most=most_of_key) if key or most_of_key else None
    unique = unique_of(settings.pop("unique_for", None), settings.pop("on_duplicate", None))
    kind = AsyncWorkflow if inspect.iscoroutinefunction(function) else Workflow
    return kind(
        function,
        name=name,
        version=str(settings.pop("version", "1")),
        retry=_policy(settings.pop("retry", None) or Retry(), most),
        proof=None if proof is None else Proof(proof),
        retry_rules=RetryRules.of(name, give_up_on, retry_on),
        concurrency=limit,
        unique=unique,
        compatible_with=_versions(name, settings.pop("compatible_with", ())),
        signals=checked_signals(name, settings.pop("signals", {})),
        **settings,
    )


def _versions(name: str, given: Iterable[str]) -> tuple[str, ...]:
    if isinstance(given, str):
        raise ConfigurationError(
            f"compatible_with of {name} is the text {given!r}", remedy=f"Write compatible_with=[{given!r}]"
        )
    return tuple(map(str, given))


def _policy(retry: Retry, max_attempts: int | None) -> Retry:
    return retry if max_attempts is None else msgspec.structs.replace(retry, max_attempts=max_attempts)


class Registry:
    """The workflows that one worker serves, by name and version."""

    def __init__(self, workflows: Iterable[Workflow[..., Any]] = (), codec: Codec | None = None) -> None:
        self.codec = codec
        self.surroundings = Surroundings()
        self._found: dict[str, dict[str, Workflow[..., Any]]] = {}
        for found in workflows:
            self.add(found)

    @classmethod
    def from_modules(cls, modules: Iterable[types.ModuleType]) -> Registry:
        registry = cls()
        for module in modules:
            registry.surroundings.gather(module)
            for value in list(vars(module).values()):
                if isinstance(value, Workflow):
                    registry.add(value)
                elif isinstance(value, Codec):
                    registry.use(value, module.__name__)
        return registry

    def use(self, codec: Codec, module: str) -> None:
        """Decodes arguments and encodes results with this codec. Raises `ConfigurationError` where another one is in use."""
        if self.codec not in (None, codec):
            raise ConfigurationError(
                f"{module} has a second codec", remedy="Keep one at the top level of the modules that a worker serves"
            )
        self.codec = codec

    def add(self, found: Workflow[..., Any]) -> None:
        versions = self._found.setdefault(found.name, {})
        known = versions.get(found.version)
        if known is not None and known.function is not found.function:
            raise ConfigurationError(
                f"two workflows are called {found.name!r}, version {found.version}: "
                f"{_place(known.function)} and {_place(found.function)}",
                remedy="Give one of them another name= or version=",
            )
        self.surroundings.gather(sys.modules.get(found.function.__module__))
        self.surroundings.check(found.name, found.resources, is_async=found.is_async)
        versions[found.version] = found
        self.__dict__.pop("served", None)

    def clear(self) -> None:
        self._found.clear()
        self.__dict__.pop("served", None)

    def find(self, name: str, version: str | None = None) -> Workflow[..., Any]:
        """Returns the workflow of that name: the named version, else the newest that is compatible with it; without a version, the newest."""
        versions = self._found.get(name)
        if not versions:
            known = ", ".join(sorted(self._found)) or "none"
            raise UnknownWorkflowError(f"no workflow {name!r} is registered here", remedy=f"Known are: {known}")
        if version is None:
            return versions[max(versions, key=version_order) if len(versions) > 1 else next(iter(versions))]
        if version not in versions:
            heirs = [one for one in versions.values() if version in one.compatible_with]
            if heirs:
                return max(heirs, key=lambda one: version_order(one.version))
            raise UnknownWorkflowError(
                f"workflow {name!r} has no version {version!r} here", remedy=f"Known are: {', '.join(sorted(versions))}"
            )
        return versions[version]

    def knows(self, name: str, version: str | None = None) -> bool:
        versions = self._found.get(name, {})
        if version is None or version in versions:
            return bool(versions)
        return any(version in one.compatible_with for one in versions.values())

    @functools.cached_property
    def served(self) -> tuple[ServedWorkflow, ...]:
        """Everything as a worker registers it."""
        found, left = [], MAX_OFFER_BYTES
        for one in self:
            size = len(msgspec.json.encode(one.served))
            found.append(
                one.served if size <= left else msgspec.structs.replace(one.served, arguments=None, signals=None)
            )
            left -= size
        return tuple(found)

    def __iter__(self) -> typing.Iterator[Workflow[..., Any]]:
        for versions in self._found.values():
            yield from versions.values()

    def __len__(self) -> int:
        return sum(map(len, self._found.values()))


def _text_of(kind: Any) -> str:
    return as_text(kind.__name__ if isinstance(kind, type) else str(kind))


def as_text(text: str) -> str:
    """Returns a text as a field of the catalogue may hold it: printable, and at most 200 characters."""
    return "".join(char if char.isprintable() else " " for char in text)[:200]


def _place(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', '?')}"
