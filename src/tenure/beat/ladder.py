"""Checks that a set of timeouts can work together: pure arithmetic, no opinion on what the numbers should be.

Every timeout is a rung. A shorter wait has to end before the longer one that relies on it: otherwise a healthy worker is killed in
mid-wait, or a message is delivered again while the process that holds it is still about to be killed. Document 004 gives three
inequalities, the design the rest. `max_processing_time` of document 004 is read as the longest silence between two beats: work may
last for hours, as long as it beats.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import NamedTuple

from tenure.errors import LadderError


class LadderRule(NamedTuple):
    """`low` has to be below `high`; None on either side: the rule does not apply."""

    text: str
    low: float | None
    high: float | None
    remedy: str

    @property
    def holds(self) -> bool:
        return self.low is None or self.high is None or self.low < self.high

    def __str__(self) -> str:
        verdict = "holds" if self.holds else f"is broken: {self.low:.10g} is not below {self.high:.10g}. {self.remedy}"
        return f"{self.text} {verdict}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """The timeouts of one worker, in seconds; None where there is none, and its rules do not apply."""

    visibility_timeout: float
    wait_time_seconds: float = 0.0
    extension_interval: float | None = None
    extension: float | None = None
    max_processing_time: float | None = None
    """The longest silence between two beats. None: not known, so only what must hold for any silence is checked."""
    readiness_threshold: float | None = None
    watchdog_threshold: float | None = None
    watchdog_interval: float | None = None
    stuck_threshold: float | None = None
    job_timeout: float | None = None
    tick: float | None = None
    """How often a supervisor looks at its slots. This rung and the next four are those of slots (`SlotSettings`)."""
    claim: float | None = None
    stall: float | None = None
    grace: float | None = None
    settle: float | None = None

    def broken(self) -> list[LadderRule]:
        """Returns every rule that does not hold."""
        return [rule for rule in self.rules() if not rule.holds]

    def check(self) -> None:
        """Raise `LadderError`, which draws the ladder, when a rule does not hold."""
        found = self.broken()
        if found:
            raise LadderError(self.draw(), [str(rule) for rule in found])

    def draw(self) -> str:
        """Returns the rungs, the longest on top."""
        rungs = [(getattr(self, field.name), field.name) for field in fields(self)]
        known = sorted(((value, name) for value, name in rungs if value is not None), reverse=True)
        widest = max(len(name) for _, name in known)
        return "\n".join(f"  {name:<{widest}}  {value:>10,.10g} s" for value, name in known)

    def rules(self) -> Iterator[LadderRule]:
        """Yields every rule, whether it holds or not."""
        yield from self._rules_of_document_004()
        yield from self._rules_of_the_lease()
        yield from self._rules_of_readiness()
        yield from self._rules_of_jobs()
        yield from self._rules_of_slots()

    def _rules_of_document_004(self) -> Iterator[LadderRule]:
        silence, threshold = self.max_processing_time or 0.0, self.watchdog_threshold
        if threshold is None:
            return
        yield LadderRule(
            "visibility_timeout > watchdog_threshold + max_processing_time",
            threshold + silence,
            self.visibility_timeout,
            "The message would be delivered again before its stuck holder is killed: raise visibility_timeout above "
            f"{threshold + silence:g}, or lower watchdog_threshold below {max(0.0, self.visibility_timeout - silence):g}",
        )
        yield LadderRule(
            "watchdog_threshold > wait_time_seconds + max_processing_time",
            self.wait_time_seconds + silence,
            threshold,
            "A healthy worker would be killed: raise watchdog_threshold above "
            f"{self.wait_time_seconds + silence:g}, poll for a shorter time, or beat more often",
        )
        yield LadderRule(
            "watchdog_interval < watchdog_threshold / 3",
            self.watchdog_interval,
            threshold / 3,
            "A stall would be seen much too late: check more often",
        )

    def _rules_of_the_lease(self) -> Iterator[LadderRule]:
        interval, silence = self.extension_interval, self.max_processing_time
        yield LadderRule(
            "extension_interval < visibility_timeout",
            interval,
            self.visibility_timeout,
            "Renew more often, or take a longer lease; a third of the lease lets two renewals fail",
        )
        yield LadderRule(
            "extension_interval < extension", interval, self.extension, "Each renewal has to last until the next one"
        )
        # A beat just before a renewal is due is skipped, and the silence after it has to fit into what is left.
        yield LadderRule(
            "extension_interval + max_processing_time < visibility_timeout",
            None if interval is None or silence is None else interval + silence,
            self.visibility_timeout,
            "Work that is only quiet would lose its lease: take a longer lease, renew more often, or beat more often",
        )

    def _rules_of_readiness(self) -> Iterator[LadderRule]:
        yield LadderRule(
            "readiness_threshold < watchdog_threshold",
            self.readiness_threshold,
            self.watchdog_threshold,
            "Readiness is the early warning: half of the watchdog's threshold is usual",
        )
        yield LadderRule(
            "wait_time_seconds < readiness_threshold",
            self.wait_time_seconds,
            self.readiness_threshold,
            "An idle worker would look unready in every long poll: poll for a shorter time",
        )

    def _rules_of_jobs(self) -> Iterator[LadderRule]:
        rungs = (
            ("max_processing_time", self.max_processing_time),
            ("watchdog_threshold", self.watchdog_threshold),
            ("stuck_threshold", self.stuck_threshold),
            ("job_timeout", self.job_timeout),
        )
        known = [(name, value) for name, value in rungs if value is not None]
        for (low, below), (high, above) in itertools.pairwise(known):
            yield LadderRule(
                f"{low} < {high}", below, above, f"Raise {high} or lower {low}: the shorter one acts first"
            )

    def _rules_of_slots(self) -> Iterator[LadderRule]:
        """Yields the rules of slots: whatever a supervisor decides, it decides at one of its looks.

        There is no rule for grace and lease: the lease is held through the grace of a verdict.
        """
        if self.tick is None:
            return
        for name, value, ticks, why in (
            ("visibility_timeout", self.visibility_timeout, 9, "Beats could not renew the lease in time"),
            ("claim", self.claim, 2, "A claim would run out before the supervisor has seen that its work started"),
            ("settle", self.settle, 2, "Work that has ended would be killed before its outcome is written"),
        ):
            yield LadderRule(
                f"{ticks} x tick < {name}", ticks * self.tick, value, f"{why}: raise {name}, or lower tick"
            )
