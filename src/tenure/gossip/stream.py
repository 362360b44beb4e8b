"""Streams of gossip without the sockets: bytes in, one message out, and a message to bytes.

A stream carries one message each way. memberlist frames it only when it is encrypted, so a plain one is parsed as it arrives; a push/pull of thousands of
nodes goes on from the node where the last bytes ended.

Strangers open streams. An announced length allocates nothing. `held_bytes` says what a stream costs at the moment, so that the transport can bound all
streams together. No call takes long: while `has_work` is true, the caller lets others have a turn and then calls `feed(b"")`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from tenure.errors import WireError
from tenure.gossip.encodings import Incomplete, Value, lzw_compress, lzw_decompress_in_steps
from tenure.gossip.messages import Kind, Message, NodeState, PushPull, User
from tenure.gossip.sealing import PacketCodec, compressed_bytes
from tenure.gossip.wire import decode, decode_node_state, encode_compressed, take_bool, take_uint, unpack_fields

MAX_STREAM_BYTES = 8 * 1024 * 1024
"""A state of some 40,000 nodes. memberlist itself allows 20 MiB."""
MAX_COMPRESSED_BYTES = 64 * 1024
"""Larger messages are sent as they are. Compressing a megabyte holds up the event loop for half a second, and peers read both forms."""
STEP_BYTES = 8 * 1024
"""The bytes that one call parses, in about 3 ms. No node is larger (a name has 128 bytes, its metadata 512)."""
UNPACK_STEP_BYTES = 1024
"""The bytes that one call decompresses. They may grow two thousandfold, which takes as long."""
NODE_COST_BYTES = 512
"""Memory of one parsed node beside its metadata, measured on CPython 3.11."""

StreamMessage = Message | PushPull


def seal_stream(codec: PacketCodec, body: bytes) -> bytes:
    """Returns the bytes of one message on a stream. The side that opens the stream sends `codec.stream_head` before them."""
    if codec.compression and len(body) <= MAX_COMPRESSED_BYTES:
        body = encode_compressed(lzw_compress(body))
    if codec.keyring is None:
        return body
    # The type and the length before the ciphertext are authenticated with it, and so is the label.
    sealed_length = len(body) + 29
    head = bytes((Kind.ENCRYPT,)) + sealed_length.to_bytes(4, "big")
    return head + codec.keyring.encrypt(body, head + codec.label)


class StreamInbox:
    """Collects the bytes of one stream until they are one message.

    With `opened_by_peer`, the peer opened the stream, so its bytes begin with the label, if the pool has one.
    """

    def __init__(
        self,
        codec: PacketCodec,
        *,
        opened_by_peer: bool,
        most: int = MAX_STREAM_BYTES,
        most_nodes: int = 50_000,
        on_bytes: Callable[[int], object] | None = None,
    ) -> None:
        """`most` bounds the bytes of the message, `most_nodes` the nodes of a push/pull. `on_bytes` hears how many bytes came."""
        self._on_bytes = on_bytes
        self._codec = codec
        self._most, self._most_nodes = most, most_nodes
        self._buffer = bytearray()
        self._need = 1
        self._label_due = opened_by_peer
        self._unpacking: Generator[int, None, bytearray] | None = None
        self._unpacked = 0
        self._body: _BodyParser | None = None
        self.received = 0
        self.has_work = False
        """True when `feed(b"")` can go on with the bytes that are here."""

    @property
    def held_bytes(self) -> int:
        """Returns about how much memory the stream takes now."""
        return len(self._buffer) + self._unpacked + (self._body.held_bytes if self._body is not None else 0)

    def feed(self, data: bytes) -> StreamMessage | None:
        """Takes bytes and does one step of work. Returns the message once it is complete; raises `WireError` when it never can be."""
        self.received += len(data)
        if self._on_bytes is not None:
            self._on_bytes(len(data))
        if self.received > self._most + 1024:
            raise WireError(f"a stream sent more than {self._most} bytes")
        self._buffer += data
        if len(self._buffer) < self._need:
            return None
        self.has_work = False
        try:
            return self._parse()
        except Incomplete as more:
            if more.need > self._most + 1024:
                raise WireError(f"a stream announces more than {self._most} bytes") from more
            self._need = max(more.need, len(self._buffer) + 1)
        except _StepDone:
            self.has_work = True
            self._need = 0
        return None

    def feed_all(self, data: bytes) -> StreamMessage | None:
        """Takes bytes and does all the work that they allow. For a caller that holds up nobody."""
        message = self.feed(data)
        while message is None and self.has_work:
            message = self.feed(b"")
        return message

    def _parse(self) -> StreamMessage:
        if self._label_due:
            self._drop_label()
        if self._body is None:
            self._body = self._unwrapped() if self._unpacking is None else self._unpack()
        return self._body.parse()

    def _drop_label(self) -> None:
        """Removes the label from the buffer. Raises `WireError` where it is not the pool's."""
        head = self._codec.stream_head
        if head:
            if len(self._buffer) < len(head) and head.startswith(bytes(self._buffer)):
                raise Incomplete(len(head))
            if not self._buffer.startswith(head):
                raise WireError("a stream has not the label of this pool")
            del self._buffer[: len(head)]
        elif self._buffer[0] == Kind.LABEL:
            raise WireError("a stream has a label, and this pool has none")
        self._label_due = False

    def _unwrapped(self) -> _BodyParser:
        """Returns the parser of the body, decrypted where the pool has keys."""
        if not self._buffer:
            raise Incomplete(1)
        kind = self._buffer[0]
        keyring = self._codec.keyring
        if kind == Kind.ENCRYPT:
            if keyring is None:
                raise WireError("a stream is encrypted, and this pool has no keys")
            return self._settled(keyring.decrypt(*self._sealed()))
        if keyring is not None:
            raise WireError("a stream is not encrypted, and this pool is")
        if kind == Kind.COMPRESS:
            data = bytes(self._buffer)
            _, end = unpack_fields(data, 1)
            self._buffer.clear()
            return self._settled(data[:end])
        return self._parser(self._buffer, is_live=True)

    def _sealed(self) -> tuple[bytes, bytes]:
        """Returns the ciphertext and the bytes that are authenticated with it, once all of it is here."""
        if len(self._buffer) < 5:
            raise Incomplete(5)
        length = int.from_bytes(self._buffer[1:5], "big")
        if length > self._most:
            raise WireError(f"a stream announces {length} encrypted bytes; at most {self._most} are allowed")
        if len(self._buffer) < 5 + length:
            raise Incomplete(5 + length)
        data = bytes(self._buffer)
        self._buffer.clear()
        return data[5 : 5 + length], data[:5] + self._codec.label

    def _settled(self, body: bytes) -> _BodyParser:
        """Returns the parser of a body of which all bytes are here. Begins to decompress it where it is compressed, and then raises `_StepDone`."""
        if body[:1] != bytes((Kind.COMPRESS,)):
            return self._parser(bytearray(body))
        packed = compressed_bytes(body, most=self._most)
        self._unpacking = lzw_decompress_in_steps(packed, most=self._most, step_bytes=UNPACK_STEP_BYTES)
        self._unpacked = len(packed)
        raise _StepDone

    def _parser(self, data: bytearray, *, is_live: bool = False) -> _BodyParser:
        return _BodyParser(data, self._most, self._most_nodes, is_live=is_live)

    def _unpack(self) -> _BodyParser:
        """Does one step of decompression. Returns the parser of the result; raises `_StepDone` where there is more to decompress."""
        assert self._unpacking is not None
        try:
            self._unpacked = next(self._unpacking)  # the compressed bytes, which are few, no longer count
        except StopIteration as done:
            self._unpacked = 0
            return self._parser(done.value)
        raise _StepDone


class _StepDone(Exception):
    """One step is done, and what is here allows another."""


class _BodyParser:
    """Parses one plain body. With `is_live`, the body is still arriving, into the very buffer that the parser was given.

    The parser removes each node that it has read from the buffer. So a peer that sends byte by byte costs the parsing of one node for each byte,
    and not of everything that it sent before.
    """

    def __init__(self, data: bytearray, most: int, most_nodes: int, *, is_live: bool) -> None:
        self._data = data
        self._is_live = is_live
        self._most, self._most_nodes = most, most_nodes
        # The head of a push/pull: the number of nodes, the length of the user state, and whether the sender joins.
        self._head: tuple[int, int, bool] | None = None
        self._nodes: list[NodeState] = []
        self._node_bytes = 0
        self._read = 0  # nodes that were read, those that could not be decoded included

    @property
    def held_bytes(self) -> int:
        """The memory of the parsed nodes, and of a buffer that is the parser's own. The inbox counts a live buffer itself."""
        return self._node_bytes + (0 if self._is_live else len(self._data))

    def parse(self) -> StreamMessage:
        try:
            return self._push_pull() if self._head else self._parse()
        except Incomplete as more:
            if self._is_live:
                raise
            raise WireError("a message on a stream is cut off") from more

    def _parse(self) -> StreamMessage:
        if not self._data:
            raise Incomplete(1)
        kind = self._data[0]
        if kind == Kind.PUSH_PULL:
            return self._push_pull()
        data = bytes(self._data)
        if kind == Kind.USER:
            fields, at = unpack_fields(data, 1)
            length = take_uint(fields, b"UserMsgLen", self._most)
            if at + length > len(data):
                raise Incomplete(at + length)
            return User(data[at : at + length])
        return decode(data)

    def _push_pull(self) -> PushPull:
        if self._head is None:
            fields = self._consume(1)
            self._head = (
                take_uint(fields, b"Nodes", self._most_nodes),
                take_uint(fields, b"UserStateLen", self._most),
                take_bool(fields, b"Join"),
            )
        count, user_length, join = self._head
        while self._read < count:
            self._read_nodes(count)
        if len(self._data) < user_length:
            raise Incomplete(user_length)
        user_state = bytes(self._data[:user_length])
        return PushPull(tuple(self._nodes), join, user_state, count - len(self._nodes))

    def _consume(self, at: int) -> dict[Value, Value]:
        """Returns the map at `at`, and removes everything up to its end from the buffer."""
        fields, end = unpack_fields(bytes(self._data), at)
        del self._data[:end]
        return fields

    def _read_nodes(self, count: int) -> None:
        """Parses one step's worth of nodes and removes them from the buffer. Raises `_StepDone` where more of them are here."""
        data, at = bytes(memoryview(self._data)[:STEP_BYTES]), 0
        is_all = len(data) == len(self._data)
        try:
            while self._read < count:
                try:
                    fields, at = unpack_fields(data, at)
                except Incomplete as more:
                    if is_all:
                        raise Incomplete(more.need - at) from more
                    if not at:
                        raise WireError(f"one node of a push/pull takes more than {STEP_BYTES} bytes") from more
                    raise _StepDone from None
                self._read += 1
                try:
                    node = decode_node_state(fields)
                except WireError:
                    continue  # one node that cannot be read must not hide the others
                self._nodes.append(node)
                self._node_bytes += NODE_COST_BYTES + len(node.meta)
        finally:
            del self._data[:at]
