"""The options of a submission, beside the workflow's own arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Literal, TypedDict, cast

import msgspec

from tenure.backoff import Retry
from tenure.errors import ConfigurationError
from tenure.served_workflow import OnDuplicate, Unique


class SubmitOptions(TypedDict, total=False):
    """The options of `submit` beside the workflow's own arguments. Times are in seconds."""

    timeout: float
    """The job ends, done or not, after so long. Without it the function's `job_timeout` counts, then its queue's, then nothing."""
    grace: float
    """The first extension that it can earn past its deadline while it advances, 30 s by default; further ones are half as long each. 0: none."""
    queue: str
    """Without it the function's queue counts, then the one in which workers serve it."""
    priority: int
    park: bool
    """Accept work that no worker has registered yet: it waits for one that serves it."""
    delay: float
    """Seconds before it may start."""
    job_id: str
    """A repeated submission under one id is one job, for ever."""
    idempotency_key: str
    """Makes repeated submissions one job, as job_id does, but leaves the id to Tenure."""
    labels: Mapping[str, str]
    retry: Retry
    max_attempts: int
    stall: float
    stuck: float
    """No progress for so long, and the job is given up."""
    version: str
    concurrency_key: str
    """Where the key of its work stands, as `args.tenant` or `labels.customer`: keys take turns. Without it the function's counts, then the queue's."""
    max_per_key: int
    """The most attempts of its key in its queue at once."""
    unique_for: float
    """Equal jobs (queue, functions, arguments) that were accepted within so many seconds are one."""
    on_duplicate: Literal["keep", "reject", "replace"]
    """With `unique_for`: get the equal job, be refused, or replace it where it has not started. "keep" by default."""
    unique_key: str
    """With `unique_for`: jobs of the queue with this key are equal, whatever their arguments."""
    result_ttl: float
    """Seconds for which its result is kept."""
    name: str
    """The name that lists show; by default the workflow's."""
    submitted_by: str
    target_datacenters: Sequence[str]
    """At a gate: where it runs, in each of them the whole of it."""
    datacenters: int
    """At a gate, where none is named: in how many of the best it runs; 1 by default."""


OPTIONS = frozenset(SubmitOptions.__annotations__)
ALSO = {"timeout_seconds": "timeout", "stuck_threshold": "stuck"}
"""Names that the fields of a submission have. Without this table they would become arguments of the workflow."""


def known_options(given: Mapping[str, Any]) -> SubmitOptions:
    """Returns the options by their own names. Raises `ConfigurationError` for a name that no option has."""
    found = {ALSO.get(name, name): value for name, value in given.items()}
    for name in found:
        if name not in OPTIONS:
            near = get_close_matches(name, OPTIONS, 1)
            raise ConfigurationError(
                f"submit has no option {name!r}",
                remedy=f"Did you mean {near[0]!r}?" if near else f"Its options are: {', '.join(sorted(OPTIONS))}",
            )
    return cast("SubmitOptions", found)


def unique_of(
    for_s: float | None, on_duplicate: str | None = None, key: str | None = None, own: Unique | None = None
) -> Unique | None:
    """Returns which jobs are the same, as options or settings say it; `own` is what counts where they say nothing."""
    if for_s is None and own is None:
        if on_duplicate is not None or key:
            raise ConfigurationError(
                "on_duplicate and unique_key need to know for how long jobs are the same", remedy="Give unique_for, too"
            )
        return None
    base = own or Unique(for_s=for_s or 0.0)
    changes: dict[str, Any] = {"for_s": base.for_s if for_s is None else float(for_s)}
    if on_duplicate is not None:
        if on_duplicate not in list(OnDuplicate):
            raise ConfigurationError(f"on_duplicate is {on_duplicate!r}", remedy=f"It may be: {', '.join(OnDuplicate)}")
        changes["on_duplicate"] = OnDuplicate(on_duplicate)
    return msgspec.structs.replace(base, **changes, **({"key": key} if key else {}))
