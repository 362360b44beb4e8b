"""JSON lines over a socket pair, between a process of ours and the process that it started: programs and their hosts, loop groups and their fork
servers.

Each pair defines its own lines, as a union of structs. The socket is also the lifeline: when one process is gone, the other one sees that the
channel is no longer open. Secrets travel here and not on a command line, because every user of the machine can read command lines.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import msgspec

HeardT = TypeVar("HeardT")
LIMIT = 1 << 20
"""The most bytes that wait to be sent, and the longest line. Beyond it the other side has stopped to read, or writes no lines."""


class LineChannel(Generic[HeardT]):
    """One end of the line. `read` returns the lines that have arrived; an empty list with `open` False means that the other side is gone.

    Neither side trusts the other to read at once or to write what can be read: user code may run in the process at the other end. `send` is
    safe to call from several threads; one thread reads.
    """

    def __init__(
        self,
        end: socket.socket,
        decoder: msgspec.json.Decoder[HeardT],
        *,
        unreadable: Callable[[str], HeardT] | None = None,
    ) -> None:
        """`unreadable` makes the line that stands for one that cannot be read; without it, such a line raises `msgspec.DecodeError`."""
        self.socket = end
        self.open = True
        self._decoder, self._unreadable = decoder, unreadable
        self._pending = b""
        self._unsent = b""
        self._sending = threading.Lock()
        """Two threads that send at once would cut each other's lines."""

    def send(self, line: msgspec.Struct) -> bool:
        """Returns False when the other side is gone. When the buffer of a socket that does not block is full, `flush` sends the rest later."""
        with self._sending:
            self._unsent += msgspec.json.encode(line) + b"\n"
            return self._flush()

    def flush(self) -> bool:
        """Sends the bytes that did not fit before."""
        if not self._unsent:
            return self.open
        with self._sending:
            return self._flush()

    def _flush(self) -> bool:
        while self._unsent and self.open:
            try:
                self._unsent = self._unsent[self.socket.send(self._unsent) :]
            except BlockingIOError:
                self.open = len(self._unsent) <= LIMIT
                break
            except OSError:
                self.open = False
        return self.open

    def read(self) -> list[HeardT]:
        """Returns the whole lines that have arrived. It waits for some where the socket blocks."""
        try:
            chunk = self.socket.recv(65_536)
        except BlockingIOError:
            return []
        except OSError:
            chunk = b""
        if not chunk:
            self.open = False
            return []
        *whole, self._pending = (self._pending + chunk).split(b"\n")
        if len(self._pending) > LIMIT:
            self.open = False
            return []
        return [self._decode(line) for line in whole]

    def __iter__(self) -> Iterator[HeardT]:
        """Yields each line of a socket that blocks, until the other side is gone. A line that was cut off by its end is dropped."""
        while self.open:
            yield from self.read()

    @property
    def unsent(self) -> int:
        """Returns the number of bytes that `flush` has yet to send."""
        return len(self._unsent)

    def close(self) -> None:
        self.open = False
        self.socket.close()

    def _decode(self, line: bytes) -> HeardT:
        try:
            return self._decoder.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            if self._unreadable is None:
                raise
            return self._unreadable(f"a line of {len(line):,} bytes on the control line cannot be read: {error}")


def decoder_of(lines: Any) -> msgspec.json.Decoder[Any]:
    """Returns the decoder of a union of structs. A type checker does not accept a union where a class is wanted."""
    return msgspec.json.Decoder(lines)
