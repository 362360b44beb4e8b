"""The numbers that jobs are decided by: cadences and thresholds of document 002, and our limits."""

from __future__ import annotations

import msgspec

from tenure.errors import ConfigurationError, LimitError

DEFAULT_TIMEOUT_S = 3_600.0
STUCK_THRESHOLD_S = 120.0
"""No progress for this long while something runs, and the job is stuck in its datacenter."""
GATE_STUCK_THRESHOLD_S = 180.0
"""No progress in any running datacenter for this long, and the job is stuck everywhere."""


MAX_STATE_BUDGET = 50_331_648
"""48 MiB: three quarters of the bytes that a snapshot may have (`state_size.STATE_LIMIT`)."""
MIN_STATE_BUDGET = 262_144


class JobSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a manager decides jobs by."""

    check_interval: float = 30.0
    """The longest a leader sleeps between checks; deadlines fire from the heap, at their time."""
    report_interval: float = 10.0
    fallback_after: float = 300.0
    """A local timeout that no gate has answered for this long, counted from its first report, is executed here."""
    default_timeout: float = DEFAULT_TIMEOUT_S
    stuck_threshold: float = STUCK_THRESHOLD_S
    history_limit: int = 200
    """Events of one job that stay in memory for `why`; the first tenth and the newest are kept."""
    archive_after: float = 3_600.0
    id_memory: float = 604_800.0
    """Ids, idempotency keys and tombstones are remembered for this long after the end."""
    max_remembered: int = 250_000
    """And at most this many archived ids, so that memory stays bounded whatever the rate."""
    state_budget: int = MAX_STATE_BUDGET
    """Bytes of state at which nothing new is accepted. A third more is kept free for what accepted jobs still bring (decision 0220)."""

    def __post_init__(self) -> None:
        for field in ("check_interval", "report_interval", "fallback_after", "default_timeout", "stuck_threshold"):
            check_positive(field, getattr(self, field))
        if not MIN_STATE_BUDGET <= self.state_budget <= MAX_STATE_BUDGET:
            allowed = f"between {MIN_STATE_BUDGET:,} and {MAX_STATE_BUDGET:,} bytes"
            raise LimitError("state_budget", self.state_budget, allowed)
        if not self.archive_after >= 0:  # also refuses NaN
            raise LimitError("archive_after", self.archive_after, "0 seconds or more")
        if self.history_limit < 0:
            raise LimitError("history_limit", self.history_limit, "0 or more")
        if self.archive_after > self.id_memory:
            raise ConfigurationError(
                f"archive_after ({self.archive_after:g} s) is longer than id_memory ({self.id_memory:g} s)",
                remedy="Remember ids for at least as long as whole jobs",
            )

    @property
    def progress_share(self) -> float:
        """Progress is journaled at most once in this share of a job's stuck threshold."""
        return 0.25


class GateSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a gate decides jobs by."""

    check_interval: float = 15.0
    stuck_threshold: float = GATE_STUCK_THRESHOLD_S
    resend_first: float = 1.0
    resend_most: float = 30.0
    """A decision or a submission that a datacenter has not acknowledged is sent again, after 1, 2, 4, … 30 s."""
    history_limit: int = 200
    archive_after: float = 3_600.0
    id_memory: float = 604_800.0
    max_remembered: int = 250_000

    def __post_init__(self) -> None:
        for field in ("check_interval", "stuck_threshold", "resend_first", "resend_most"):
            check_positive(field, getattr(self, field))


class JobLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one submission may be, taken together. The bounds of single fields are in their types (`tenure.bounds`)."""

    max_arguments_bytes: int = 131_072
    max_submission_bytes: int = 393_216
    """Of one whole submission: it must fit into one append of the journal."""
    max_result_bytes: int = 16_384
    """Of a result inside the journal; a larger one is put into the store, and its key is recorded."""
    max_error_chars: int = 8_192


def check_positive(field: str, value: float) -> None:
    """Reject zero, negative, infinite and NaN."""
    if not 0 < value < float("inf"):
        raise LimitError(field, value, "a positive number of seconds")
