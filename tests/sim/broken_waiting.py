"""Datacenters of work that waits in which somebody forgets one rule: the observer has to find every one of them.

Not a test module: the replay commands of failing seeds name this file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import msgspec
from tests.changed import changed
from tests.worlds.datacenter.waiting import Waiting as AnyWaiting
from tests.worlds.datacenter.waiting import WaitingSlots
from tests.worlds.patching import Patched

from tenure.engines.contracts import Message
from tenure.errors import EngineUnavailableError
from tenure.jobs import Decision, JobBook, decide
from tenure.jobs import waits as waits_topic
from tenure.jobs.attempts import move
from tenure.jobs.decisions import Command, Event, Outcome, Rule
from tenure.jobs.model import JobInfo, WorkflowRecord
from tenure.jobs.states import WorkflowState
from tenure.jobs.waits import SendSignal, SignalReceived, Suspended
from tenure.jobs.work_indexes import WaitIndex, WorkflowKey
from tenure.nodes.manager import leader, ledger
from tenure.sim.faults import FaultKind, FaultProfile
from tenure.work import wait_calls
from tenure.work.kept_steps import KeptSteps
from tenure.work.step_log import StepId, StepLog
from tenure.work.wait_calls import Waits

T = TypeVar("T")

# Workers


def without_steps(self: KeptSteps, message: Message[Any, Any], job_id: str, workflow_id: str) -> list[bytes]:
    """Reads nothing of what was recorded."""
    return []


class LosingSlots(WaitingSlots):
    """Goes on when the answer to a step was lost."""

    def travel(self, context: Any) -> None:
        super().travel(context)
        sound = context.in_thread

        async def through(call: Callable[[], Any]) -> Any:
            try:
                return await sound(call)
            except EngineUnavailableError:
                if getattr(getattr(call, "func", None), "__name__", "") != "record_step":
                    raise
                return None

        context.in_thread = through


def woken_by_anything(self: Waits, step: StepId) -> bool:
    """Takes every new dispatch for the end of its wait."""
    return bool(self._handle.delivery.item.woken_before)


def in_the_order_of_calls(self: StepLog, step: StepId) -> None:
    """Expects steps that ran at once in the order in which they were recorded, too."""
    places = {found: number for number, found in enumerate(self._found)}
    if self._last is not None and places[step] < places[self._last]:
        raise wait_calls.LimitError(str(step), "out of order", "the order of the first run")
    self._last = step


# Leaders


def blind_for_the_inbox(book: JobBook, command: Command, now: float) -> Decision:
    """Suspends work without a look at what has come meanwhile."""
    decision = decide(book, command, now)
    if isinstance(command, waits_topic.RecordSuspended):
        return changed(
            decision,
            events=[
                msgspec.structs.replace(one, over=False, waits=command.waits) if isinstance(one, Suspended) else one
                for one in decision.events
            ],
        )
    return decision


def counting_signals_twice(book: JobBook, command: Command, now: float) -> Decision:
    """Does not look at the ids of signals."""
    decision = decide(book, command, now)
    if isinstance(command, SendSignal) and decision.outcome is Outcome.ALREADY:
        again = SignalReceived(
            at=now, job_id=command.job_id, name=command.name, signal_id=f"{command.signal_id}'", payload=command.payload
        )
        return Decision([again], Outcome.ACCEPTED, Rule.ASKED, "", command.job_id)
    return decision


def without_ends_of_children(book: JobBook, ended: Sequence[Event]) -> list[Event]:
    """Tells no parent."""
    return []


_moved = WaitIndex.moved


def forgetting_at_restore(self: WaitIndex, key: WorkflowKey, workflow: WorkflowRecord, old: WorkflowState) -> None:
    """Knows the waits that it saw begin, and none of those in a snapshot that it was made from."""
    if not (old is WorkflowState.WAITING and workflow.state is WorkflowState.SUSPENDED):
        _moved(self, key, workflow, old)


def waking_by_guess(book: JobBook, now: float) -> list[WorkflowKey]:
    """Wakes what is due within the next two seconds, too."""
    due = book.waits.sleeping.pop_due(now + 2.0, 1_000)
    for job_id, name in due:
        book.jobs[job_id].workflows[name].wakes_at = now
    return due


def move_after_the_worker_was_forgotten(
    book: JobBook, info: JobInfo, workflow: WorkflowRecord, new: WorkflowState
) -> None:
    """Leaves suspended work in the index of the worker that had it."""
    if new is WorkflowState.SUSPENDED:
        workflow.worker = ""
    move(book, info, workflow, new)


# Scenarios


class Waiting(AnyWaiting):
    """On an engine that appends, sends and acknowledges one after the other: there are more moments at which a rule may be forgotten."""

    one_step = False


class ForgetsSteps(Patched, Waiting):
    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {(KeptSteps, "read"): without_steps}


class Refusals(Waiting):
    """The engine refuses calls for moments, again and again, and never for so long that a leader steps down."""

    faults = FaultProfile(
        kinds=(FaultKind.ENGINE_REFUSES, FaultKind.ENGINE_OUTAGE), most=40, until_s=25.0, duration_s=(0.1, 0.6)
    )


class AcknowledgesSteps(Refusals):
    slots = LosingSlots


class WakesByAnything(Patched, Waiting):
    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {(Waits, "_is_woken"): woken_by_anything}


class OrdersWhatRanAtOnce(Patched, Waiting):
    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {(StepLog, "_check_order"): in_the_order_of_calls}


class SuspendsBlindly(Patched, Waiting):
    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {(ledger, "decide"): blind_for_the_inbox}


class CountsSignalsTwice(Patched, Waiting):
    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {(ledger, "decide"): counting_signals_twice}


class TellsNoParent(Patched, Waiting):
    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {(waits_topic, "ends_of_children"): without_ends_of_children}


class ForgetsTimers(Patched, Waiting):
    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {(WaitIndex, "moved"): forgetting_at_restore}


class WakesEarly(Patched, Waiting):
    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {(leader, "to_wake"): waking_by_guess}


class KeepsTheHolder(Patched, Waiting):
    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {(waits_topic, "move"): move_after_the_worker_was_forgotten}
