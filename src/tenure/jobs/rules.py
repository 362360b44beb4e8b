"""States the rulings of DESIGN.md that keep a node from obeying a stale message, each as one method.

They stand apart so that each can be seen and tested, and so that the exhaustive search can switch each off. A search that does not
find the harm when a ruling is missing was not looking.
"""

from __future__ import annotations

from tenure.jobs.model import TimeoutTrackingState
from tenure.jobs.states import JobState

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
