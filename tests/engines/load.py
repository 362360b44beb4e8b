"""Traffic on one engine that goes on through whatever a test does to its server or file, and says what it was promised."""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from tests.patience import wait_until

from tenure.engines import Engine
from tenure.errors import (
    EngineBusyError,
    EngineFullError,
    EngineUnavailableError,
    ReceiptHandleExpiredError,
    SequenceConflictError,
    TenureError,
)

T = TypeVar("T")
AWAY = (EngineUnavailableError, EngineBusyError, EngineFullError)
"""The errors of an engine that cannot be used for the moment."""
KEPT = 1_000
"""The errors that a load remembers: memory is measured."""


def opened(url: str) -> Engine:
    """Opens an engine whose URL has little patience. A machine that is busy with other work may take more to answer for the first time."""

    def tried() -> Engine | None:
        try:
            return Engine.open(url)
        except AWAY:
            return None

    engine = wait_until(tried, why=f"{url} did not open")
    assert engine is not None
    return engine


class Load:
    """Sends and takes with all its might; remembers what was acknowledged to it."""

    def __init__(self, url: str) -> None:
        self.engines = [opened(url) for _ in range(2)]
        self._patient = re.sub(r"\btimeout=[0-9.]+", "timeout=60", url)
        self.sent: set[int] = set()
        self.settled: list[int] = []
        self.unsure: set[int] = set()
        self.epochs: list[int] = []
        self.entries: list[int] = []
        self.slowest_s = 0.0
        """How long the slowest call took, of those that came to an end."""
        self.refused: deque[TenureError] = deque(maxlen=KEPT)
        """The errors of calls that the engine refused or did not answer."""
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=run) for run in (self._send, self._take, self._lead)]
        for thread in self._threads:
            thread.start()

    def _timed(self, call: Callable[..., T], *values: Any, **options: Any) -> T:
        begun = time.monotonic()
        try:
            return call(*values, **options)
        except AWAY as error:
            self.refused.append(error.with_traceback(None))
            raise
        finally:
            self.slowest_s = max(self.slowest_s, time.monotonic() - begun)

    def _send(self) -> None:
        mailbox, number = self.engines[0].mailbox("work"), 0
        while not self._stop.is_set():
            number += 1
            try:
                self._timed(mailbox.send, number, reply_to="done")
            except AWAY:
                self.unsure.add(number)
            else:
                self.sent.add(number)

    def _take(self) -> None:
        mailbox = self.engines[1].mailbox("work")
        while not self._stop.is_set():
            try:
                for message in self._timed(mailbox.receive, 10, 30, 0.2):
                    self._timed(message.settle, message.body)
                    self.settled.append(message.body)
            except (*AWAY, ReceiptHandleExpiredError):
                continue

    def _lead(self) -> None:
        election, journal, seq, doubt = self.engines[0].election("e"), self.engines[0].journal("log"), 0, -1
        while not self._stop.is_set():
            try:
                term = self._timed(election.campaign, "me", 30)
                assert term is not None
                self.epochs.append(term.epoch)
                seq = self._timed(journal.append, [b"x"], epoch=term.epoch, expect=seq, append_id=str(seq))
                self.entries.append(seq)
            except AWAY:
                seq = doubt = self._resolve(journal, seq)
            except SequenceConflictError:
                # A server that was slow may do what it was asked long after its caller gave up: then the entry is this one's own.
                if seq != doubt or (seq := self._resolve(journal, seq)) == doubt:
                    raise

    def _resolve(self, journal: Any, seq: int) -> int:
        while not self._stop.is_set():
            try:
                found = self._timed(journal.find, str(seq), after=seq)
                return seq if found is None else int(found)
            except AWAY:
                continue
        return seq

    def finish(self) -> None:
        """Stop, take what is left, and check the promises."""
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()
        # The short deadlines were the point while the server was silent. A busy machine keeps it from answering in them at any time.
        with Engine.open(self._patient) as engine:
            self._check(engine)

    def _check(self, engine: Engine) -> None:
        mailbox, replies = engine.mailbox("work"), engine.mailbox("done")
        while messages := mailbox.receive(100, 30):
            for message in messages:
                message.settle(message.body)
        answers: list[int] = []
        while got := replies.receive(500, 30):
            answers += [reply.body for reply in got]
            replies.acknowledge_many(got)
        # What has no answer is still in the mailbox: leased, if its taker was told of nothing, or ready again, if that lease ended during this check.
        left = mailbox.depth()
        assert len(answers) == len(set(answers)), "a message was settled twice"
        assert set(self.settled) <= set(answers), "a settled reply was lost"
        missing = self.sent - set(answers)
        assert len(missing) <= left.ready + left.leased, f"lost: {sorted(missing)[:10]}"
        assert set(answers) <= self.sent | self.unsure
        assert self.epochs == sorted(set(self.epochs))
        entries = engine.journal("log").read(0, limit=100_000)
        assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
        assert [entry.epoch for entry in entries] == sorted(entry.epoch for entry in entries)
        assert len({entry.append_id for entry in entries}) == len(entries), "an entry was appended twice"
        assert len(entries) >= (max(self.entries) if self.entries else 0)

    def close(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)
        for engine in self.engines:
            engine.close()

    def told(self) -> str:
        """The different things that the engine said when it refused a call."""
        return "\n".join(sorted({str(error) for error in self.refused}))

    def goes_on(self, what: str) -> None:
        """Wait until more was settled and appended than now."""
        settled, entries = len(self.settled), len(self.entries)
        wait_until(
            lambda: len(self.settled) >= settled + 20 and len(self.entries) >= entries + 5,
            why=lambda: f"{what}: {len(self.settled) - settled} settled, {len(self.entries) - entries} appended",
        )
