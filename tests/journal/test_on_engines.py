"""A journal of the first release on each engine: this release goes on with it, its new entries are damaged, `tenure journal` finds and mends them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result
from tests.formats.restoring import Restored
from tests.journal.damaging import DAMAGERS, damaging_nats

from tenure.cli.root import tenure
from tenure.clock import SystemClock
from tenure.control.messages.wire import MANAGER_ELECTION
from tenure.engines import Engine
from tenure.engines.aio import calls_for
from tenure.errors import JournalDamagedError
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.jobs.submission import SubmitJob
from tenure.nodes.ledger import SNAPSHOT_EVERY, NodeLedger
from tenure.nodes.loop_keeper import ProductFailures
from tenure.nodes.manager.ledger import JOURNAL, DatacenterRules, JobLedger
from tenure.nodes.process import Environment
from tenure.randomness import fresh_random, new_id


def ledger_on(engine: Engine, snapshot_every: int = SNAPSHOT_EVERY) -> JobLedger:
    clock = SystemClock()
    environment = Environment(engine, calls_for(engine), clock, fresh_random(), new_id)
    rules = DatacenterRules(snapshot_every=snapshot_every)
    return NodeLedger(rules, environment, failures=ProductFailures(clock, environment.log), engine_now=engine.now)


@contextmanager
def opened(restored: Restored) -> Iterator[Engine]:
    with Engine.open(restored.url) as engine:
        yield engine


async def lead(engine: Engine, names: tuple[str, ...], snapshot_every: int = SNAPSHOT_EVERY) -> JobLedger:
    """Take the lead on the journal of the first release, and submit jobs: one entry each."""
    ledger, election = ledger_on(engine, snapshot_every), engine.election(MANAGER_ELECTION)
    term = election.campaign("m-new", 60.0, above=engine.journal(JOURNAL).head().epoch)
    assert term is not None
    await ledger.lead(term)
    for name in names:
        await submit(ledger, name)
    election.resign(term)
    return ledger


async def submit(ledger: JobLedger, name: str) -> None:
    asked = JobSubmission(job_id=name, workflows=(WorkflowSpec(name="encode", arguments={"text": "ünï"}),))
    await ledger.commit(SubmitJob(by="anna", submission=asked))


def tenure_journal(restored: Restored, *words: str) -> Result:
    return CliRunner().invoke(tenure, ["journal", words[0], "--engine", restored.url, *words[1:]])


def damage(restored: Restored, change: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[int, Any]:
    """Go on with the journal, and damage the second of three new entries; its sequence, and the state that was to be."""

    async def story(engine: Engine) -> tuple[int, Any]:
        ledger = await lead(engine, ("n-1",))
        if restored.name == "nats":
            damaging_nats(engine, change, monkeypatch)
        await submit(ledger, "n-2")
        seq = ledger.seq
        await submit(ledger, "n-3")
        return seq, msgspec.to_builtins(ledger.book.state)

    with opened(restored) as engine:
        seq, state = asyncio.run(story(engine))
    if restored.name != "nats":
        DAMAGERS[restored.name](restored, seq, change)
    return seq, state


def flipped(place: int) -> Any:
    return lambda data: data[:place] + bytes([data[place] ^ 0x40]) + data[place + 1 :]


@pytest.mark.parametrize("place", [-1, -9, -60, 3, 0])
def test_one_wrong_byte_is_found_named_and_mended_and_nothing_is_lost(
    restored: Restored, place: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    seq, state = damage(
        restored, flipped(place) if place >= 0 else lambda data: flipped(len(data) + place)(data), monkeypatch
    )
    with opened(restored) as engine, pytest.raises(JournalDamagedError, match=f"entry {seq} of journal 'jobs'"):
        asyncio.run(ledger_on(engine).load())
    checked = tenure_journal(restored, "check", "--json")
    assert checked.exit_code == 1
    (found,) = json.loads(checked.output)["damages"]
    assert (found["part"], found["seq"], found["lost"]) == ("entry", seq, [])
    assert tenure_journal(restored, "repair").exit_code == 0  # a dry run: it is still damaged
    assert tenure_journal(restored, "check").exit_code == 1
    done = tenure_journal(restored, "repair", "--write")
    assert done.exit_code == 0, done.output
    (kept,) = tmp_path.glob("journal-jobs-damaged-*.jsonl")
    assert json.loads(kept.read_text())["seq"] == seq
    assert tenure_journal(restored, "check").exit_code == 0
    with opened(restored) as engine:
        ledger = ledger_on(engine)
        asyncio.run(ledger.load())
        assert msgspec.to_builtins(ledger.book.state) == state
        again = asyncio.run(lead(engine, ("n-4",)))
        assert "n-4" in again.book.jobs


def test_bytes_that_are_no_entry_lose_their_events_and_no_others(
    restored: Restored, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    seq, state = damage(restored, lambda data: b"\x00 not an entry", monkeypatch)
    told = tenure_journal(restored, "check")
    assert f"entry {seq}" in told.output
    assert "DAMAGED" in tenure_journal(restored, "show", str(seq)).output
    assert tenure_journal(restored, "repair", "--write").exit_code == 0
    with opened(restored) as engine:
        ledger = ledger_on(engine)
        asyncio.run(ledger.load())
        del state["jobs"]["n-2"]
        assert without_places(msgspec.to_builtins(ledger.book.state)) == without_places(state)


def without_places(state: dict[str, Any]) -> dict[str, Any]:
    """Returns the state without the places of waiting work: what came after a lost event moves up by one."""
    del state["places"]
    for job in state["jobs"].values():
        for workflow in job["workflows"].values():
            del workflow["place"]
    return state


def test_check_show_and_export_of_a_whole_journal(restored: Restored) -> None:
    with opened(restored) as engine:
        asyncio.run(lead(engine, ("n-1",)))
        head = engine.journal(JOURNAL).head()
    for journal in ("manager", "gate"):
        checked = tenure_journal(restored, "check", "--journal", journal, "--json")
        assert checked.exit_code == 0, checked.output
        assert json.loads(checked.output)["damages"] == []
    listed = tenure_journal(restored, "show")
    assert "JobSubmitted of n-1" in listed.output
    assert "ünï" in tenure_journal(restored, "show", str(head.seq)).output
    lines = tenure_journal(restored, "export").output.splitlines()
    assert json.loads(lines[-1])["seq"] == head.seq
    assert "snapshot_seq" in json.loads(lines[0])


def test_a_repair_beside_a_leader_is_refused(
    restored: Restored, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    damage(restored, lambda data: data[:-1] + b"?", monkeypatch)
    with opened(restored) as engine:
        term = engine.election(MANAGER_ELECTION).campaign("m-2", 60.0, above=engine.journal(JOURNAL).head().epoch)
        assert term is not None
        refused = tenure_journal(restored, "repair", "--write")
        assert refused.exit_code == 1
        assert "m-2 leads" in refused.output
        assert not list(tmp_path.iterdir()) or not list(tmp_path.glob("*.jsonl"))
        assert tenure_journal(restored, "repair", "--write", "--force").exit_code == 0
    assert tenure_journal(restored, "check").exit_code == 0
