"""Leaders with one rule broken each: the leadership scenario has to find every one of them.

Not a test module: the replay commands of failing seeds name this file.
"""

from __future__ import annotations

from typing import Any

from tests.worlds.leadership.candidate import TTL_S, Candidate, encode
from tests.worlds.leadership.scenario import Leadership

from tenure.engines.contracts import Entry, Head, Leader, Term
from tenure.engines.memory import MemoryEngine
from tenure.engines.memory.engine import MemoryElection
from tenure.engines.memory.journal import MemoryJournal
from tenure.errors import EngineUnavailableError, SequenceConflictError
from tenure.sim import World


class RefreshesExpect(Candidate):
    """After a lost answer it takes the new end of the journal and appends again, under a new id."""

    async def append(self, operation: str, epoch: int) -> int | None:
        event = encode(self.host.id, operation, len(self.operations))
        while True:
            append_id = self.host.ids()
            try:
                seq = await self.call(self.journal.append, [event], epoch=epoch, expect=self.seq, append_id=append_id)
            except SequenceConflictError:
                return None
            except EngineUnavailableError:
                self.seq = (await self.call(self.journal.head)).seq
                continue
            self.fold(Entry(seq, epoch, append_id, 0.0, (event,)))
            return seq


class IgnoresEpoch(Candidate):
    """Writes under whatever epoch the journal shows, so that no fence stops it."""

    async def append(self, operation: str, epoch: int) -> int | None:
        head = await self.call(self.journal.head)
        return await super().append(operation, max(epoch, head.epoch))

    def may_act(self, epoch: int | None = None) -> bool:
        return super().may_act()


class StepsDownLate(Candidate):
    """Counts its term from the moment when the answer came, and forgets the margin."""

    def may_act(self, epoch: int | None = None) -> bool:
        return self.term is not None and self.host.clock.boottime() < self._until

    async def campaign(self) -> Term | None:
        term = await super().campaign()
        self._until = self.host.clock.boottime() + TTL_S
        return term

    async def renew(self) -> None:
        before = self.term
        await super().renew()
        if self.term is not before:
            self._until = self.host.clock.boottime() + TTL_S


class NeverStepsDown(Candidate):
    """Leads until somebody tells it otherwise."""

    def may_act(self, epoch: int | None = None) -> bool:
        return self.term is not None


class SleepsThroughItsTerm(Candidate):
    """Counts its term in monotonic time, which stands still while the machine sleeps."""

    def may_act(self, epoch: int | None = None) -> bool:
        if self.term is None:
            return False
        offset = self.host.disk.setdefault("offset", self.host.clock.boottime() - self.host.clock.monotonic())
        return self.host.clock.monotonic() + offset < self.term.safe_until


class AnswersBeforeItWrote(Candidate):
    """Tells the client the sequence that the operation is going to have."""

    async def answer(self, sender: str, message: str) -> str:
        if message.startswith("append") and self.leading and self.may_act() and not self._turn.locked():
            operation = message.partition(" ")[2]
            guess = self.operations.get(operation) or self.seq + 1
            self._later = self.host.loop.create_task(super().answer(sender, message))
            return str(guess)
        return await super().answer(sender, message)


class ForgetsWhatItDid(Candidate):
    """Does not look whether an operation is in the book already."""

    async def answer(self, sender: str, message: str) -> str:
        self.operations = _Amnesia(self.operations)
        return await super().answer(sender, message)


class _Amnesia(dict[str, int]):
    def get(self, _key: str, default: Any = None) -> Any:
        return default


class SnapshotsTheFuture(Candidate):
    """Says that its snapshot reaches one entry further than it does."""

    async def keep_snapshot(self) -> None:
        self.seq, kept = (await self.call(self.journal.head)).seq, self.seq
        try:
            await super().keep_snapshot()
        finally:
            self.seq = kept


class Broken(Leadership):
    """A candidate breaks a rule; the engine keeps its own."""


class RefreshingExpect(Broken):
    candidate = RefreshesExpect


class IgnoringEpoch(Broken):
    candidate = IgnoresEpoch


class SteppingDownLate(Broken):
    candidate = StepsDownLate


class NeverSteppingDown(Broken):
    candidate = NeverStepsDown


class SleepingThrough(Broken):
    candidate = SleepsThroughItsTerm


class AnsweringEarly(Broken):
    candidate = AnswersBeforeItWrote


class Forgetting(Broken):
    candidate = ForgetsWhatItDid


class SnapshottingTheFuture(Broken):
    candidate = SnapshotsTheFuture


class _EpochBlindJournal(MemoryJournal):
    def append(self, events: Any, *, epoch: int, expect: int, append_id: str) -> int:
        head = self.log.head
        self.log.head = Head(head.seq, 0)
        try:
            return super().append(events, epoch=epoch, expect=expect, append_id=append_id)
        except BaseException:
            self.log.head = head
            raise


class _SequenceBlindJournal(MemoryJournal):
    def append(self, events: Any, *, epoch: int, expect: int, append_id: str) -> int:
        return super().append(events, epoch=epoch, expect=self.log.head.seq, append_id=append_id)


class _BackwardJournal(MemoryJournal):
    def snapshot(self, state: bytes, seq: int, *, epoch: int) -> None:
        self.log.snapshot = None
        super().snapshot(state, seq, epoch=epoch)


class _RestartingElection(MemoryElection):
    def campaign(self, candidate: str, ttl: float, *, above: int = 0) -> Term | None:
        if not self.seat.taken(self.engine.clock.boottime()):
            self.seat.epoch = 0
        return super().campaign(candidate, ttl, above=0)


class _GenerousElection(MemoryElection):
    """Gives the seat away while somebody sits on it."""

    def campaign(self, candidate: str, ttl: float, *, above: int = 0) -> Term | None:
        self.seat.candidate = ""
        return super().campaign(candidate, ttl, above=above)

    def current(self) -> Leader | None:
        return None


class BrokenEngine(Leadership):
    """The candidates keep the rules; the engine breaks one."""

    journal: type[MemoryJournal] = MemoryJournal
    election: type[MemoryElection] = MemoryElection

    def setup(self, world: World) -> None:
        engine = world.backend.engine
        sound = MemoryEngine.journal(engine, "book"), MemoryEngine.election(engine, "leader")
        engine.journal = lambda name: self.journal(engine, name)  # type: ignore[method-assign]
        engine.election = lambda name: self.election(engine, name)  # type: ignore[method-assign]
        super().setup(world)
        self._journal, self._election = sound


class EpochBlind(BrokenEngine):
    journal = _EpochBlindJournal


class SequenceBlind(BrokenEngine):
    journal = _SequenceBlindJournal


class BackwardSnapshots(BrokenEngine):
    journal = _BackwardJournal


class RestartingEpochs(BrokenEngine):
    election = _RestartingElection


class GenerousElection(BrokenEngine):
    election = _GenerousElection
