"""Each ruling, left out. The search must find the harm in every one of these, or it was not looking."""

from __future__ import annotations

from typing import Any

from tenure.jobs.decisions import Rules
from tenure.jobs.model import TimeoutTrackingState
from tenure.jobs.states import JobState


class NoEchoedToken(Rules):
    """The gate sends its own counter, as the document has it, and the manager compares it with its own token."""

    def echoed_token(self, from_reports: bool, highest_seen: int, gate_counter: int) -> int:
        return gate_counter


class NoWriteOnceTerminal(Rules):
    """An ended job may be ended again."""

    def is_final(self, state: JobState) -> bool:
        return False


class StaleReportsCount(Rules):
    """A timeout report counts whoever sent it, and whenever."""

    def report_counts(self, token: int, highest_seen: int, status: JobState) -> bool:
        return not status.terminal


class NoReportAfterTransfer(Rules):
    """`locally_timed_out` silences the new leader."""

    def must_report_again(self, tracking: TimeoutTrackingState) -> bool:
        return False


class StaleTokensObeyed(Rules):
    """A decision made from an earlier leader's reports is obeyed."""

    def token_is_stale(self, fence_token: int, own: int) -> bool:
        return False


class StaleGatesObeyed(Rules):
    """A gate that was replaced is obeyed."""

    def gate_is_stale(self, gate_epoch: int, highest_seen: int) -> bool:
        return False


MUTANTS: dict[str, dict[str, Any]] = {
    "echoed token": {"rules": NoEchoedToken()},
    "final decision": {"correction_withdraws": True},
    "write-once terminal": {"rules": NoWriteOnceTerminal()},
    "stale report ignored": {"rules": StaleReportsCount()},
    "re-report after transfer": {"rules": NoReportAfterTransfer()},
    "stale token refused": {"rules": StaleTokensObeyed()},
    "stale gate refused": {"rules": StaleGatesObeyed()},
}
