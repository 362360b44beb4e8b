"""The channel between a supervisor and a slot, with a user's code at the other end."""

from __future__ import annotations

import socket
import threading

import pytest

from tenure.served_workflow import ServedWorkflow
from tenure.work.slots.frames import CancelAttempt, FrameChannel, SlotReady, SlotTrouble, WorkFinished

READY = SlotReady([ServedWorkflow(name="w", version="1")])


@pytest.fixture
def ends() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair()


@pytest.mark.parametrize(
    "garbage",
    [b"x", b"nonsense\n", b"TnFr", b"TnFr\xff\xff\xff\xff", b"TnFr\x03\x00\x00\x00\xc1\xc1\xc1", b"Tn" * 50_000],
)
def test_bytes_that_are_no_frame_are_trouble_and_the_next_frame_is_read(
    ends: tuple[socket.socket, socket.socket], garbage: bytes
) -> None:
    ours, theirs = ends
    with ours, theirs:
        channel, other = FrameChannel(ours), FrameChannel(theirs)
        heard: list[object] = []

        def listen() -> None:
            while channel.open:
                heard.extend(channel.read())

        listening = threading.Thread(target=listen)
        listening.start()
        theirs.sendall(garbage)
        other.send(READY)
        other.close()
        listening.join(30)
        assert heard[-1] == READY or garbage == b"TnFr"  # which takes the next frame for its own length
        assert all(isinstance(one, SlotTrouble) for one in heard[:-1])
        assert heard


def test_a_full_buffer_means_wait_and_never_gone(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        channel, reader = FrameChannel(ours), FrameChannel(theirs)
        large = WorkFinished(1, 0.5, True, b"x" * 400_000)
        for _ in range(20):
            assert channel.send(large)
        assert channel.unsent > 7_000_000
        heard = []
        while channel.unsent:
            heard += reader.read(to_the_end=True)
            assert channel.flush()
        heard += reader.read(to_the_end=True)
        assert heard == [large] * 20


def test_several_threads_send_whole_frames(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    with ours, theirs:
        channel, reader = FrameChannel(ours), FrameChannel(theirs)
        senders = [
            threading.Thread(target=lambda n=n: [channel.send(CancelAttempt(n), CancelAttempt(n)) for _ in range(200)])
            for n in range(4)
        ]
        for sender in senders:
            sender.start()
        heard: list[object] = []
        while len(heard) < 4 * 400:
            heard += reader.read()
        assert sorted(one.record for one in heard if isinstance(one, CancelAttempt)) == sorted([0, 1, 2, 3] * 400)


def test_the_last_words_of_a_process_are_read_to_the_end(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    with ours:
        ours.setblocking(False)
        other = FrameChannel(theirs)
        other.send(*[WorkFinished(n, 0.0, True, b"r" * 1_000) for n in range(100)])
        other.close()
        channel = FrameChannel(ours)
        assert len(channel.read(to_the_end=True)) == 100
        assert not channel.open
