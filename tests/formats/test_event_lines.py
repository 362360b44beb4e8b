"""The journal's events as the first release wrote them: one line of each kind with every field, one with only those that must be."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from tests.formats.restoring import FOLDER

from tenure.jobs.decisions import encode_event
from tenure.jobs.topics import GateEvent, ManagerEvent, decode_event, decode_gate_event

FILES: dict[str, tuple[Any, Any]] = {
    "manager_events.jsonl": (ManagerEvent, decode_event),
    "gate_events.jsonl": (GateEvent, decode_gate_event),
}
LINES = [
    pytest.param(name, line, id=f"{json.loads(line)['type']}-{'full' if number % 2 == 0 else 'bare'}")
    for name in FILES
    for number, line in enumerate((FOLDER / name).read_bytes().splitlines())
]


@pytest.mark.parametrize(("name", "line"), LINES)
def test_an_event_of_the_first_release_is_read_and_would_be_written_the_same(name: str, line: bytes) -> None:
    decode = FILES[name][1]
    again = json.loads(encode_event(decode(line)))
    recorded = json.loads(line)
    assert {field: again.get(field) for field in recorded} == recorded


@pytest.mark.parametrize(("name", "line"), LINES)
def test_the_first_release_reads_what_is_written_now(name: str, line: bytes) -> None:
    """Until the format is raised, an event of the first release is written with the bytes that it would have had."""
    assert encode_event(FILES[name][1](line)) == line


@pytest.mark.parametrize("name", FILES)
def test_every_kind_of_the_first_release_is_still_known(name: str) -> None:
    recorded = {json.loads(line)["type"] for line in (FOLDER / name).read_bytes().splitlines()}
    assert recorded <= {kind.__name__ for kind in get_args(FILES[name][0])}
