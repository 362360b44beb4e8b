"""Says of each cause by which an attempt can end what happened, in words for people."""

from __future__ import annotations

from collections.abc import Mapping

from tenure.jobs.states import AttemptCause

CAUSES: Mapping[str, str] = {
    AttemptCause.ERROR: "it raised an error",
    AttemptCause.STALL: "it gave no beat within its stall threshold, and was ended",
    AttemptCause.CRASH: "its process died",
    AttemptCause.LOST_LEASE: "its lease was lost, so its result would have been refused",
    AttemptCause.EVICTED: "its worker was evicted",
    AttemptCause.DEAD_LETTER: "the engine gave up on its message",
    AttemptCause.PAUSED: "its job was paused",
    AttemptCause.MOVED: "it was moved to another worker",
    AttemptCause.PREEMPTED: "urgent work got its slot",
    # The words of workers, which say more.
    "exception": "it raised an error",
    "unknown_workflow": "its worker has no such workflow",
    "bad_arguments": "its arguments do not fit the function",
    "bad_result": "it gave or asked for what cannot be taken",
    "bad_message": "no slot can take its message",
    "timeout": "it ran into its timeout for one attempt",
    "cancelled": "it cancelled itself",
    "lease_lost": "its lease was lost, so its result would have been refused",
    "drained": "its worker was shutting down",
    "exited": "it ended its own process",
    "killed": "a signal killed its process",
    "memory": "the kernel killed it for memory",
    "unsettled": "its outcome could not be handed over",
    "worker_died": "its whole worker died",
    "internal": "Tenure itself failed on it",
}
"""Maps each cause, by the word of the leader or of the worker, to what happened."""
