"""Turns entries and snapshots of a journal, whole or damaged, into lines for people and into JSON for programs."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import Any

import click
import msgspec

from tenure.engines.contracts import Entry, Snapshot
from tenure.jobs.why import utc
from tenure.nodes.journal_checksum import OpenedSnapshot, entry_damage, is_checked, opened
from tenure.nodes.journal_repair import Damage, named


def plain(data: bytes) -> Any:
    """Returns bytes as text where they are text; otherwise as base64."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}


def entry_record(entry: Entry) -> str:
    """Returns one entry as one line of JSON."""
    told: dict[str, Any] = {"seq": entry.seq, "epoch": entry.epoch, "append_id": entry.append_id, "at": entry.at}
    told["events"] = [plain(event) for event in entry.events]
    if damage := entry_damage(entry):
        told["damage"] = damage
    if entry.stored:
        told["stored"] = {"base64": b64encode(entry.stored).decode()}
    return msgspec.json.encode(told).decode()


def snapshot_record(snapshot: Snapshot, found: OpenedSnapshot) -> str:
    """Returns the snapshot as one line of JSON, with its state as it is stored."""
    told = {"snapshot_seq": snapshot.seq, "epoch": snapshot.epoch, "damage": found.damage}
    return msgspec.json.encode({**told, "state": {"base64": b64encode(snapshot.state).decode()}}).decode()


def entry_lines(entry: Entry) -> list[str]:
    """Returns one entry as lines for people: its head, its damage, and each event under a line that names it."""
    seal = "checksum right" if is_checked(entry) else "no checksum (written by the first release)"
    damage = entry_damage(entry)
    head = f"entry {entry.seq}, epoch {entry.epoch}, {utc(entry.at)}, id {entry.append_id or 'unknown'}"
    lines = [f"{head}: {f'DAMAGED: {damage}' if damage else seal}"]
    for number, event in enumerate(entry.events, 1):
        lines += [f"event {number}: {named(event)}", f"  {event.decode(errors='backslashreplace')}"]
    if entry.stored:
        lines.append(f"as it is stored: {entry.stored!r}")
    return lines


def keep_copies(file: str, journal: str, damages: Iterable[Damage]) -> Path:
    """Writes the damaged entries and snapshots to a new file, before the journal is mended. Returns its path."""
    path = Path(file) if file else new_path(journal)
    lines = []
    for one in damages:
        if one.entry is not None:
            lines.append(entry_record(one.entry))
        if one.snapshot is not None:
            lines.append(snapshot_record(one.snapshot, opened(one.snapshot)))
    try:
        with path.open("x") as out:
            out.writelines(f"{line}\n" for line in lines)
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written: {error}. Nothing was changed.") from error
    return path


def new_path(journal: str) -> Path:
    """Returns a name in this folder that no file has."""
    return next(path for n in count(1) if not (path := Path(f"journal-{journal}-damaged-{n}.jsonl")).exists())
