"""Cleans up after workers that died: their boards, files and stray processes, and the work that they held.

The board of a dead worker still names every receipt. Work that was claimed and not started goes back uncounted. Work that had started failed with its
worker: it is settled with that cause at once, by its own policy, instead of when its lease runs out. So work that kills its worker is counted.

The cleanup settles work only from a board that belongs to this user and whose content and name agree. It removes other `board-*` files of
this user, leaves those of other users alone, and logs both.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

from tenure.beat.board import BeatBoard, BoardIdentity, Phase
from tenure.beat.own_files import check_own_folder
from tenure.clock import Clock
from tenure.engines.contracts import Engine
from tenure.errors import BoardError, ForeignFileError
from tenure.work.envelope import Cause, WorkFailure
from tenure.work.slots.attempt_logs import FileLines
from tenure.work.slots.processes import is_alive, kill_strays
from tenure.work.slots.slot_deliveries import HeldDelivery, SlotDeliveries


class DeadWorkerCleanup:
    """Finds the boards of dead workers in one folder and cleans up after each."""

    def __init__(
        self,
        folder: Path,
        engine: Engine,
        engine_name: str,
        *,
        clock: Clock,
        random: Random,
        say: Callable[[str], None],
    ) -> None:
        self._folder, self._engine, self._engine_name = folder, engine, engine_name
        self._clock, self._random, self._say = clock, random, say

    def clear(self) -> int:
        """Cleans up, and returns for how many dead workers. It skips living workers, and dead ones that held work of another engine."""
        return sum(self._clear_one(path) for path in sorted(self._folder.glob("board-*")))

    def _clear_one(self, path: Path) -> bool:
        try:
            board = BeatBoard.open(path)
        except ForeignFileError as error:
            self._say(f"left alone: {error}")
            return False
        except BoardError as error:
            self._say(f"removing {path}: {error}")
            path.unlink(missing_ok=True)
            return False
        identity = board.identity
        same_boot = identity.boot_id == self._clock.boot_id()
        try:
            if same_boot and is_alive(identity.pid, identity.pid_started):
                return False
            killed = kill_strays(identity.incarnation) if same_boot else 0
            ours = identity.engine == self._engine_name
            if same_boot and not ours and self._holds_work(board):
                return False  # only a worker of the same engine can settle these deliveries
            files = self._files_of(identity)
            settled = self._settle_work(board, files) if same_boot and ours else 0
        finally:
            board.close()
        path.unlink(missing_ok=True)
        if files is not None:
            shutil.rmtree(files, ignore_errors=True)
        self._say(
            f"cleared up after worker {identity.incarnation}: {settled} deliveries settled, {killed} strays killed"
        )
        return True

    def _files_of(self, identity: BoardIdentity) -> Path | None:
        """Returns the folder of the worker's logs and stack dumps; None when it is missing or belongs to another user."""
        private = self._folder / identity.incarnation
        try:
            check_own_folder(private)
        except FileNotFoundError:
            return None
        except ForeignFileError as error:
            self._say(f"left alone: {error}")
            return None
        return private

    def _holds_work(self, board: BeatBoard) -> bool:
        """Returns True when the board names a delivery whose lease still holds."""
        now = self._clock.boottime()
        held = (HeldDelivery.on(record) for record in board.records)
        return any(one is not None and one.lease_until > now for one in held)

    def _settle_work(self, board: BeatBoard, files: Path | None) -> int:
        identity = board.identity
        deliveries = SlotDeliveries(
            self._engine,
            identity.worker or identity.incarnation,
            FileLines(files) if files is not None else None,
            clock=self._clock,
            random=self._random,
            say=self._say,
        )
        found = [held for record in board.records if (held := HeldDelivery.on(record)) is not None]
        for held in found:
            if held.phase is Phase.CLAIMED:
                deliveries.give_back(held)
            else:
                deliveries.fail(held, _died(identity, held))
        return len(found)


def _died(identity: BoardIdentity, held: HeldDelivery) -> WorkFailure:
    phase = held.phase.name.lower()
    return WorkFailure(
        cause=Cause.WORKER_DIED,
        reason="its worker died while it ran",
        evidence={"incarnation": identity.incarnation, "pid": str(identity.pid), "phase": phase},
    )
