"""A workflow that a program knows from the catalogue only: it submits by name, and checks the arguments before anything is sent."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack, cast

import msgspec

from tenure.client.async_job import AsyncJob
from tenure.control.messages.workflows import WorkflowEntry
from tenure.errors import ArgumentsError, ConfigurationError, UnknownWorkflowError
from tenure.jobs.door import faults
from tenure.served_workflow import ServedWorkflow, version_order
from tenure.work.job_submission import bound
from tenure.work.plain_arguments import plain_arguments
from tenure.work.submit_options import SubmitOptions, known_options

if TYPE_CHECKING:
    from tenure.client.async_submissions import AsyncSubmissions

P = ParamSpec("P")
R = TypeVar("R")


class AsyncWorkflowHandle(Generic[P, R]):
    """A workflow of the catalogue, as `client.workflow(name)` returns it. `P` and `R` are those of `like`, where it was given."""

    def __init__(
        self,
        client: AsyncSubmissions,
        entries: Sequence[WorkflowEntry],
        name: str,
        version: str = "",
        like: Callable[P, R] | None = None,
        options: SubmitOptions | None = None,
    ) -> None:
        self._client, self._entries, self._like = client, tuple(entries), like
        self.name, self.version = name, version
        self._options = options or SubmitOptions()
        self.served = newest(self._entries, name, version)
        """The workflow as its worker registered it: schema, settings, description, source."""
        if like is not None:
            _check_likeness(like, self.served)

    @property
    def parameters(self) -> tuple[str, ...] | None:
        """The names of its arguments, in the order of the function; None where its types have no schema."""
        schema = self.served.arguments
        return None if schema is None else tuple(_properties(schema))

    def options(self, **options: Unpack[SubmitOptions]) -> AsyncWorkflowHandle[P, R]:
        """Returns this handle with options of `submit`: `handle.options(timeout=hours(6)).submit("a.mov")`."""
        changed = SubmitOptions(**{**self._options, **known_options(options)})
        return AsyncWorkflowHandle(self._client, self._entries, self.name, self.version, self._like, changed)

    async def submit(self, *args: P.args, **kwargs: P.kwargs) -> AsyncJob[R]:
        """Submits one run. Every name is an argument here; `options` holds the options. When this returns, the job is durable."""
        found = bound(self.name, self.parameters, args) if args else {}
        if twice := sorted(set(found).intersection(kwargs)):
            raise ArgumentsError(f"argument {twice[0]!r} is given twice", remedy="Give it once")
        plain = plain_arguments(self.name, {**found, **kwargs})
        if self.served.arguments is not None and (fault := next(faults(plain, self.served.arguments), "")):
            raise ArgumentsError(
                f"the arguments of {self.name!r} do not fit: {fault} (version {self.served.version})",
                remedy=f"It takes ({', '.join(self.parameters or ())})",
            )
        chosen = cast("dict[str, Any]", {"version": self.version, **self._options})
        submission = self._client._submission(self.name, plain, chosen)
        job_id = (await self._client.submit_job(submission)).job_id
        return cast("AsyncJob[R]", self._client._handle(job_id, self))

    def decode_result(self, value: Any) -> Any:
        """Returns a result as the annotation of `like` has it, or as it came."""
        hints = {} if self._like is None else typing.get_type_hints(self._like, include_extras=True)
        return msgspec.convert(value, hints["return"]) if "return" in hints else value

    def __repr__(self) -> str:
        taken = "..." if self.parameters is None else ", ".join(self.parameters)
        return f"<workflow {self.name} {self.served.version} ({taken}) -> {self.served.result or '?'}>"


def newest(entries: Sequence[WorkflowEntry], name: str, version: str) -> ServedWorkflow:
    """Returns the workflow in this version, or in the newest that is served; where none is, the newest that is known."""
    known = [one for one in entries if one.served.name == name and version in ("", one.served.version)]
    if not known:
        versions = sorted({one.served.version for one in entries if one.served.name == name}, key=version_order)
        raise UnknownWorkflowError(
            f"no worker has registered {f'version {version!r} of ' if versions else ''}workflow {name!r} within 7 days",
            remedy=f"Known are: {', '.join(versions)}" if versions else _meant(entries, name),
        )
    return max(known, key=lambda one: (bool(one.workers), version_order(one.served.version))).served


def _meant(entries: Sequence[WorkflowEntry], name: str) -> str:
    near = get_close_matches(name, sorted({one.served.name for one in entries}), 1)
    return f"Did you mean {near[0]!r}?" if near else "`tenure workflows` lists those that are known"


def _properties(schema: dict[str, Any]) -> dict[str, Any]:
    if ref := schema.get("$ref"):
        schema = schema.get("$defs", {}).get(str(ref).rpartition("/")[2], {})
    return cast("dict[str, Any]", schema.get("properties", {}))


def _check_likeness(like: Callable[..., Any], served: ServedWorkflow) -> None:
    """Raises where `like` has a parameter that the workflow has not, or lacks one that it needs."""
    schema = served.arguments
    if schema is None:
        return
    known, mine = _properties(schema), inspect.signature(like).parameters
    inner = schema.get("$defs", {}).get(str(schema.get("$ref", "")).rpartition("/")[2], schema)
    more = [name for name in mine if name not in known]
    lacks = [name for name in inner.get("required", ()) if name not in mine]
    if more or lacks:
        what = (
            f"has {more[0]!r}, which the workflow has not" if more else f"lacks {lacks[0]!r}, which the workflow needs"
        )
        raise ConfigurationError(
            f"{getattr(like, '__name__', 'like')} is not like {served.name!r} in version {served.version!r}: it {what}",
            remedy=f"The workflow takes ({', '.join(known)}); leave ctx out",
        )
