"""The memory of one agent's work: an append-only list of events, and what can be folded from it.

It knows how to go back to a snapshot, how to become bytes and how to be restored from them. Where the bytes are kept is decided by others: a
`SessionLog` on disk, the checkpoint of a message, or nobody.

A session on disk: one JSON line per event, appended and flushed to the disk at each commit.

A process that dies in the middle of a write leaves a torn last line; it was never committed, and is cut off when the file is opened again.

Keeps an agent's session beside its work, so that the next holder of the work goes on from there.
"""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec

from tenure.agent.events import Event, SectionsExpanded, StateSet
from tenure.agent.tools import ToolUse, tools_used
from tenure.engines.contracts import Message
from tenure.errors import LimitError, ReceiptHandleExpiredError, SerializationError, SessionError, TenureError
from tenure.randomness import IdSource, new_id

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


class EventSink(Protocol):
    """Where committed events go."""

    def write(self, lines: Sequence[bytes]) -> None: ...


@dataclass(frozen=True, slots=True)
class SessionSnapshot:
    """A point in a session to which it can go back."""

    session_id: str
    length: int


class Session:
    """The events of one agent so far. One thread at a time works on it; a tool that may be abandoned gets a fork.

    `commit()` makes everything up to here durable: the log is written, and whoever listens in `on_commit` is told.
    """

    def __init__(self, session_id: str | None = None, *, log: EventSink | None = None, ids: IdSource = new_id) -> None:
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

    def snapshot(self) -> SessionSnapshot:
        return SessionSnapshot(self.session_id, len(self._events))

    def rollback(self, snapshot: SessionSnapshot) -> None:
        """Forget everything since the snapshot, in the log too."""
        if snapshot.session_id != self.session_id or snapshot.length > len(self._events):
            raise SessionError(f"snapshot {snapshot} is not one of session {self.session_id}")
        del self._events[snapshot.length :]
        self._state = _state_of(self._events)
        if snapshot.length < self._written:
            self._write([_encode(RolledBack(snapshot.length))])
            self._written = snapshot.length

    def fork(self) -> Session:
        """Returns a copy that goes its own way: what is done to it counts only once it is adopted."""
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
        """Returns the whole session: a header, then one line of JSON per event."""
        return b"\n".join([self.header(), *(_encode(event) for event in self._events)]) + b"\n"

    def header(self) -> bytes:
        return _encode(Header(self.session_id))

    def restore(self, data: bytes, *, replace: bool = False) -> None:
        """Become what `encode` once wrote. A session with events of its own refuses, unless they are to be replaced."""
        if self._events and not replace:
            raise SessionError(f"session {self.session_id} has events of its own and cannot be restored")
        session_id, events = decode_session(data.splitlines())
        self.rollback(SessionSnapshot(self.session_id, 0))
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
    """Returns the id and the events that remain after all rollbacks."""
    try:
        header = _decode_header(lines[0]) if lines else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SessionError(f"this is not a session: {error}") from error
    if header is None or header.format != FORMAT:
        raise SessionError(f"this is not a session of format {FORMAT}: {header}")
    events: list[Event] = []
    for number, line in enumerate(lines[1:], 2):
        try:
            event = _decode_line(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise SessionError(f"line {number} of session {header.session_id} cannot be read: {error}") from error
        if isinstance(event, RolledBack):
            del events[event.to :]
        else:
            events.append(event)
    return header.session_id, events


def _state_of(events: Iterable[Event]) -> dict[str, Any]:
    return {event.key: event.value for event in events if isinstance(event, StateSet)}


class SessionLog:
    """Appends lines to a file."""

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        """`durable=False` leaves it to the system when the disk has it: a crash of the machine may lose the last lines."""
        self.path = path
        self._durable = durable

    def write(self, lines: Sequence[bytes]) -> None:
        # Opened for each commit: an agent's session lives for hours and commits every few seconds.
        with self.path.open("ab") as file:
            file.write(b"".join(line + b"\n" for line in lines))
            file.flush()
            if self._durable:
                os.fsync(file.fileno())


def open_session(path: Path | str, session_id: str | None = None, *, durable: bool = True) -> Session:
    """Opens the session in this file, resumed where it was committed last; a new one when there is no such file."""
    path = Path(path)
    log = SessionLog(path, durable=durable)
    data = _cut_torn_line(path)
    session = Session(session_id, log=log)
    if not data:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(0o600)  # a conversation is for this user only; a file that is there keeps its mode
        log.write([session.header()])
        return session
    found, events = decode_session(data.splitlines())
    if session_id is not None and found != session_id:
        raise SessionError(f"{path} holds session {found}, not {session_id}", remedy="Give each session its own file")
    session.session_id = found
    session.replay(events)
    return session


def _cut_torn_line(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return b""
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        os.truncate(path, whole)
    return data[:whole]


_logger = logging.getLogger(__name__)


class Keeper(ABC):
    """Resumes a session from its last saved state, and saves it at each commit."""

    where: str
    """Names the place where the session is kept, for people."""

    def __init__(self) -> None:
        self._over = False

    @abstractmethod
    def saved(self) -> bytes | None:
        """Returns the state that was saved last, or None."""

    @abstractmethod
    def save(self, data: bytes) -> None:
        """Make this durable. Raises `ReceiptHandleExpiredError` when the work is no longer ours."""

    @abstractmethod
    def lost(self, reason: str) -> None:
        """The keeper calls this when another holder has the work: the subclass reports it."""

    def resume(self, session: Session) -> None:
        """Let the session be what the last attempt left, unless its own file knows more; keep it from here on."""
        saved = self.saved()
        if saved is not None:
            try:
                _, events = decode_session(saved.splitlines())
            except SessionError as error:
                _logger.warning("%s starts anew: %s", self.where, error)
            else:
                # A file that was resumed may be ahead (it is written first) or behind (another machine went on).
                if not session.resumed or len(events) > len(session.events):
                    session.restore(saved, replace=True)
        session.on_commit.append(self._keep)

    def release(self, session: Session) -> None:
        """Keep it no longer."""
        session.on_commit.remove(self._keep)

    def _keep(self, session: Session) -> None:
        if self._over:
            return
        try:
            self.save(session.encode())
        except LimitError as error:
            self._over = True
            _logger.warning(
                "Session %s has grown to more than a checkpoint may have: a later delivery starts from where it was before. "
                "Keep it on a disk that all workers see, with open_session(). %s",
                session.session_id,
                error,
            )
        except ReceiptHandleExpiredError as error:
            self._over = True
            self.lost(error.reason)
        except TenureError as error:
            # The work goes on: with luck the next commit is kept, and without it only some turns are made again.
            _logger.warning("Session %s could not be kept: %s", session.session_id, error)


class SessionKeeper(Keeper):
    """In the checkpoint of one delivery of a message."""

    def __init__(self, message: Message[Any, Any], on_lost: Callable[[Message[Any, Any], str], object]) -> None:
        super().__init__()
        self.where = f"Message {message.id}"
        self._message = message
        self._on_lost = on_lost

    def saved(self) -> bytes | None:
        return self._message.checkpoint

    def save(self, data: bytes) -> None:
        # 0 s: the expiry is the beats' to move. This only saves the data.
        self._message.extend_visibility(0, data)

    def lost(self, reason: str) -> None:
        self._on_lost(self._message, reason)
