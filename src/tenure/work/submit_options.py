"""The options of a submission, beside the workflow's own arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypedDict, cast

from tenure.backoff import Retry
from tenure.errors import ConfigurationError


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
