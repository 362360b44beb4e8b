"""The rulings of DESIGN.md that keep stale words from being obeyed, each as one question.

They stand apart so that each can be seen, tested and, by the exhaustive search, switched off: a search that does not
find the harm when a ruling is missing was not looking.
"""

from __future__ import annotations

from tenure.jobs.model import TimeoutTrackingState
from tenure.jobs.states import JobState

NO_TOKEN = 0
"""Manager tokens start at 1. A decision with 0 was made by the gate's own clock or by a user, not from reports."""


class Rules:
    """The rulings as they hold. The search overrides one at a time."""

    def is_final(self, state: JobState) -> bool:
        """Terminal states are written once: whatever comes later gets the final status as its answer."""
        return state.terminal

    def token_is_stale(self, fence_token: int, own: int) -> bool:
        """A decision made from reports echoes the manager's token; lower than the manager's own is stale."""
        return fence_token != NO_TOKEN and fence_token < own

    def gate_is_stale(self, gate_epoch: int, highest_seen: int) -> bool:
        """A gate's epoch fences stale gates."""
        return gate_epoch < highest_seen

    def must_report_again(self, tracking: TimeoutTrackingState) -> bool:
        """The token that was reported is kept; a new leader reports the local timeout again, with its own."""
        return tracking.reported_token < tracking.timeout_fence_token

    def report_counts(self, token: int, highest_seen: int, status: JobState) -> bool:
        """A timeout report with a stale token, or from a datacenter already terminal, does not count."""
        return token >= highest_seen and not status.terminal

    def echoed_token(self, from_reports: bool, highest_seen: int, gate_counter: int) -> int:
        """What a decision carries to one datacenter: the highest token seen from it, or none.

        `gate_counter` is the document's `timeout_fence_token` of the gate. It counts decisions of the gate and is
        unrelated to any manager's token, so it is not what is compared.
        """
        return highest_seen if from_reports else NO_TOKEN


RULES = Rules()
