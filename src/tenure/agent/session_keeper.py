"""Keeps an agent's session beside its work, so that the next holder of the work goes on from there."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from tenure.agent.session import Session, decode_session
from tenure.engines.contracts import Message
from tenure.errors import LimitError, ReceiptHandleExpiredError, SessionError, TenureError

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
