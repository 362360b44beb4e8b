"""The registry of commands and events is derived from the topics, and no event is without its fold, its text and its place in the docs."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import get_args

import pytest

from tenure.jobs.attempts import AttemptCommand
from tenure.jobs.decisions import Command, Event
from tenure.jobs.event_text import TELL, UNTOLD
from tenure.jobs.topics import (
    DECIDE,
    DECIDE_GATE,
    FOLD,
    GATE_FOLD,
    GATE_TOPICS,
    MANAGER_TOPICS,
    GateEvent,
    ManagerEvent,
)

TOPICS = (*MANAGER_TOPICS, *GATE_TOPICS)
EVENTS = (*FOLD, *GATE_FOLD)
PAGE = (Path(__file__).parents[2] / "docs" / "events.md").read_text()


def snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def defined(topic: ModuleType, base: type) -> set[type]:
    return {
        found
        for found in vars(topic).values()
        if isinstance(found, type) and issubclass(found, base) and found.__module__ == topic.__name__
    }


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.__name__)
def test_a_topic_decides_every_command_and_folds_every_event_that_it_defines(topic: ModuleType) -> None:
    assert set(topic.DECIDE) == defined(topic, Command) - {AttemptCommand}
    assert set(topic.FOLD) == defined(topic, Event)


def test_functions_are_named_for_their_command_or_event() -> None:
    decided = {command: function.__name__ for command, function in (*DECIDE.items(), *DECIDE_GATE.items())}
    folded = {event: function.__name__ for event, function in (*FOLD.items(), *GATE_FOLD.items())}
    assert decided == {command: snake(command.__name__) for command in decided}
    assert folded == {event: snake(event.__name__) for event in folded}


def test_the_journals_know_exactly_the_events_that_are_folded_and_each_tag_once() -> None:
    assert set(get_args(ManagerEvent)) == set(FOLD)
    assert set(get_args(GateEvent)) == set(GATE_FOLD)
    assert Counter(event.__name__ for event in EVENTS).most_common(1)[0][1] == 1


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
def test_an_event_has_a_text_for_people_and_a_place_in_the_docs(event: type[Event]) -> None:
    assert (event in TELL) != (event in UNTOLD)
    assert event.__doc__ not in (None, Event.__doc__)
    assert f"| `{event.__name__}` |" in PAGE
