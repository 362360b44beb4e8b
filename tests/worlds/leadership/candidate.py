"""A small replicated book of operations: what a leader does with an election and a journal, and nothing else.

The rules are those of a manager's leader (DESIGN.md, "The core"): it acts after its own first append, no answer before
the append that decided it, a lost answer is resolved by its id, it steps down by its own clock. Methods are small so that
a test can break one rule at a time and see that the scenario notices.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from tenure.engines.contracts import Entry, Journal, Term
from tenure.errors import (
    EngineUnavailableError,
    SequenceConflictError,
    StaleEpochError,
    StaleSnapshotError,
    TermLostError,
    Truncated,
)
from tenure.sim.world import Host

TTL_S = 2.0
SNAPSHOT_EVERY = 6
ELECTED = "elected"


class Deposed(Exception):
    """This life leads no more; what it was doing may or may not have happened."""


def encode(writer: str, operation: str, base: int) -> bytes:
    return f"{writer}|{operation}|{base}".encode()


def decode(event: bytes) -> tuple[str, str, int]:
    writer, operation, base = event.decode().split("|")
    return writer, operation, int(base)


class Candidate:
    """Campaigns, leads, appends what clients ask for, answers reads from its own state while its term lasts."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.journal: Journal = host.engine.journal("book")
        self.election = host.engine.election("leader")
        self.call = host.calls.run
        self.term: Term | None = None
        self.leading = self.led = False
        self.operations: dict[str, int] = {}
        """The fold: each operation and its sequence."""
        self.seq = 0
        self.snapshot_seq = 0
        self._old_snapshot: tuple[int, str] | None = None
        self._turn = asyncio.Lock()

    async def run(self) -> None:
        self.host.transport.serve(self.answer)
        while True:
            self.term = await self.campaign()
            if self.term is not None:
                term, self.led = self.term, False
                with suppress(Deposed, StaleEpochError, TermLostError, EngineUnavailableError):
                    await self.lead(term)
                self.leading = False
                self.host.record("steps down")
                with suppress(EngineUnavailableError):
                    await self.call(self.election.resign, term)
                if self.led:
                    with suppress(Deposed, StaleEpochError, EngineUnavailableError):
                        await self.last_words(term)
            await asyncio.sleep(TTL_S * (0.3 + 0.4 * self.host.random.random()))

    async def campaign(self) -> Term | None:
        try:
            if await self.call(self.election.current) is not None:
                return None
            head = await self.call(self.journal.head)
            return await self.call(self.election.campaign, self.host.id, TTL_S, above=head.epoch)
        except EngineUnavailableError:
            return None

    async def lead(self, term: Term) -> None:
        async with self._turn:  # an append of an earlier term may still be looking for its outcome
            await self.catch_up()
            while not await self.append(ELECTED, term.epoch):
                await self.catch_up()
            self.leading = self.led = True
        self.host.record(f"leads epoch {term.epoch} from {self.seq}")
        while self.leading:
            await asyncio.sleep(TTL_S / 3)
            await self.renew()
            await self.keep_snapshot()

    async def renew(self) -> None:
        assert self.term is not None
        with suppress(EngineUnavailableError):  # the term that we have goes on until it ends by our own clock
            self.term = await self.call(self.election.renew, self.term)
        if not self.may_act():
            raise Deposed

    async def last_words(self, term: Term) -> None:
        """A leader that was paused just before it wrote, and wakes when others lead: only its epoch can stop it."""
        await asyncio.sleep(TTL_S * self.host.random.random())
        async with self._turn:
            with suppress(StaleEpochError):
                await self.repeat_old_snapshot(term.epoch)
            await self.catch_up()
            await self.append_once(f"{self.host.id}/late-{term.epoch}", term.epoch)

    def may_act(self, epoch: int | None = None) -> bool:
        """Whether our term lasts (and is this one), by the clock that goes on while the machine sleeps."""
        term = self.term
        if term is None or epoch not in (None, term.epoch):
            return False
        return self.host.clock.boottime() < term.safe_until

    # The journal

    async def catch_up(self) -> None:
        """Fold everything that others have written."""
        try:
            while entries := await self.call(self.journal.read, self.seq):
                for entry in entries:
                    self.fold(entry)
        except Truncated:
            await self.load_snapshot()
            await self.catch_up()

    async def load_snapshot(self) -> None:
        found = await self.call(self.journal.latest_snapshot)
        if found is not None and found.seq > self.seq:
            pairs = [pair.split("=") for pair in found.state.decode().split(",") if pair]
            self.operations = {operation: int(seq) for operation, seq in pairs}
            self.seq = self.snapshot_seq = found.seq

    def fold(self, entry: Entry) -> None:
        _, operation, _ = decode(entry.events[0])
        if operation != ELECTED:
            self.operations[operation] = entry.seq
        self.seq = entry.seq

    async def append(self, operation: str, epoch: int) -> int | None:
        """Write one operation after what we have folded: its sequence, or None when we had not folded everything."""
        append_id, expect = self.host.ids(), self.seq
        event = encode(self.host.id, operation, len(self.operations))
        while True:
            try:
                seq: int | None = await self.call(
                    self.journal.append, [event], epoch=epoch, expect=expect, append_id=append_id
                )
            except EngineUnavailableError:
                seq = await self.after_lost_answer(append_id, expect)
                if seq is None and not self.may_act(epoch):
                    raise Deposed from None
            except (SequenceConflictError, StaleEpochError) as refused:
                seq = await self.find(append_id, expect)  # a try that we gave up may have been accepted
                if seq is None:
                    if isinstance(refused, StaleEpochError):
                        raise
                    return None
            if seq is not None:
                self.fold(Entry(seq, epoch, append_id, 0.0, (event,)))
                return seq

    async def after_lost_answer(self, append_id: str, expect: int) -> int | None:
        """Look for our append by its id; None when it is not there, and may be tried again with the same `expect`."""
        return await self.find(append_id, expect)

    async def find(self, append_id: str, expect: int) -> int | None:
        while True:
            try:
                return await self.call(self.journal.find, append_id, after=expect)
            except EngineUnavailableError:
                if not self.may_act():
                    raise Deposed from None
                await asyncio.sleep(0.1)
            except Truncated:
                raise Deposed from None  # others have written and folded on: we are long out

    async def keep_snapshot(self) -> None:
        if self.term is None or self.seq - self.snapshot_seq < SNAPSHOT_EVERY:
            return
        seq, state = self.seq, ",".join(f"{operation}={at}" for operation, at in self.operations.items())
        try:
            await self.call(self.journal.snapshot, state.encode(), seq, epoch=self.term.epoch)
            await self.call(self.journal.truncate, seq - 2)
            await self.repeat_old_snapshot(self.term.epoch)
        except EngineUnavailableError:
            return  # the next one will do
        self.snapshot_seq = seq
        self._old_snapshot = (seq, state)

    async def repeat_old_snapshot(self, epoch: int) -> None:
        """As a retry does whose first try was only late: it must not replace the newer one."""
        if self._old_snapshot is not None:
            seq, state = self._old_snapshot
            with suppress(StaleSnapshotError):
                await self.call(self.journal.snapshot, state.encode(), seq, epoch=epoch)

    # Clients

    async def answer(self, sender: str, message: str) -> str:
        """`append X` is answered with its sequence, `read` with how many there are, and both with `no` by all but the leader."""
        verb, _, operation = message.partition(" ")
        if not (self.leading and self.may_act()):
            return "no"
        if verb == "read":
            return str(len(self.operations))
        async with self._turn:
            if self.term is None or not (self.leading and self.may_act()):
                return "no"
            try:
                return str(await self.append_once(operation, self.term.epoch))
            except (Deposed, StaleEpochError, EngineUnavailableError):
                self.leading = False
                return "no"

    async def append_once(self, operation: str, epoch: int) -> int:
        """Append it unless it is there; whoever wrote in between, the epoch decides whether we still may."""
        while True:
            seq = self.operations.get(operation) or await self.append(operation, epoch)
            if seq is not None:
                return seq
            await self.catch_up()
