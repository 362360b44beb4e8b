"""The supervisor's calls to the engine about the deliveries that its slots hold, and those that dead slots and dead workers held.

While a slot lives, the supervisor extends its leases. After a slot or a worker died, it gives back or settles what that one held. The board
of a dead worker still names every receipt. Work that was claimed and not started goes back uncounted. Work that had started failed with its
worker: it is settled with that cause at once, by its own policy, instead of when its lease runs out. So work that kills its worker is counted.

The cleanup settles work only from a board that belongs to this user and whose content and name agree. It removes other `board-*` files of
this user, leaves those of other users alone, and logs both.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgspec

from tenure.attempt_data import AttemptSilence
from tenure.beat.attempt_history import silence_of
from tenure.beat.board import BeatBoard, BoardIdentity, check_own_folder
from tenure.beat.record import BeatReading, BeatRecord, Occupant, Phase
from tenure.clock import Clock
from tenure.engines.contracts import Engine, Mailbox, Message
from tenure.errors import BoardError, EngineWentBackError, ForeignFileError, TenureError
from tenure.logs import NodeLog
from tenure.work.attempt_steps import run_steps
from tenure.work.delivery import Cause, WorkFailure, WorkHead, WorkItem, WorkResult, extend_message
from tenure.work.log_lines import FileLines, fence_of, keep_log, key_of
from tenure.work.result_signatures import ClaimedAttempt, ResultSigner
from tenure.work.settler import Settler
from tenure.work.slots.claim_page import ClaimPage, HeldClaim, claim_path
from tenure.work.slots.processes import is_alive, kill_strays

_decode_head = msgspec.json.Decoder(WorkHead).decode
LOCK_S = 0.5
"""For so long in all a cleanup waits for boards of dead workers of its own engine whose lock somebody has. A cleanup for another engine holds a lock for
moments only. Without the wait, a worker that started at such a moment left the work of its predecessor to the end of its leases."""
_INCARNATION = re.compile(r"[0-9a-f]{32}")
"""The names of the folders that workers make, as `new_id` makes them."""


class HeldDelivery(NamedTuple):
    """One delivery that a record of the board held when its slot or its worker died."""

    record: int
    serial: int
    occupant: Occupant
    steps: int
    phase: Phase
    lease_until: float
    """Boot time at which the lease is lost, as it was last extended: the ticket only knows the lease of the claim."""
    mark: int = 0
    """Names the checkpoint that it had saved (`mark_of`); 0 where the board does not tell."""
    silence: AttemptSilence | None = None
    claim: ClaimedAttempt | None = None
    """The attempt that was claimed; None where this process did not claim it."""

    @classmethod
    def on(cls, record: BeatRecord) -> HeldDelivery | None:
        """Returns the delivery that the record holds; None when the record is empty or cannot be read."""
        try:
            reading = record.read()
        except BoardError:
            return None
        return cls.of(record, reading)

    @classmethod
    def of(cls, record: BeatRecord, reading: BeatReading, occupant: Occupant | None = None) -> HeldDelivery | None:
        """Builds it from a reading. `occupant` is the one that was seen earlier: a kill may have cut the write of the cold part short."""
        occupant = reading.occupant or occupant
        if occupant is None or reading.phase is Phase.EMPTY:
            return None
        lease_until = record.lease_of(reading.serial)
        return cls(record.index, reading.serial, occupant, reading.steps, reading.phase, lease_until, reading.saved)

    def after_silence(self, record: BeatRecord, reading: BeatReading, clock: Clock) -> HeldDelivery:
        """Returns it with how long the attempt was silent, from a record that is still its own."""
        return self._replace(silence=silence_of(self.occupant, record, clock, reading))


class SlotDeliveries:
    """Extends, gives back and settles deliveries by their tickets. Safe to use from several threads.

    It logs an engine's refusal and raises nothing for it, except from `extend`. `lines` has the logs of the attempts; None where they are lost.
    """

    def __init__(
        self,
        engine: Engine,
        worker: str,
        lines: FileLines | None,
        *,
        clock: Clock,
        random: Random,
        log: NodeLog,
        on_engine_lost: Callable[[EngineWentBackError], None] = lambda error: None,
        claimed: Callable[[str], Message[Any, Any] | None] = lambda receipt: None,
        signer: ResultSigner | None = None,
    ) -> None:
        """`on_engine_lost` is called, from any thread, when the engine turns out to have lost what it had acknowledged.

        `claimed` returns the delivery with a receipt where this process claimed it: an extension then counts for its settlement, too.
        """
        self._engine, self._worker, self._lines, self._clock, self._log = engine, worker, lines, clock, log
        self._on_engine_lost, self._claimed = on_engine_lost, claimed
        self._mailboxes: dict[str, Mailbox[WorkItem, WorkResult]] = {}
        self._settler = Settler(engine, clock=clock, random=random, log=log, signer=signer)
        self._logs = engine.store("logs")

    def extend(self, occupant: Occupant, seconds: float) -> float:
        """Extends the lease and returns the boot time until which it is ours."""
        try:
            message = self._claimed(occupant.ticket.receipt_handle)
            if message is None:
                message = self._mailbox(occupant.queue).adopt(occupant.ticket)
            return extend_message(message, seconds, self._clock)
        except EngineWentBackError as error:
            self._on_engine_lost(error)
            raise

    def give_back(self, held: HeldDelivery) -> None:
        """Releases work that its slot never started, or that did nothing wrong. The engine does not count this delivery."""
        occupant = held.occupant
        try:
            self._keep_log(held)
            self._adopt(held).release()
        except TenureError as error:
            self._log.warning(f"could not give {occupant.workflow} back: {error}")

    def with_claim(self, held: HeldDelivery) -> HeldDelivery:
        """Returns it with the attempt that this process claimed under its receipt. The board may say another: the slot could write to it."""
        message = self._claimed(held.occupant.ticket.receipt_handle)
        if message is None:
            return held
        return held._replace(claim=ClaimedAttempt.of(_decode_head(message.body), message.fence))

    def fail(self, held: HeldDelivery, failure: WorkFailure) -> None:
        """Settles an attempt whose slot died, by the policy that the board recorded for it."""
        occupant = held.occupant
        try:
            self._keep_log(held)
            message = self._adopt(held)
            settle = partial(
                self._settler.settle, message, managed=occupant.managed, retry=occupant.retry, claim=held.claim
            )
            steps = self._settler.until_settled(settle, self._result(held, failure), lambda: message.lease_until)
            word = run_steps(steps, self._clock)
        except TenureError as error:
            self._log.error(f"the failure of {occupant.workflow} could not be settled: {error}")
        else:
            self._log.info(f"{occupant.workflow} ({occupant.job}), attempt {occupant.attempt}: {failure.cause}: {word}")

    def _adopt(self, held: HeldDelivery) -> Message[WorkItem, WorkResult]:
        message = self._mailbox(held.occupant.queue).adopt(held.occupant.ticket)
        # The ticket knows the lease of the claim only. With the extended one the settler keeps trying while an engine is away for a moment.
        message.lease_until = max(message.lease_until, held.lease_until)
        return message

    def _mailbox(self, queue: str) -> Mailbox[WorkItem, WorkResult]:
        mailbox = self._mailboxes.get(queue)
        if mailbox is None:
            mailbox = self._mailboxes[queue] = self._engine.mailbox(queue, WorkItem, WorkResult)
        return mailbox

    def _result(self, held: HeldDelivery, failure: WorkFailure) -> WorkResult:
        occupant = held.occupant
        return WorkResult(
            job_id=occupant.job,
            workflow_id=occupant.workflow_id,
            workflow=occupant.workflow,
            attempt=occupant.attempt,
            fence=fence_of(occupant),
            worker=self._worker,
            failure=failure,
            beats=held.steps,
            seconds=max(0.0, self._clock.boottime() - occupant.started_at) if occupant.started_at else 0.0,
            mark=held.mark,
            silence=held.silence,
        )

    def return_claim(self, held: HeldClaim) -> None:
        """Returns what a dead supervisor had claimed and not settled. It counts only if it had started: its outcome is lost then."""
        message = self._mailbox(held.claim.queue).adopt(held.claim.ticket)
        try:
            if held.started:
                message.nack(0)
            else:
                message.release()
        except TenureError as error:
            self._log.warning(f"could not return {held.claim.workflow}: {error}")

    def _keep_log(self, held: HeldDelivery) -> None:
        if self._lines is not None:
            place, occupant = f"{held.record}-{held.serial}", held.occupant
            keep_log(self._logs, self._lines, place, key_of(occupant), fence_of(occupant))


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
        log: NodeLog,
    ) -> None:
        self._signer: ResultSigner | None = None
        self._folder, self._engine, self._engine_name = folder, engine, engine_name
        self._clock, self._random, self._log = clock, random, log
        self._wait_until = clock.monotonic() + LOCK_S

    def clear(self, signer: ResultSigner | None = None) -> int:
        """Cleans up, and returns for how many dead workers. It skips living workers, and dead ones that held work of another engine.

        `signer` signs what it says of them, where results are signed.
        """
        self._signer = signer
        self._wait_until = self._clock.monotonic() + LOCK_S
        cleared = sum(self._clear_one(path) for path in sorted(self._folder.glob("board-*")))
        self._remove_forsaken()
        return cleared

    def _remove_forsaken(self) -> None:
        """Removes the folders of starts that have no board. A worker makes its board before its folder, so nobody uses them."""
        for private in self._folder.iterdir():
            if not _INCARNATION.fullmatch(private.name) or (self._folder / f"board-{private.name}").exists():
                continue
            with contextlib.suppress(FileNotFoundError, ForeignFileError):
                check_own_folder(private)
                shutil.rmtree(private, ignore_errors=True)
        for claims in self._folder.glob("claims-*"):
            if not (self._folder / claims.name.replace("claims", "board", 1)).exists():
                with contextlib.suppress(OSError):  # another user's
                    claims.unlink(missing_ok=True)

    def _clear_one(self, path: Path) -> bool:
        try:
            board = BeatBoard.open(path)
        except ForeignFileError as error:
            self._log.warning(f"left alone: {error}")
            return False
        except BoardError as error:
            self._log.info(f"removing {path}: {error}")
            path.unlink(missing_ok=True)
            return False
        identity = board.identity
        same_boot = identity.boot_id == self._clock.boot_id()
        try:
            if not self._take(board, same_boot=same_boot):
                return False
            ours = identity.engine == self._engine_name
            left_to_others = same_boot and not ours and self._holds_work(board)
            if left_to_others:
                board.unlock()  # its own successor may start at this moment, and needs the lock
            killed = kill_strays(identity.incarnation) if same_boot else 0
            if left_to_others:
                return False  # only a worker of the same engine can settle these deliveries
            files = self._files_of(identity)
            settled = self._settle_work(board, files) if same_boot and ours else 0
        finally:
            board.close()
        path.unlink(missing_ok=True)
        claim_path(self._folder, identity.incarnation).unlink(missing_ok=True)
        if files is not None:
            shutil.rmtree(files, ignore_errors=True)
        self._log.info(
            f"cleared up after worker {identity.incarnation}: {settled} deliveries settled, {killed} strays killed"
        )
        return True

    def _take(self, board: BeatBoard, *, same_boot: bool) -> bool:
        """Returns True when the worker of the board has ended, and its lock is ours."""
        identity = board.identity
        while not owner_is_gone(board, same_boot=same_boot):
            # A living worker holds its lock, and its process is there; one of another PID namespace cannot be seen, and is waited for in vain.
            seems_dead = same_boot and identity.engine == self._engine_name and board.path.exists()
            if not seems_dead or is_alive(identity.pid, identity.pid_started):
                return False
            if self._clock.monotonic() >= self._wait_until:
                return False
            self._clock.sleep(0.01)
        return True

    def _files_of(self, identity: BoardIdentity) -> Path | None:
        """Returns the folder of the worker's logs and stack dumps; None when it is missing or belongs to another user."""
        private = self._folder / identity.incarnation
        try:
            check_own_folder(private)
        except FileNotFoundError:
            return None
        except ForeignFileError as error:
            self._log.warning(f"left alone: {error}")
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
            log=self._log,
            signer=self._signer,
        )
        found = [held for record in board.records if (held := HeldDelivery.on(record)) is not None]
        for held in found:
            if held.phase is Phase.CLAIMED:
                deliveries.give_back(held)
            else:
                deliveries.fail(held, _died(identity, held))
        ran = {held.occupant.ticket.receipt_handle for held in found}
        returned = [one for one in self._claims_of(identity) if one.claim.ticket.receipt_handle not in ran]
        for one in returned:
            deliveries.return_claim(one)
        return len(found) + len(returned)

    def _claims_of(self, identity: BoardIdentity) -> list[HeldClaim]:
        """Returns what the worker had claimed; nothing for a worker of a release whose slots claimed by themselves."""
        try:
            page = ClaimPage.open(claim_path(self._folder, identity.incarnation))
        except BoardError:
            return []
        try:
            return page.held()
        finally:
            page.close()


def owner_is_gone(board: BeatBoard, *, same_boot: bool = True) -> bool:
    """Returns True when the worker of this board has ended. The lock of the board is ours then, so that one process cleans up after it.

    A board of a release that knew no lock is judged by its pid, in case that release still runs beside this one.
    """
    identity = board.identity
    if same_boot and not identity.locked and is_alive(identity.pid, identity.pid_started):
        return False
    return board.lock()


def _died(identity: BoardIdentity, held: HeldDelivery) -> WorkFailure:
    phase = held.phase.name.lower()
    return WorkFailure(
        cause=Cause.WORKER_DIED,
        reason="its worker died while it ran",
        evidence={"incarnation": identity.incarnation, "pid": str(identity.pid), "phase": phase},
    )
