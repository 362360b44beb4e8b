"""Clearing up after a worker that died: its board, its files, its stray processes, and the work that it held.

The dead board still names every receipt, so work that was claimed but not started goes back uncounted, and work that ran goes
back at once instead of when its lease runs out.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from tenure.beat.board import BeatBoard, Occupant, Phase
from tenure.clock import Clock
from tenure.engines.contracts import Engine, Mailbox
from tenure.errors import BoardError, TenureError
from tenure.work.envelope import WorkItem, WorkResult
from tenure.work.slots.processes import is_alive, kill_strays


def clear_leftovers(folder: Path, engine: Engine, engine_name: str, clock: Clock, say: Callable[[str], None]) -> int:
    """How many dead workers were cleared up. Boards of living ones are left alone, and of dead ones that held work of another engine."""
    cleared = 0
    for path in sorted(folder.glob("board-*")):
        try:
            board = BeatBoard.open(path)
        except BoardError as error:
            say(f"removing {path}: {error}")
            path.unlink(missing_ok=True)
            continue
        identity = board.identity
        same_boot = identity.boot_id == clock.boot_id()
        try:
            if same_boot and is_alive(identity.pid, identity.pid_started):
                continue
            killed = kill_strays(identity.incarnation) if same_boot else 0
            ours = identity.engine == engine_name
            if same_boot and not ours and _holds_work(board, clock.boottime()):
                continue  # only a worker of its own engine can return what it names
            returned = _return_work(board, engine, say) if same_boot and ours else 0
        finally:
            board.close()
        path.unlink(missing_ok=True)
        shutil.rmtree(folder / identity.incarnation, ignore_errors=True)
        say(f"cleared up after worker {identity.incarnation}: {returned} deliveries returned, {killed} strays killed")
        cleared += 1
    return cleared


def _holds_work(board: BeatBoard, boottime: float) -> bool:
    """Whether it names a delivery whose lease still holds."""
    readings = [(record, record.read()) for record in board.records]
    return any(r.phase is not Phase.EMPTY and record.lease_of(r.serial) > boottime for record, r in readings)


def _return_work(board: BeatBoard, engine: Engine, say: Callable[[str], None]) -> int:
    returned = 0
    for record in board.records:
        reading = record.read()
        if reading.occupant is None:
            continue
        try:
            _give_back(engine, reading.phase, reading.occupant)
            returned += 1
        except TenureError as error:  # its lease ran out meanwhile, or the engine is away: then the lease does it
            say(f"could not return {reading.occupant.workflow}: {error}")
    return returned


def _give_back(engine: Engine, phase: Phase, occupant: Occupant) -> None:
    mailbox: Mailbox[WorkItem, WorkResult] = engine.mailbox(occupant.queue, WorkItem, WorkResult)
    message = mailbox.adopt(occupant.ticket)
    if phase is Phase.CLAIMED:
        message.release()
    else:
        message.nack(0)
