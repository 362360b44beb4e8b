"""Builds the views of a gate's jobs, from the gate's own record and the answers of the datacenters.

Results live in the datacenters. When a job has ended in a datacenter, the gate keeps the datacenter's answer, so that it need not ask again, and
can show the answer while that datacenter is away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import msgspec

from tenure.control.messages.jobs import (
    AskWhy,
    GetJob,
    JobView,
    Problem,
    ProblemKind,
    WhyReply,
)
from tenure.control.messages.wire import Reply, Request
from tenure.engines.aio import Calls
from tenure.engines.contracts import Engine
from tenure.errors import EngineCorruptError, NodeUnavailableError
from tenure.jobs.gate_tracker import GateJobTracker
from tenure.jobs.model import GateJobTrackingInfo
from tenure.jobs.states import JobState
from tenure.jobs.why import why_everywhere
from tenure.nodes.gate.leader import ARCHIVE
from tenure.nodes.gate.lines import Lines
from tenure.nodes.gate.watch import Watch
from tenure.nodes.job_views import gate_view, in_our_time
from tenure.nodes.stored_record import read_record

ANSWERS = "gate-answers"
"""The store with the answers of datacenters in which a job has ended."""
ANSWERS_TTL_S = 7 * 86_400


class Reading:
    """Answers questions about jobs in several datacenters."""

    def __init__(self, engine: Engine, calls: Calls, lines: Lines, watch: Watch, now: Callable[[], float]) -> None:
        self._calls, self._lines, self._watch, self._now = calls, lines, watch, now
        self._archive, self._answers = engine.store(ARCHIVE), engine.store(ANSWERS)

    async def archived(self, job_id: str) -> GateJobTrackingInfo | None:
        stored = await self._calls.run(self._archive.get, job_id)
        return read_record(stored, GateJobTrackingInfo, f"job {job_id!r}") if stored is not None else None

    # One job

    async def job(
        self, info: GateJobTrackingInfo, deadline: float, now: float, *, whole: bool = True
    ) -> JobView | Problem:
        """Returns the view of all datacenters together. With `whole`, it returns a `Problem` where a datacenter with a result does not answer."""
        names = list(info.target_datacenters)
        answers = await asyncio.gather(*(self._ask(info, name) for name in names))
        missing = [
            name
            for name, answer in zip(names, answers, strict=True)
            if answer is None and info.dc_status[name] is JobState.COMPLETED
        ]
        if whole and info.state.terminal and missing:
            # A caller would take an ended job without its result for a job that has none.
            return Problem(
                kind=ProblemKind.UNAVAILABLE,
                fact=f"job {info.job_id!r} ended ({info.state}), and its result is in {', '.join(missing)}, which does not answer",
                remedy="Ask again when the datacenter is back: nothing is lost",
                retryable=True,
            )
        return gate_view(info, deadline, now, dict(zip(names, answers, strict=True)), self._watch.class_of)

    async def _ask(self, info: GateJobTrackingInfo, datacenter: str) -> JobView | None:
        key = f"{info.job_id}/{datacenter}"
        if info.dc_status[datacenter].terminal:
            stored = await self._calls.run(self._answers.get, key)
            if stored is not None:
                with suppress(EngineCorruptError):  # a copy: the datacenter itself is asked instead
                    return read_record(stored, JobView, f"job {key!r}")
        if not info.dc_heard[datacenter]:
            return None
        reply = await self._ask_line(datacenter, GetJob(job_id=info.job_id))
        if not isinstance(reply, JobView):
            return None  # the datacenter does not answer, never knew the job, or has forgotten it
        reply = in_our_time(reply, self._now())
        if reply.ended and info.dc_status[datacenter].terminal and (ttl := _kept_for(info, reply)) > 0:
            await self._calls.run(self._answers.put, key, msgspec.json.encode(reply), ttl=ttl)
        return reply

    # Reasons

    async def why(self, tracker: GateJobTracker, job_id: str) -> WhyReply:
        """Returns the gate's chain of decisions, and below it that of each datacenter that answers."""
        info, told = tracker.job(job_id), why_everywhere(tracker, job_id)
        names = list(info.target_datacenters)
        answers = await asyncio.gather(*(self._ask_why(name, job_id) for name in names))
        parts = [str(told)]
        for name, answer in zip(names, answers, strict=True):
            text = (
                answer.text if answer is not None else f"it does not answer; {info.dc_status[name]} by its last word\n"
            )
            parts.append(f"In {name}: {text}")
        return WhyReply(why=told, text="\n".join(parts))

    async def _ask_why(self, datacenter: str, job_id: str) -> WhyReply | None:
        reply = await self._ask_line(datacenter, AskWhy(job_id=job_id))
        return reply if isinstance(reply, WhyReply) else None

    async def _ask_line(self, datacenter: str, request: Request) -> Reply | None:
        """Returns a datacenter's reply, or None. It does not ask a silent datacenter, so that the caller need not wait for the timeout."""
        line = self._lines.get(datacenter)
        if line is None or self._watch.silent(datacenter):
            return None
        try:
            return await line.ask(request)
        except NodeUnavailableError:
            return None


def _kept_for(info: GateJobTrackingInfo, view: JobView) -> float:
    """Returns the seconds for which the gate may keep this answer: not longer than the submission lets anybody keep its results."""
    ttl = info.submission.result_ttl if info.submission is not None else None
    if ttl is None or view.results_expired:
        return ANSWERS_TTL_S
    return min(ANSWERS_TTL_S, view.ended_at + ttl - view.now)
