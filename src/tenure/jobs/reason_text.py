"""Puts spans of time, rules, and the causes by which an attempt can end into words for people. Clients import it too."""

from __future__ import annotations

from collections.abc import Mapping

from tenure.jobs.decisions import Rule
from tenure.jobs.states import AttemptCause


def seconds(value: float) -> str:
    """Returns a span of time as people say it."""
    if value < 120:
        return f"{value:g} s" if value == round(value, 1) else f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


RULES: Mapping[Rule, str] = {
    Rule.ASKED: "somebody asked for it",
    Rule.FOLLOWED: "it follows from what was decided before",
    Rule.TAKEOVER: "a new leader took over",
    Rule.WORKER_SAID: "the worker said so",
    Rule.ENGINE_SAID: "the engine said so",
    Rule.HEALTH: "the health of its worker",
    Rule.OUTAGE: "most of those that wait for it are in trouble at once, so it is that which is down",
    Rule.ALL_DONE: "every workflow has ended",
    Rule.NOTHING_DONE: "a job in which nothing completed has not completed",
    Rule.FAILED_FOR_GOOD: "the final failure of a workflow fails its job",
    Rule.TOMBSTONE: "it was ended before it was known here",
    Rule.OVERALL_TIMEOUT: "a job may take timeout_seconds plus the time that it was granted",
    Rule.STUCK: "while something runs, something must advance within the stuck threshold",
    Rule.REPORT_AGAIN: "a new leader reports with its own token what the last one may have reported in vain",
    Rule.GLOBAL_TIMEOUT: "the gate decides for all datacenters",
    Rule.GLOBAL_CANCEL: "the gate decides for all datacenters",
    Rule.FALLBACK: "a gate that does not answer does not keep a job alive",
    Rule.STALE_TOKEN: "it was concluded from what an earlier leader said",
    Rule.STALE_GATE: "it came from a gate that is no longer in charge",
    Rule.STALE_ATTEMPT: "only the newest attempt counts",
    Rule.STALE_DELIVERY: "only the newest delivery of an attempt counts",
    Rule.JOB_ENDED: "an ended job stays as it ended",
    Rule.ALREADY_RECORDED: "it was recorded before",
    Rule.RETENTION: "old jobs leave memory",
    Rule.ANY_DATACENTER: "time that ran out in one datacenter has run out in all",
    Rule.ALL_STUCK: "nothing advances in any datacenter",
    Rule.REBUILT: "the gate lost its journal, and learned it back from a datacenter",
    Rule.DATACENTER_SAID: "the datacenter said so",
    Rule.UNSIGNED: "results are signed here, and what is not signed with a key that counts is not believed",
    Rule.PRODUCT_FAILED: "a fault of Tenure itself ends the one thing that it concerns, and nothing else",
}

SPUN = "it beat without getting any further for its stuck threshold, and was ended"


def is_spinning(cause: AttemptCause, error: str) -> bool:
    """Returns True for an attempt that beat, and was ended because nothing of it was new. Its cause on the wire is a stall's (decision 0316)."""
    return cause is AttemptCause.STALL and error.removeprefix("stall: ").startswith("spinning: ")


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
