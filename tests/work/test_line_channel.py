"""The line between two processes, with a user's code at the other end."""

from __future__ import annotations

import socket

import msgspec
import pytest

from tenure.work.line_channel import LineChannel, decoder_of


class Number(msgspec.Struct, frozen=True, tag="number"):
    value: int


class Complaint(msgspec.Struct, frozen=True, tag="complaint"):
    text: str


def channel_on(end: socket.socket) -> LineChannel[Number | Complaint]:
    return LineChannel(end, decoder_of(Number | Complaint), unreadable=Complaint)


@pytest.fixture
def ends() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair()


@pytest.mark.parametrize("line", [b"\xff\xfe\n", b"{}\n", b'{"type": "nonsense"}\n', b"[" * 100_000 + b"\n"])
def test_a_line_that_cannot_be_read_is_trouble_and_the_next_one_is_read(
    ends: tuple[socket.socket, socket.socket], line: bytes
) -> None:
    ours, theirs = ends
    with ours, theirs:
        channel = channel_on(ours)
        theirs.sendall(line + b'{"type":"number","value":7}\n')
        theirs.close()
        heard = []
        while channel.open:
            heard += channel.read()
        assert isinstance(heard[0], Complaint)
        assert "cannot be read" in heard[0].text
        assert heard[1] == Number(7)


def test_a_full_buffer_means_later_and_not_gone(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    with ours, theirs:
        ours.setblocking(False)
        channel, reader = channel_on(ours), channel_on(theirs)
        sent = 0
        while not channel.unsent:
            assert channel.send(Number(sent))
            sent += 1
        heard = reader.read()
        while channel.unsent:
            assert channel.flush()
            heard += reader.read()
        theirs.setblocking(False)
        while more := reader.read():
            heard += more
        assert heard == [Number(n) for n in range(sent)]


def test_one_that_never_reads_is_gone_in_the_end(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    with ours, theirs:
        ours.setblocking(False)
        channel = channel_on(ours)
        for _ in range(100):
            channel.send(Complaint("x" * 100_000))
        assert not channel.open
