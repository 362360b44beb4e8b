"""This release goes on with a journal of the first one, and the first one can still read it: checksums are where it does not look."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.formats.restoring import on_sqlite
from tests.journal.test_on_engines import lead, opened

from tenure.jobs.book import JobBook
from tenure.nodes.manager.ledger import JOURNAL

FIRST_RELEASE = "ab1a98b"
ROOT = Path(__file__).resolve().parent.parent.parent
READER = """
import json, sys, asyncio, msgspec
from tenure.clock import SystemClock
from tenure.engines import Engine
from tenure.engines.aio import calling
from tenure.ids import new_id  # this is the first release: a module that moved since is where it was
from tenure.nodes.manager.ledger import Ledger

async def main():
    engine = Engine.open(sys.argv[1])
    async with calling(engine) as calls:
        ledger = Ledger(engine.journal("jobs"), calls, clock=SystemClock(), ids=new_id, engine_now=engine.now)
        term = engine.election("manager").campaign("m-old", 60.0, above=engine.journal("jobs").head().epoch)
        await ledger.lead(term)
        engine.election("manager").resign(term)
        jobs = {name: str(info.state) for name, info in ledger.book.jobs.items()}
        print(json.dumps({"seq": ledger.seq, "jobs": jobs}))

asyncio.run(main())
"""


def written_by_this_release(request: pytest.FixtureRequest, folder: Path) -> Any:
    """The fixture, led by this release, with a snapshot and entries of its own."""
    restored = on_sqlite(request, folder)

    async def story(engine: Any) -> Any:
        ledger = await lead(engine, ("n-1", "n-2"), snapshot_every=1)
        ledger.deposed = None
        assert await ledger.snapshot_if_due()
        return await lead(engine, ("n-3",))

    with opened(restored) as engine:
        ledger = asyncio.run(story(engine))
    return restored, ledger


def test_its_decoders_read_what_is_written_now(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As its ledger did: the snapshot as it is stored, and the events of each entry."""
    restored, ledger = written_by_this_release(request, tmp_path)
    with opened(restored) as engine:
        snapshot = engine.journal(JOURNAL).latest_snapshot()
        assert snapshot is not None
        book = JobBook.restore(snapshot.state)
        for entry in engine.journal(JOURNAL).read(snapshot.seq):
            book.replay(entry.events)
    assert msgspec.to_builtins(book.state) == msgspec.to_builtins(ledger.book.state)


def test_the_first_release_itself_leads_with_it_and_this_one_again(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "old.tar"
    found = subprocess.run(
        ["git", "-C", str(ROOT), "archive", "-o", str(archive), FIRST_RELEASE, "src"], capture_output=True, text=True
    )
    if found.returncode:
        pytest.skip(f"the first release is not in this checkout: {found.stderr.strip()[:200]}")
    subprocess.run(["tar", "-xf", str(archive), "-C", str(tmp_path)], check=True)
    restored, ledger = written_by_this_release(request, tmp_path)
    jobs = {name: str(info.state) for name, info in ledger.book.jobs.items()}
    told = subprocess.run(
        [sys.executable, "-c", READER, restored.url],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "src")},
    )
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout) == {"seq": ledger.seq + 1, "jobs": jobs}
    with opened(restored) as engine:  # whose last entry has no checksum now
        again = asyncio.run(lead(engine, ("n-4",)))
    assert set(again.book.jobs) == {*jobs, "n-4"}
