"""Journals to damage: copies of the recorded one, with checksums, in which every kind of event stands in some entry."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.formats.restoring import on_sqlite

from tenure.cli.journal import KINDS
from tenure.engines import Engine
from tenure.engines.contracts import Entry, Journal
from tenure.nodes.journal_checksum import checked_id, checked_state
from tenure.randomness import new_id

NAMES = {"manager": "jobs", "gate": "gate"}
LATER: dict[str, list[str]] = {
    "manager": [
        '{"type":"WorkflowsRegistered","at":2e9,"worker":"w-9","incarnation":"i-9","offer":"o-9","lanes":["default.p0"],"workflows":[{"name":"late","version":"1"}]}',
        '{"type":"JobSubmitted","at":2e9,"job_id":"late-1","submission":{"job_id":"late-1","workflows":[{"name":"late"}]},"digest":"d"}',
        '{"type":"Dispatched","at":2e9,"job_id":"late-1","workflow":"late","attempt":1}',
        '{"type":"Withdrawn","at":2e9,"job_id":"late-1","workflow":"late","attempt":1}',
        '{"type":"WorkflowsForgotten","at":2e9,"workflows":[["gone","1"]]}',
        '{"type":"OutageDeclared","at":2e9,"name":"s3","until":2e9,"rate":5.0,"jobs":["late-1"]}',
        '{"type":"OutageMoved","at":2e9,"name":"s3","phase":"probing","workers":["w-9"]}',
        '{"type":"OutageEnded","at":2e9,"name":"s3","jobs":["late-1"]}',
        '{"type":"Suspended","at":2e9,"job_id":"late-1","workflow":"late","attempt":1,"waits":{"step":"job c","jobs":["c","d"]},"until":2000000060.0}',
        '{"type":"ChildEnded","at":2e9,"job_id":"late-1","workflow":"late","attempt":1,"child":"c"}',
        '{"type":"SignalReceived","at":2e9,"job_id":"late-1","name":"approved","signal_id":"s-1","payload":{"by":"ada"}}',
        '{"type":"Woken","at":2000000060.0,"job_id":"late-1","workflow":"late","attempt":1}',
        '{"type":"JobPaused","at":2e9,"job_id":"late-1","reason":"r","workflows":["late"],"steered":1}',
        '{"type":"JobResumed","at":2e9,"job_id":"late-1","steered":2}',
        '{"type":"JobRetimed","at":2e9,"job_id":"late-1","timeout_seconds":60.0,"steered":3}',
        '{"type":"MoveAsked","at":2e9,"job_id":"late-1","workflow":"late","attempt":1,"worker":"w-9"}',
        '{"type":"OrderSeen","at":2e9,"job_id":"late-1","steered":4}',
        '{"type":"UndoStarted","at":2e9,"job_id":"late-1","undo_id":"late-1~undo","workflows":["late"]}',
        '{"type":"UndoEnded","at":2e9,"job_id":"late-1","undo_id":"late-1~undo","state":"failed","failed":1}',
        '{"type":"UnsignedRefused","at":2e9,"job_id":"late-1","workflow":"late","attempt":1,"generation":1,"worker":"evil"}',
        '{"type":"FormatRaised","at":2e9,"by":"leader","format":2}',
    ],
    "gate": [
        '{"type":"GateJobAccepted","at":2e9,"job_id":"late-1","submission":{"job_id":"late-1","workflows":[{"name":"late"}]},"target_datacenters":["a"],"digest":"d"}',
        '{"type":"GateJobSteered","at":2e9,"job_id":"late-1","number":1,"paused":true,"timeout_seconds":60.0}',
    ],
}
"""Events that the first release did not know, one in each entry."""


def copied(request: pytest.FixtureRequest, folder: Path, which: str, target: Engine) -> list[Entry]:
    """The journal of the first release, written again as this one writes: a snapshot at 1, and the entries after it."""
    with Engine.open(on_sqlite(request, folder).url) as engine:
        source = engine.journal(NAMES[which])
        snapshot = source.latest_snapshot()
        assert snapshot is not None
        entries = source.read(snapshot.seq)
    journal = target.journal(NAMES[which])
    append(journal, 0, 1, (b'{"type":"Forgotten","at":1.0,"until":0.5}',))
    journal.snapshot(checked_state(KINDS[which].restored(snapshot.state).snapshot(), 1), 1, epoch=1)
    journal.truncate(1)
    for seq, entry in enumerate(entries, 2):
        append(journal, seq - 1, entry.epoch, entry.events)
    for seq, event in enumerate(LATER[which], 2 + len(entries)):
        append(journal, seq - 1, entries[-1].epoch, (event.encode(),))
    return journal.read(1)


def append(journal: Journal, expect: int, epoch: int, events: tuple[bytes, ...]) -> None:
    append_id = checked_id(new_id(), expect + 1, epoch, events)
    journal.append(events, epoch=epoch, expect=expect, append_id=append_id)


def one_of_each_kind(entries: list[Entry]) -> dict[str, Entry]:
    """The shortest entry with each kind of event."""
    found: dict[str, Entry] = {}
    for entry in sorted(entries, key=lambda one: -sum(map(len, one.events))):
        for event in entry.events:
            found[json.loads(event)["type"]] = entry
    return found


def state_of(journal: Journal, which: str) -> bytes:
    """The fold of a journal that is whole, as a leader makes it."""
    kind, snapshot = KINDS[which], journal.latest_snapshot()
    from tenure.nodes.journal_reading import fold_entry, restore

    book = restore(kind.name, snapshot, kind.restored) if snapshot else kind.new_book()
    seq = snapshot.seq if snapshot else 0
    for entry in journal.read(seq):
        fold_entry(kind.name, book, entry, seq)
        seq = entry.seq
    state: bytes = book.snapshot()
    return state
