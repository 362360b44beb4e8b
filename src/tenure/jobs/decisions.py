"""Defines the words that all topics share: a command asks, a decision answers, and its events are journaled.

A shell calls `decide(book, command, now)`, appends the events, folds them, and only then acts. Commands carry what a node
observed; they never carry a conclusion. Each event is a decision, with its author, its rule, its time and its inputs: the journal is
the evidence. One event is one line of JSON that a person can read. Folding events never fails for an event that
`decide` made, and reads nothing but the event and the state before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from tenure.jobs.messages import JobReportAck, JobStatusCorrection
from tenure.jobs.model import TimeoutTrackingState
from tenure.jobs.states import JobState

Evidence = dict[str, Any]


class Rule(StrEnum):
    """The rule that decided. `event_text.py` puts each into a sentence."""

    ASKED = "asked"  # a user, a schedule or an operator asked for it
    FOLLOWED = "followed"  # it follows from an earlier decision
    TAKEOVER = "takeover"
    WORKER_SAID = "worker_said"
    ENGINE_SAID = "engine_said"
    HEALTH = "health"
    OUTAGE = "outage"
    ALL_DONE = "all_done"
    NOTHING_DONE = "nothing_done"
    FAILED_FOR_GOOD = "failed_for_good"
    TOMBSTONE = "tombstone"
    OVERALL_TIMEOUT = "overall_timeout"
    STUCK = "stuck"
    REPORT_AGAIN = "report_again"
    GLOBAL_TIMEOUT = "global_timeout"
    GLOBAL_CANCEL = "global_cancel"
    FALLBACK = "fallback"
    STALE_TOKEN = "stale_token"  # noqa: S105
    STALE_GATE = "stale_gate"
    STALE_ATTEMPT = "stale_attempt"
    STALE_DELIVERY = "stale_delivery"
    JOB_ENDED = "job_ended"
    ALREADY_RECORDED = "already_recorded"
    RETENTION = "retention"
    ANY_DATACENTER = "any_datacenter"
    ALL_STUCK = "all_stuck"
    REBUILT = "rebuilt"
    DATACENTER_SAID = "datacenter_said"
    UNSIGNED = "unsigned"  # results are signed here, and this one was not, or wrongly
    PRODUCT_FAILED = "product_failed"  # our own code raised while it handled this one job or schedule


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A request or an observation, and its author."""

    by: str = ""
    evidence: Evidence = {}
    """The inputs that the author saw, where it has more than the fields of the command."""


class Event(msgspec.Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The fields that all events carry."""

    at: float
    """The engine's time."""
    by: str = ""
    """The author of the decision or of the report: a client, a worker, the leader, a gate."""
    rule: Rule = Rule.FOLLOWED
    evidence: Evidence = {}
    """The inputs that led to the decision."""

    def growth(self) -> int:
        """Returns the most bytes that this event adds to the strings and lists of the state (`budget.py`). Numbers are counted with the job."""
        return 0


class JobEvent(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    job_id: str


encode_event = msgspec.json.Encoder().encode
"""Encodes one event as the journal keeps it."""


class Outcome(StrEnum):
    """States what became of a command."""

    ACCEPTED = "accepted"
    ALREADY = "already"  # it was done before; the answer is the same again
    REFUSED = "refused"
    NOTHING = "nothing"  # nothing to do, or not yet


class Decision(NamedTuple):
    """The events to append, all in one append, and the answer with its reason."""

    events: list[Event]
    outcome: Outcome
    rule: Rule
    reason: str = ""
    job_id: str = ""
    reply: JobStatusCorrection | None = None
    """The answer to a gate, when the command came from one."""


class GateDecision(NamedTuple):
    """The events to append, all in one append, and the answer with its reason."""

    events: list[Event]
    outcome: Outcome
    rule: Rule
    reason: str = ""
    job_id: str = ""
    ack: JobReportAck | None = None
    """The answer to the manager that reported. The gate sends it once the append has returned."""
    campaign_above: int = 0
    """Above 0 when a datacenter has seen this gate epoch, which is above ours. The gate must lead with a higher one before it decides anything."""


Decides = Mapping[type[Command], Callable[[Any, Any, float, Any], Any]]
"""Maps each command of a topic to the function `(book, command, now, rules)` that decides about it."""
Folds = Mapping[type[Event], Callable[[Any, Any], None]]
"""Maps each event of a topic to the function `(book, event)` that folds it."""


NO_TOKEN = 0
"""Manager tokens start at 1. The gate made a decision with 0 by its own clock or for a user, not from reports."""


class Rules:
    """The rulings as they hold. The exhaustive search overrides one at a time."""

    def is_final(self, state: JobState) -> bool:
        """Returns True for a terminal state. It is written once: a decision that comes later gets the final status as its answer."""
        return state.terminal

    def token_is_stale(self, fence_token: int, own: int) -> bool:
        """Returns True when a decision made from reports echoes a lower token than the manager's own: it answers an earlier leader."""
        return fence_token != NO_TOKEN and fence_token < own

    def gate_is_stale(self, gate_epoch: int, highest_seen: int) -> bool:
        """Returns True when the datacenter has seen a higher gate epoch: this gate was replaced."""
        return gate_epoch < highest_seen

    def must_report_again(self, tracking: TimeoutTrackingState) -> bool:
        """Returns True when an earlier leader reported the local timeout: the new leader reports it again, with its own token."""
        return tracking.reported_token < tracking.timeout_fence_token

    def report_counts(self, token: int, highest_seen: int, status: JobState) -> bool:
        """Returns False for a timeout report with a stale token, or from a datacenter that is already terminal."""
        return token >= highest_seen and not status.terminal

    def echoed_token(self, from_reports: bool, highest_seen: int, gate_counter: int) -> int:
        """Returns the token that a decision carries to one datacenter: the highest token seen from it, or `NO_TOKEN`.

        `gate_counter` is the document's `timeout_fence_token` of the gate. It counts decisions of the gate and is
        unrelated to any manager's token, so a manager must not compare the two.
        """
        return highest_seen if from_reports else NO_TOKEN


RULES = Rules()
