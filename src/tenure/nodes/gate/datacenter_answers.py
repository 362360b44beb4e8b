"""Judges what the datacenters of a job answered to a request that its gate passed on. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from tenure.control.messages.jobs import Done
from tenure.control.messages.wire import Problem, ProblemKind, Reply
from tenure.errors import ArgumentsError, NodeUnavailableError
from tenure.jobs.decisions import GateDecision, Outcome, Rule
from tenure.jobs.model import GateJobTrackingInfo


def in_words(answer: Reply | None) -> str:
    """Returns what a datacenter said to a request that acts on a job."""
    if isinstance(answer, Done):
        return answer.reason or str(answer.outcome)
    return answer.fact if isinstance(answer, Problem) else "it does not answer"


def all_in_words(answers: Mapping[str, Reply | None], info: GateJobTrackingInfo) -> str:
    words = "; ".join(f"{name}: {in_words(one)}" for name, one in answers.items())
    return words or f"it has ended: {info.state}"


def signal_decision(answers: Mapping[str, Reply | None], info: GateJobTrackingInfo) -> GateDecision:
    """Returns what became of a signal. Each datacenter keeps it, and its id makes a second try harmless.

    Raises `ArgumentsError` where a datacenter says that the signal itself is wrong. Raises `NodeUnavailableError`, which lets the sender try again, where
    none has taken it and one did not answer, or has not got the job yet: the gate has accepted it and is still sending it.
    """
    words = all_in_words(answers, info)
    if any(isinstance(one, Done) and one.outcome is not Outcome.REFUSED for one in answers.values()):
        return GateDecision([], Outcome.ACCEPTED, Rule.ASKED, words, info.job_id)
    for one in answers.values():
        if isinstance(one, Problem) and one.kind in (ProblemKind.INVALID, ProblemKind.IMPOSSIBLE):
            raise ArgumentsError(one.fact, remedy=one.remedy)
    if any(one is None or (isinstance(one, Problem) and _passes(one)) for one in answers.values()):
        raise NodeUnavailableError(f"no datacenter has taken the signal ({words})")
    return GateDecision([], Outcome.REFUSED, Rule.ASKED, words, info.job_id)


def _passes(problem: Problem) -> bool:
    return problem.retryable or problem.kind is ProblemKind.UNKNOWN
