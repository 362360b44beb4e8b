"""Holds the numbers that decisions about jobs use: cadences and thresholds of document 002, and our limits."""

from __future__ import annotations

import msgspec

from tenure.bounds import YEAR_S
from tenure.errors import ConfigurationError, LimitError

GRACE_S = 30.0
"""The first extension that a job can earn past its deadline, where its submission does not say (document 000: 30 s)."""
MOST_EXTENSIONS = 5
"""The extensions of one job, for life: they add up to 1.9375 x the first."""
NEAR_SHARE = 1 / 3
"""A job's deadline is near when at most this share of its first extension is left."""
LEAST_GRACE_S = 9.0
"""The last third of the first extension must hold three reports of a worker, which come every second (RULINGS, 23)."""
STUCK_THRESHOLD_S = 120.0
"""The seconds without progress after which a job is stuck in its datacenter, while something of it runs."""
GATE_STUCK_THRESHOLD_S = 180.0
"""The seconds without progress in any running datacenter after which a job is stuck everywhere."""


MAX_STATE_BUDGET = 50_331_648
"""48 MiB: three quarters of the bytes that a snapshot may have (`budget.STATE_LIMIT`). A state of format 1 has no larger budget."""
PAGED_STATE_BUDGET = 201_326_592
"""192 MiB: the usual budget of a state that is saved in pages (decision 0421). It takes about twice as much memory."""
MAX_PAGED_BUDGET = 4_294_967_296
MIN_STATE_BUDGET = 262_144


KEEP_ARCHIVE_S = 30 * 86_400.0


class JobSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a manager's decisions about jobs."""

    report_interval: float = 10.0
    """A datacenter reports a job to its gate this often (document 002)."""
    fallback_after: float = 300.0
    """The seconds, from the first report of a local timeout, for which the leader waits for the gate. Then it ends the job itself."""
    stuck_threshold: float = STUCK_THRESHOLD_S
    """A job in which something runs and nothing advances for this long is stuck (document 002)."""
    stuck_is_explicit: bool = False
    """True where an operator set `stuck_threshold`. Then it stands as it is; otherwise twice the longest stall of a job replaces it, where that is longer."""
    history_limit: int = 200
    """The events of one job that stay in memory for `why`. The first tenth and the newest are kept."""
    archive_after: float = 3_600.0
    """The seconds for which an ended job stays in lists and in memory."""
    keep_archive: float = KEEP_ARCHIVE_S
    """The seconds for which the record of an archived job can be read, unless its queue has a setting of its own. Then the engine removes it."""
    id_memory: float = 604_800.0
    """The seconds for which the ids and idempotency keys of archived jobs, and tombstones, are remembered."""
    max_remembered: int = 250_000
    """The most archived ids that are remembered, so that memory stays bounded at any rate of jobs."""
    state_budget: int = PAGED_STATE_BUDGET
    """The bytes of state at which nothing new is accepted; 48 MiB at most while the state is saved as one snapshot. A third more is kept free for
    what accepted jobs still add (decision 0220)."""

    def __post_init__(self) -> None:
        for field in ("report_interval", "fallback_after", "stuck_threshold"):
            check_positive(field, getattr(self, field))
        if not 0 < self.keep_archive <= YEAR_S:
            raise LimitError("keep_archive", self.keep_archive, "above 0 and at most a year of seconds, 31,536,000")
        if not MIN_STATE_BUDGET <= self.state_budget <= MAX_PAGED_BUDGET:
            allowed = f"between {MIN_STATE_BUDGET:,} and {MAX_PAGED_BUDGET:,} bytes"
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
        """The share of a job's stuck threshold in which progress is journaled at most once."""
        return 0.25


class GateSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a gate's decisions about jobs."""

    check_interval: float = 15.0
    """A gate looks at its jobs' deadlines this often (document 002)."""
    report_interval: float = 10.0
    """How often datacenters report a job. After two of them without a report, the gate declares a deadline on what it knows."""
    stuck_threshold: float = GATE_STUCK_THRESHOLD_S
    """Longer than a datacenter's own, so that the datacenter decides first (document 002)."""
    resend_first: float = 1.0
    """The first pause before a decision is sent again."""
    resend_most: float = 30.0
    """The gate sends a decision or a submission that a datacenter has not acknowledged again, after 1, 2, 4, … 30 s."""
    history_limit: int = 200
    """The events of one job that stay in memory for `why`."""
    archive_after: float = 3_600.0
    """The seconds for which an ended job stays in lists and in memory."""
    keep_archive: float = KEEP_ARCHIVE_S
    """The seconds for which the record of an archived job can be read."""
    id_memory: float = 604_800.0
    """The seconds for which the ids of archived jobs are remembered, so that a repeated submission is no new job."""
    max_remembered: int = 250_000
    """The most archived ids that are remembered, so that memory stays bounded."""

    def __post_init__(self) -> None:
        for field in ("check_interval", "report_interval", "stuck_threshold", "resend_first", "resend_most"):
            check_positive(field, getattr(self, field))


class JobLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits the sizes of whole submissions, arguments, results and errors. The bounds of single fields are in their types (`tenure.bounds`)."""

    max_arguments_bytes: int = 131_072
    """The arguments of one workflow, as JSON, that are journaled. A manager puts larger ones into its store, up to 7 MiB for one job."""
    max_submission_bytes: int = 393_216
    """The bytes of one whole submission. It must fit into one append of the journal."""
    max_result_bytes: int = 16_384
    """The bytes of a result inside the journal. A larger one goes into the store, and the journal records its key."""
    max_error_chars: int = 8_192
    """An error's text is cut to this, with its beginning and its end."""


LIMITS = JobLimits()
MOST_TRACE_CHARS = 4_000
"""The characters of a traceback that are kept as evidence: its end, because that names the place."""


def check_positive(field: str, value: float) -> None:
    """Raises `LimitError` for zero, negative, infinite and NaN."""
    if not 0 < value < float("inf"):
        raise LimitError(field, value, "a positive number of seconds")
