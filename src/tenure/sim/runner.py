"""Plays many seeds, on one core or on all, and turns a failure into something that one can work with.

A failure comes back shrunk: with the smallest fault schedule that still breaks the same promise, the command that
replays it, and its trace in a file.

Delta debugging: the search for a small part of a list that still fails.

After Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input" (2002): try halves, then smaller parts and
what is left without them, until no single element can be left out.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from tenure.errors import InvariantError
from tenure.sim.faults import table
from tenure.sim.scenario import Make, RunOutcome, find, reference, run_one


def shrink(items: Sequence[int], fails: Callable[[tuple[int, ...]], bool], *, budget: int = 400) -> tuple[int, ...]:
    """Returns the smallest part that it found to fail still, within so many tries. `items` itself is known to fail."""
    left, parts, tries = tuple(items), 2, 0

    def attempt(candidate: tuple[int, ...]) -> bool:
        nonlocal tries
        tries += 1
        return fails(candidate)

    if left and attempt(()):
        return ()
    while len(left) >= 2 and tries < budget:
        size = -(-len(left) // parts)
        chunks = [left[start : start + size] for start in range(0, len(left), size)]
        smaller = next((chunk for chunk in chunks if len(chunk) < len(left) and attempt(chunk)), None)
        if smaller is not None:
            left, parts = smaller, 2
            continue
        rests = [tuple(item for item in left if item not in chunk) for chunk in chunks] if parts > 2 else []
        rest = next((rest for rest in rests if attempt(rest)), None)
        if rest is not None:
            left, parts = rest, max(parts - 1, 2)
        elif parts >= len(left):
            break
        else:
            parts = min(len(left), parts * 2)
    return left


CHUNK = 100


@dataclass
class Report:
    """The outcome of many seeds."""

    scenario: str
    runs: int = 0
    steps: int = 0
    events: int = 0
    faults: int = 0
    failures: list[RunOutcome] = field(default_factory=list)
    """Shrunk, lowest seed first."""
    tally: Counter[str] = field(default_factory=Counter)
    """The counts of all runs together."""

    @property
    def ok(self) -> bool:
        return not self.failures

    def summary(self) -> str:
        return (
            f"{self.scenario}: {self.runs:,} seeds, {self.steps:,} callbacks, {self.events:,} events, "
            f"{self.faults:,} faults, {len(self.failures)} failed"
        )

    def require_ok(self) -> None:
        """Raise with the whole story of the first failure."""
        if self.failures:
            raise InvariantError(f"{self.summary()}\n{story(self.failures[0])}")


def run_seeds(make: Make, seeds: Sequence[int], *, jobs: int = 1, stop_after: int = 1) -> Report:
    """Play these seeds until so many have failed. With several jobs, `make` must be a class that others can import."""
    report = Report(reference(make))
    for outcome in _on_one(make, seeds) if jobs <= 1 else _on_many(make, seeds, jobs):
        report.runs += 1
        report.steps += outcome.steps
        report.events += outcome.events
        report.faults += len(outcome.chosen)
        report.tally.update(outcome.tally)
        if not outcome.ok:
            report.failures.append(outcome)
            if len(report.failures) >= stop_after:
                break
    report.failures = [shrunk(make, outcome) for outcome in sorted(report.failures, key=lambda found: found.seed)]
    return report


def _on_one(make: Make, seeds: Sequence[int]) -> Iterator[RunOutcome]:
    return (run_one(make, seed) for seed in seeds)


def _on_many(make: Make, seeds: Sequence[int], jobs: int) -> Iterator[RunOutcome]:
    # Spawned, not forked: the caller may have threads.
    name, every = reference(make), iter(seeds)
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting = {pool.submit(_play, name, chunk) for chunk in _chunks(every, jobs * 2)}
        try:
            while waiting:
                done = next(as_completed(waiting))
                waiting.remove(done)
                waiting |= {pool.submit(_play, name, chunk) for chunk in _chunks(every, 1)}
                yield from done.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _chunks(seeds: Iterator[int], most: int) -> Iterator[list[int]]:
    for _ in range(most):
        if chunk := list(islice(seeds, CHUNK)):
            yield chunk


def _play(name: str, seeds: list[int]) -> list[RunOutcome]:
    make = find(name)
    return [run_one(make, seed, name=name) for seed in seeds]


def shrunk(make: Make, outcome: RunOutcome) -> RunOutcome:
    """Returns the same failure with as few faults as can be found, and with its whole trace."""
    kind = outcome.failure.partition(":")[0]

    def fails(chosen: tuple[int, ...]) -> bool:
        return run_one(make, outcome.seed, only=chosen).failure.startswith(kind)

    chosen = shrink(outcome.chosen, fails)
    smallest = run_one(make, outcome.seed, only=chosen, keep_trace=True)
    return replace(smallest, scenario=outcome.scenario)


def story(outcome: RunOutcome, *, last: int = 30) -> str:
    """Returns a failure as a person wants to read it. The whole trace goes to a file."""
    left = [outcome.faults[number] for number in outcome.chosen]
    return "\n".join(
        [
            f"FAILED {outcome.scenario}, seed {outcome.seed}, at {outcome.ended_s:.3f} s: {outcome.failure}",
            f"the fewest faults that still break it, {len(left)} of {len(outcome.faults)}:",
            table(left, numbers=outcome.chosen),
            f"the last {min(last, len(outcome.trace))} of {len(outcome.trace)} events:",
            *outcome.trace[-last:],
            f"trace:  {write_trace(outcome)}",
            f"replay: {outcome.command}",
        ]
    )


def write_trace(outcome: RunOutcome) -> Path:
    """Put the trace where it can be read after the run; the same run always has the same file."""
    folder = Path(tempfile.gettempdir()) / f"tenure-sim-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    stem = hashlib.blake2b(f"{outcome.scenario}{outcome.chosen}".encode(), digest_size=4).hexdigest()
    path = folder / f"seed-{outcome.seed}-{stem}.trace"
    path.write_text("\n".join([outcome.command, outcome.details, *outcome.trace, ""]))
    return path
