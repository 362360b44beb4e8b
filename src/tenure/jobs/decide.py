"""Decides what follows from a command: `decide(book, command, now)` returns events and changes nothing.

One writer decides, appends and folds, in that order. To put several commands into one append, fold each decision's
events before the next command, append them all, and act after that. When the append fails, the leader was deposed and
throws its book away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tenure.jobs import commands as c
from tenure.jobs import decide_attempts, decide_jobs, decide_schedules, decide_timeouts, decide_workers, queues
from tenure.jobs.book import JobBook
from tenure.jobs.rules import RULES, Rules

Decider = Callable[[JobBook, Any, float, Rules], c.Decision]

DECIDE: Mapping[type[c.Command], Decider] = {
    c.TakeLead: decide_jobs.take_lead,
    c.SubmitJob: decide_jobs.submit,
    c.PutSchedule: decide_schedules.put,
    c.RemoveSchedule: decide_schedules.remove,
    c.FireCron: decide_schedules.fire,
    c.RunSchedule: decide_schedules.run_now,
    c.SkipInstants: decide_schedules.skip,
    c.PauseSchedule: decide_schedules.pause,
    c.CancelJob: decide_jobs.cancel,
    c.FailJob: decide_jobs.fail,
    c.ConfirmCleaned: decide_jobs.confirm_cleaned,
    c.SetQueue: queues.set_queue,
    c.DrainWorker: decide_workers.drain,
    c.ExpireResults: decide_jobs.expire_results,
    c.ArchiveJob: decide_jobs.archive,
    c.ForgetOld: decide_jobs.forget_old,
    c.RecordDispatched: decide_attempts.dispatched,
    c.RecordStarted: decide_attempts.started,
    c.RecordProgress: decide_attempts.progress,
    c.TouchProgress: decide_attempts.touch,
    c.RecordResult: decide_attempts.result,
    c.RecordFailure: decide_attempts.failure,
    c.EvictWorker: decide_workers.evict,
    c.JudgeWorker: decide_workers.judge,
    c.GrantExtension: decide_workers.grant,
    c.DenyExtension: decide_workers.deny,
    c.ResetExtensions: decide_workers.reset,
    c.ForgetWorker: decide_workers.forget,
    c.CheckJob: decide_timeouts.check,
    c.ObeyGlobalTimeout: decide_timeouts.obey_timeout,
    c.ObeyGlobalCancel: decide_timeouts.obey_cancel,
    c.AnswerQuery: decide_timeouts.answer_query,
    c.HearGate: decide_timeouts.hear_gate,
}


def decide(book: JobBook, command: c.Command, now: float, rules: Rules = RULES) -> c.Decision:
    """Returns the decision that follows from `command` at `now`, the engine's time. Raises for a mistake of the caller."""
    return DECIDE[type(command)](book, command, now, rules)
