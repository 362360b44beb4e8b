"""Learns how long each workflow takes, in each version, and how fast each worker is: from the attempts that completed (decision 0440).

Nothing is decided by it. It feeds the estimates that people see, before work has shown its own pace and for work that never says how far it is.
The logarithm of a duration is taken for the sum of two parts, one of the workflow and one of the worker, with a spread around it. Both parts are
learned by the same small steps, in the order of the journal, so every leader comes to the same numbers.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tenure.jobs.budget import text_bytes

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook
    from tenure.jobs.model import WorkflowRecord, WorkflowSpec

MOST_WORKFLOWS = 1_000
MOST_WORKERS = 1_000
"""Beyond these, the one that was learned of longest ago is forgotten."""
MEMORY = 50
"""Completions that count: what changed longer ago than so many is forgotten, so a workflow that became slower is known to be."""
FEWEST = 5
"""Before so many completions nothing is said."""
FIRST_SPREAD = 0.5
"""The spread of the logarithm before anything is known: a factor of 1.65 either way."""
LEAST_SPREAD = 0.02
CLIP = 3.0
"""A duration further off than so many spreads moves the estimate no more than one that is just as far: one outlier is no trend."""
RATE_BYTES = 80
"""The most bytes of a record without its name."""
OUTLIVED = 0.99
"""Work that has lasted longer than this share of all runs is not what was learned: nothing is said of it."""


class WorkflowRate(msgspec.Struct, kw_only=True):
    """The usual duration of one workflow in one version, on a worker of average speed."""

    log_s: float = 0.0
    variance: float = FIRST_SPREAD**2
    count: int = 0


class WorkerPace(msgspec.Struct, kw_only=True):
    """How much longer this worker takes than the average, as a logarithm."""

    log_factor: float = 0.0
    count: int = 0


class LearnedRates(msgspec.Struct, kw_only=True):
    """Part of the state. Both dictionaries are in the order in which they were last learned of."""

    workflows: dict[str, WorkflowRate] = {}
    workers: dict[str, WorkerPace] = {}


class Usual(NamedTuple):
    """The duration that is to be expected of one attempt, as a distribution of its logarithm."""

    log_s: float
    spread: float

    def seconds(self, share: float = 0.5, *, lasted_s: float = 0.0) -> float | None:
        """Returns the seconds within which so large a share of the runs ends that last longer than `lasted_s`. None when hardly any does."""
        runs = NormalDist(self.log_s, self.spread)
        over = runs.cdf(math.log(lasted_s)) if lasted_s > 0 else 0.0
        return math.exp(runs.inv_cdf(over + (1 - over) * share)) if over < OUTLIVED else None


def rate_key(function: str, version: str) -> str:
    """Returns the name of a rate. Work that any version may do has one of its own, without a version."""
    return f"{function}@{version}"


def usual(rates: LearnedRates, spec: WorkflowSpec, worker: str = "") -> Usual | None:
    """Returns what is to be expected of a workflow, on this worker where one is named; None before enough of it completed."""
    return usual_run(rates, spec.called, spec.version, worker)


def usual_run(rates: LearnedRates, function: str, version: str, worker: str = "") -> Usual | None:
    """Returns what is to be expected of a function in a version; None before enough of it completed."""
    rate = rates.workflows.get(rate_key(function, version))
    if rate is None or rate.count < FEWEST:
        return None
    pace = rates.workers.get(worker)
    factor = pace.log_factor if pace is not None else 0.0
    return Usual(rate.log_s + factor, max(LEAST_SPREAD, math.sqrt(rate.variance)))


def learn(book: JobBook, workflow: WorkflowRecord, worker: str, seconds: float) -> None:
    """Learns from a workflow that completed. The fold calls it.

    A second attempt, or a second delivery, may have gone on from a checkpoint: how long it took says nothing of the whole.
    """
    if workflow.attempt > 1 or workflow.delivery > 1 or seconds <= 0:
        return
    rates = book.state.rates
    key = rate_key(workflow.spec.called, workflow.spec.version)
    if key not in rates.workflows:
        book.size.grew(text_bytes(key) + RATE_BYTES)
    if worker not in rates.workers:
        book.size.grew(text_bytes(worker) + RATE_BYTES)
    rate, pace = rates.workflows.pop(key, None) or WorkflowRate(), rates.workers.pop(worker, None) or WorkerPace()
    rates.workflows[key], rates.workers[worker] = rate, pace
    step(rate, pace, math.log(seconds))
    for held, most in ((rates.workflows, MOST_WORKFLOWS), (rates.workers, MOST_WORKERS)):
        if len(held) > most:
            del held[next(iter(held))]


def step(rate: WorkflowRate, pace: WorkerPace, log_s: float) -> None:
    """Moves both towards one duration: the workflow first, then the worker by what is left of the difference."""
    if rate.count == 0:
        rate.log_s, rate.count = log_s - pace.log_factor, 1
        return
    limit = CLIP * max(LEAST_SPREAD, math.sqrt(rate.variance))
    off = max(-limit, min(limit, log_s - rate.log_s - pace.log_factor))
    gain = max(1 / (rate.count + 1), 1 / MEMORY)
    rate.variance += gain * (off * off - rate.variance)
    rate.log_s += gain * off
    pace.log_factor += (1 - gain) * off * max(1 / (pace.count + 2), 1 / MEMORY)
    rate.count, pace.count = min(rate.count + 1, 2**31), min(pace.count + 1, 2**31)
