"""Which thread of a slot reads its channel."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue

import pytest

from tenure.work.slots.reading_turns import ReadingTurns


class Threads:
    """The two threads of a slot, on a socket of lines: who began to read."""

    def __init__(self) -> None:
        self.sending, self.source = socket.socketpair()
        self.inbox: SimpleQueue[bytes] = SimpleQueue()
        self.read_by: SimpleQueue[str] = SimpleQueue()
        self.over = False
        self.turns = ReadingTurns(self.source, self._read)
        self.listener = threading.Thread(target=self._listen, name="listener", daemon=True)
        self.listener.start()

    def _read(self) -> None:
        self.read_by.put(threading.current_thread().name)
        found = self.source.recv(100)
        self.over = not found
        for one in found:
            self.inbox.put(bytes([one]))

    def _listen(self) -> None:
        for _ in self.turns.listen(lambda: None):
            if self.over:
                return

    def next_work(self) -> bytes:
        if self.inbox.empty():
            self.turns.read_while(self.inbox.empty)
        return self.inbox.get()

    def in_runner(self, act: Callable[[], bytes]) -> SimpleQueue[bytes]:
        found: SimpleQueue[bytes] = SimpleQueue()
        threading.Thread(target=lambda: found.put(act()), name="runner", daemon=True).start()
        return found


@pytest.fixture
def threads() -> Iterator[Threads]:
    made = Threads()
    yield made
    made.sending.close()
    made.listener.join(10)
    assert not made.listener.is_alive()  # it would read the end of the line for ever
    made.source.close()


def test_the_listener_reads_until_the_turn_is_taken(threads: Threads) -> None:
    threads.sending.send(b"a")
    assert threads.read_by.get(timeout=10) == "listener"
    assert threads.next_work() == b"a"  # it was there: no turn was asked for


def test_a_thread_without_work_reads_its_work_itself(threads: Threads) -> None:
    for item in (b"a", b"b", b"c"):
        found = threads.in_runner(threads.next_work)
        assert threads.read_by.get(timeout=10) == "runner"
        threads.sending.send(item)
        assert found.get(timeout=10) == item
        # It has work now, so that the listener hears what comes meanwhile.
        threads.sending.send(b"x")
        assert threads.read_by.get(timeout=10) == "listener"
        assert threads.inbox.get(timeout=10) == b"x"


def test_what_arrives_while_the_turn_changes_is_read_once(threads: Threads) -> None:
    taken = bytearray()

    def take_all() -> bytes:
        while len(taken) < 2_000:
            taken.extend(threads.next_work())
        return bytes(taken)

    found = threads.in_runner(take_all)
    for number in range(2_000):
        threads.sending.send(bytes([number % 250]))
    assert found.get(timeout=60) == bytes(number % 250 for number in range(2_000))
