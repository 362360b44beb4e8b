"""The memory of one agent's work: an append-only list of events, and what can be folded from it.

It knows how to go back to a snapshot, how to become bytes and how to be restored from them. Where the bytes are kept is decided by others: a
`SessionLog` on disk, the checkpoint of a message, or nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from tenure.agent.events import Event, SectionsExpanded, StateSet
from tenure.agent.tool_use import ToolUse, tools_used
from tenure.errors import SerializationError, SessionError
from tenure.ids import IdSource, new_id

FORMAT = 1


class Header(msgspec.Struct, frozen=True):
    """The first line of a session's bytes."""

    session_id: str
    format: int = FORMAT


class RolledBack(msgspec.Struct, frozen=True, tag_field="event", tag="rolled_back"):
    """Only in a log: the events from `to` on did not happen."""

    to: int


_encode = msgspec.json.Encoder().encode
_decode_header = msgspec.json.Decoder(Header).decode
_decode_line = msgspec.json.Decoder(Event | RolledBack).decode


class Log(Protocol):
    """Where committed events go."""

    def write(self, lines: Sequence[bytes]) -> None: ...


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A point in a session to which it can go back."""

    session_id: str
    length: int


class Session:
    """The events of one agent so far. One thread at a time works on it; a tool that may be abandoned gets a fork.

    `commit()` makes everything up to here durable: the log is written, and whoever listens in `on_commit` is told.
    """

    def __init__(self, session_id: str | None = None, *, log: Log | None = None, ids: IdSource = new_id) -> None:
        self.session_id = session_id or ids()
        self.on_commit: list[Callable[[Session], object]] = []
        self.resumed = False
        """True when the session was restored and no evaluation has begun on it since."""
        self.request_id = ""
        """The id of the request in hand, where there is one."""
        self._events: list[Event] = []
        self._state: dict[str, Any] = {}
        self._log = log
        self._written = 0

    @property
    def events(self) -> Sequence[Event]:
        return self._events

    @property
    def state(self) -> Mapping[str, Any]:
        """Values that tools keep in the session, by key."""
        return self._state

    @property
    def expanded(self) -> frozenset[str]:
        """The keys of the sections that the model asked to see in full."""
        return frozenset(key for event in self._events if isinstance(event, SectionsExpanded) for key in event.keys)

    @property
    def tools_used(self) -> dict[str, ToolUse]:
        """Maps each tool to its calls, failures, seconds and beats."""
        return tools_used(self._events)

    def append(self, event: Event) -> None:
        self._events.append(event)
        if isinstance(event, StateSet):
            self._state[event.key] = event.value

    def set(self, key: str, value: Any) -> None:
        """Keep a value. It has to be plain JSON: what is read after a crash must equal what is read before."""
        try:
            plain = msgspec.json.decode(_encode(value))
        except (TypeError, ValueError, RecursionError) as error:
            raise SerializationError(
                f"state {key!r} of type {type(value).__name__} cannot be written as JSON: {error}",
                remedy="Keep plain JSON types; msgspec.to_builtins() turns a dataclass into them",
            ) from error
        self.append(StateSet(key, plain))

    def get(self, key: str, default: Any = None) -> Any:
        return self._state.get(key, default)

    # Going back

    def snapshot(self) -> Snapshot:
        return Snapshot(self.session_id, len(self._events))

    def rollback(self, snapshot: Snapshot) -> None:
        """Forget everything since the snapshot, in the log too."""
        if snapshot.session_id != self.session_id or snapshot.length > len(self._events):
            raise SessionError(f"snapshot {snapshot} is not one of session {self.session_id}")
        del self._events[snapshot.length :]
        self._state = _state_of(self._events)
        if snapshot.length < self._written:
            self._write([_encode(RolledBack(snapshot.length))])
            self._written = snapshot.length

    def fork(self) -> Session:
        """A copy that goes its own way: what is done to it counts only once it is adopted."""
        copy = Session(self.session_id)
        copy._events, copy._state = list(self._events), dict(self._state)
        return copy

    def adopt(self, fork: Session) -> None:
        """Take over what a fork of this session added."""
        for event in fork._events[len(self._events) :]:
            self.append(event)

    # Keeping

    def commit(self) -> None:
        """Make it durable up to here."""
        if self._written < len(self._events):
            self._write([_encode(event) for event in self._events[self._written :]])
            self._written = len(self._events)
        for listener in tuple(self.on_commit):
            listener(self)

    def _write(self, lines: list[bytes]) -> None:
        if self._log is not None:
            self._log.write(lines)

    def encode(self) -> bytes:
        """The whole session: a header, then one line of JSON per event."""
        return b"\n".join([self.header(), *(_encode(event) for event in self._events)]) + b"\n"

    def header(self) -> bytes:
        return _encode(Header(self.session_id))

    def restore(self, data: bytes, *, replace: bool = False) -> None:
        """Become what `encode` once wrote. A session with events of its own refuses, unless they are to be replaced."""
        if self._events and not replace:
            raise SessionError(f"session {self.session_id} has events of its own and cannot be restored")
        session_id, events = decode_session(data.splitlines())
        self.rollback(Snapshot(self.session_id, 0))
        if self._log is None:
            self.session_id = session_id  # with a log, the file has given the name
        for event in events:
            self.append(event)
        self.resumed = bool(events)

    def replay(self, events: Iterable[Event]) -> None:
        """Take over events that the log holds already."""
        for event in events:
            self.append(event)
        self._written = len(self._events)
        self.resumed = bool(self._events)


def decode_session(lines: Sequence[bytes]) -> tuple[str, list[Event]]:
    """The id and the events that remain after all rollbacks."""
    try:
        header = _decode_header(lines[0]) if lines else None
    except msgspec.DecodeError as error:
        raise SessionError(f"this is not a session: {error}") from error
    if header is None or header.format != FORMAT:
        raise SessionError(f"this is not a session of format {FORMAT}: {header}")
    events: list[Event] = []
    for number, line in enumerate(lines[1:], 2):
        try:
            event = _decode_line(line)
        except msgspec.DecodeError as error:
            raise SessionError(f"line {number} of session {header.session_id} cannot be read: {error}") from error
        if isinstance(event, RolledBack):
            del events[event.to :]
        else:
            events.append(event)
    return header.session_id, events


def _state_of(events: Iterable[Event]) -> dict[str, Any]:
    return {event.key: event.value for event in events if isinstance(event, StateSet)}
