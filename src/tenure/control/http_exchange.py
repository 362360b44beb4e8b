"""One HTTP request and its answer on a socket that is open, for callers without an event loop.

Nodes answer with a head that gives the length of the body, and such an answer is cut out of the bytes as they come: `http.client` took ten times the
processor's time for it. Any other answer (in chunks, or of a proxy that ends it with the connection) is read by `h11`.
"""

from __future__ import annotations

import re
import socket
from typing import NamedTuple

import h11

READ_BYTES = 65_536
MAX_HEAD_BYTES = 65_536
_TEXT = rb"[\t \x21-\x7e\x80-\xff]*"
_HEAD = re.compile(
    rb"HTTP/1\.1 ([2-5][0-9][0-9])(?: %b)?\r\n((?:[-!#$%%&'*+.^_`|~0-9A-Za-z]+:%b\r\n)*)\r\n" % (_TEXT, _TEXT)
)
"""A head whose fields stand on a line each. `h11` judges any other."""
_LENGTH = re.compile(rb"content-length: *([0-9]{1,9}) *\r\n", re.IGNORECASE)
_RETRY_AFTER = re.compile(rb"^retry-after: *([^\r\n]*?) *\r$", re.IGNORECASE | re.MULTILINE)
_BODILESS = (b"204", b"205", b"304")


class BrokenAnswer(ConnectionError):
    """The connection ended before or within an answer, or its bytes are no HTTP answer, or too many. `begun`: some of it had come."""

    def __init__(self, text: str, *, begun: bool = True) -> None:
        super().__init__(text)
        self.begun = begun


class SocketAnswer(NamedTuple):
    """The parts of an HTTP answer that a caller reads. The connection may carry another request only when it is `reusable`."""

    status: int
    retry_after: str
    body: bytes
    reusable: bool


def exchange(sock: socket.socket, head: bytes, body: bytes, *, most: int) -> SocketAnswer:
    """Sends a request with one call, and returns the answer, whose body has at most `most` bytes. Raises `OSError`."""
    sock.sendall(head + body)
    data = b""
    while (found := _HEAD.match(data)) is None:
        if b"\n\r\n" in data or b"\n\n" in data or len(data) > MAX_HEAD_BYTES:
            return _read_by_h11(sock, data, most)
        data += _received(sock, begun=bool(data))
    size = _plain_size(found)
    if size is None:
        return _read_by_h11(sock, data, most)
    if size > most:
        raise _too_large(most)
    end = found.end() + size
    if len(data) < end:
        parts, missing = [data], end - len(data)
        while missing > 0:
            parts.append(_received(sock))
            missing -= len(parts[-1])
        data = b"".join(parts)
    after = _RETRY_AFTER.search(found[2])
    keeps = len(data) == end and b"\r\nconnection:" not in found[0].lower()
    return SocketAnswer(int(found[1]), after[1].decode("latin-1") if after else "", data[found.end() : end], keeps)


def _plain_size(found: re.Match[bytes]) -> int | None:
    """Returns the length of the body that the head gives; None where the head is not so simple."""
    sizes = _LENGTH.findall(found[2])
    if len(sizes) != 1 or found[1] in _BODILESS:
        return None
    fields = found[2].lower()
    return None if fields.count(b"content-length") > 1 or b"transfer-encoding" in fields else int(sizes[0])


def _received(sock: socket.socket, *, begun: bool = True) -> bytes:
    data = sock.recv(READ_BYTES)
    if not data:
        raise BrokenAnswer("the connection ended", begun=begun)
    return data


def _too_large(most: int) -> BrokenAnswer:
    return BrokenAnswer(f"the answer is larger than {most:,} bytes")


def _read_by_h11(sock: socket.socket, data: bytes, most: int) -> SocketAnswer:
    """Reads an answer of which `data` has come already. The connection is not used again."""
    http = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
    http.send(h11.Request(method="POST", target="/", headers=[("Host", "node")]))  # which was sent by `exchange`
    http.send(h11.EndOfMessage())
    head: h11.Response | None = None
    body, size = list[bytes](), 0
    try:
        http.receive_data(data)
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(sock.recv(READ_BYTES))
            elif isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                size += len(event.data)
                if size > most:
                    raise _too_large(most)
                body.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                after = next((value for name, value in head.headers if name == b"retry-after"), b"")
                return SocketAnswer(head.status_code, after.decode("latin-1"), b"".join(body), False)
            elif not isinstance(event, h11.InformationalResponse):
                raise BrokenAnswer("the connection ended")
    except h11.ProtocolError as error:
        raise BrokenAnswer(f"its answer is no HTTP: {error}") from error
