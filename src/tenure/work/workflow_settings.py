"""Defines the settings that `@workflow` takes, for people and type checkers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypedDict

from tenure.backoff import Retry


class WorkflowSettings(TypedDict, total=False):
    """The settings that the author of a workflow may give it. Times are in seconds. A submission may say otherwise."""

    name: str | None
    version: str
    max_attempts: int | None  # stands for that of `retry`
    timeout: float | None  # bounds one attempt
    stall: float | Literal["learn"] | None
    """Bounds the silence between two beats. "learn": by what its attempts have shown, once that is enough; never longer than without it."""
    job_timeout: float | None
    """Bounds a whole job of it."""
    retry: Retry | None
    proof: Literal["beat", "progress"] | None
    """Fixes the proof that it has to bring: "beat", or "progress" from the start. Without it, work that counts has to go on counting."""
    queue: str | None
    priority: int | None
    concurrency_key: str
    """Where the key of its work stands, as `args.tenant` or `labels.customer`. Keys of a queue take turns."""
    max_per_key: int
    """The most attempts of one key in a queue at once."""
    unique_for: float
    """Equal jobs (queue, functions, arguments) that are accepted within so many seconds are one."""
    on_duplicate: Literal["keep", "reject", "replace"]
    """With `unique_for`, what a submission gets while an equal job is there: that job, a refusal, or its place if it has not started."""
    give_up_on: Iterable[type[BaseException]]
    """Errors that fail the work at once."""
    retry_on: Iterable[type[BaseException]] | None
    """With it, all other errors that the code raises fail the work at once: `retry_on=[ConnectionError]`."""
    compatible_with: Iterable[str]
    """Earlier versions whose work this one goes on with: it takes what they began and what was suspended in them (docs/waiting.md)."""
    signals: Mapping[str, Any]
    """The types of the signals that it waits for, as `{"approved": Approval}`. Others are refused where they are sent, and the dashboard has a form for it."""
