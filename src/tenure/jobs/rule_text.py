"""Puts each rule into a sentence, and the end of work that only beat."""

from __future__ import annotations

from collections.abc import Mapping

from tenure.jobs.decisions import Rule
from tenure.jobs.states import AttemptCause

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
