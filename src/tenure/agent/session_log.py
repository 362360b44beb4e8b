"""A session on disk: one JSON line per event, appended and flushed to the disk at each commit.

A process that dies in the middle of a write leaves a torn last line; it was never committed, and is cut off when the file is opened again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tenure.agent.session import Session, decode_session
from tenure.errors import SessionError


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
    """The session in this file, resumed where it was committed last; a new one when there is no such file."""
    path = Path(path)
    log = SessionLog(path, durable=durable)
    data = _cut_torn_line(path)
    session = Session(session_id, log=log)
    if not data:
        path.parent.mkdir(parents=True, exist_ok=True)
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
