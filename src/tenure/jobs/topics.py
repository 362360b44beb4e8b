"""Joins the topics: a manager's and a gate's commands with their decisions, and the events of their journals with their folds.

A topic is one file. It defines its commands and events, decides (a function with the command's name) and folds (one with the event's),
and lists both in `DECIDE` and `FOLD`. Everything here is derived from those tables.

One writer decides, appends and folds, in that order. To put several commands into one append, fold each decision's
events before the next command, append them all, and act after that. When the append fails, the leader was deposed and
throws its book away.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

import msgspec

from tenure.jobs import (
    attempt_results,
    attempts,
    catalogue,
    deadlines,
    endings,
    extensions,
    formats,
    gate_decisions,
    gate_exchange,
    gate_jobs,
    gate_reports,
    outages,
    queues,
    schedules,
    steering,
    submission,
    timeout,
    undo,
    unsigned_results,
    waits,
    workers,
)
from tenure.jobs.decisions import RULES, Command, Decides, Decision, Event, Folds, GateDecision, Rules

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook
    from tenure.jobs.gate_tracker import GateJobTracker

MANAGER_TOPICS = (
    deadlines,
    timeout,
    submission,
    attempts,
    attempt_results,
    unsigned_results,
    waits,
    endings,
    undo,
    gate_exchange,
    steering,
    workers,
    catalogue,
    extensions,
    schedules,
    queues,
    outages,
    formats,
)
GATE_TOPICS = (gate_jobs, gate_decisions, gate_reports)

DECIDE: Decides = {command: decide for topic in MANAGER_TOPICS for command, decide in topic.DECIDE.items()}
DECIDE_GATE: Decides = {command: decide for topic in GATE_TOPICS for command, decide in topic.DECIDE.items()}
FOLD: Folds = {event: fold for topic in MANAGER_TOPICS for event, fold in topic.FOLD.items()}
GATE_FOLD: Folds = {event: fold for topic in GATE_TOPICS for event, fold in topic.FOLD.items()}

ManagerEvent: Any = reduce(or_, FOLD)
"""The union of all events in a manager's journal. The name of its class is the tag of an event."""
GateEvent: Any = reduce(or_, GATE_FOLD)

EVENT_DECODER: msgspec.json.Decoder[Event] = msgspec.json.Decoder(ManagerEvent)
GATE_EVENT_DECODER: msgspec.json.Decoder[Event] = msgspec.json.Decoder(GateEvent)
_any_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(ManagerEvent | GateEvent)


def decode_event(encoded: bytes) -> Event:
    """Returns the event of a manager that was written; raises `msgspec.ValidationError` for anything else."""
    return EVENT_DECODER.decode(encoded)


def decode_gate_event(encoded: bytes) -> Event:
    """Returns the event of a gate that was written; raises `msgspec.ValidationError` for anything else."""
    return GATE_EVENT_DECODER.decode(encoded)


def decode_any_event(encoded: bytes) -> Event:
    """Returns an event of a manager's journal or of a gate's, for a reader that does not know whose it is."""
    return _any_decoder.decode(encoded)


def decide(book: JobBook, command: Command, now: float, rules: Rules = RULES) -> Decision:
    """Returns the decision that follows from `command` at `now`, the engine's time. Raises for a mistake of the caller."""
    decision: Decision = DECIDE[type(command)](book, command, now, rules)
    if book.waits.on_job and (told := waits.ends_of_children(book, decision.events)):
        decision = decision._replace(events=[*decision.events, *told])
    if book.undoing and (ended := undo.ends_of_undos(book, decision.events)):
        decision = decision._replace(events=[*decision.events, *ended])
    return decision


def decide_gate(tracker: GateJobTracker, command: Command, now: float, rules: Rules = RULES) -> GateDecision:
    """Returns the gate's decision that follows from `command` at `now`, the gate's engine time. Raises for a mistake of the caller."""
    decision: GateDecision = DECIDE_GATE[type(command)](tracker, command, now, rules)
    return decision
