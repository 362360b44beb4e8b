"""Keeps an agent's session in the message that asked for it, so that whoever gets the message next goes on from there."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from tenure.agent.session import Session, decode_session
from tenure.engines.contracts import MAX_BODY_BYTES, Message
from tenure.errors import ReceiptHandleExpiredError, SessionError, TenureError

_logger = logging.getLogger(__name__)


class SessionKeeper:
    """The checkpoint of one delivery."""

    def __init__(self, message: Message[Any, Any], on_lost: Callable[[Message[Any, Any], str], object]) -> None:
        self._message = message
        self._on_lost = on_lost
        self._over = False

    def resume(self, session: Session) -> None:
        """Let the session be what the last delivery left, unless its own file knows more; keep it from here on."""
        saved = self._message.checkpoint
        if saved is not None:
            try:
                _, events = decode_session(saved.splitlines())
            except SessionError as error:
                _logger.warning("Message %s starts anew: %s", self._message.id, error)
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
        data = session.encode()
        if len(data) > MAX_BODY_BYTES:
            self._over = True
            _logger.warning(
                "Session %s has grown to %d bytes, more than a checkpoint may have: a later delivery starts from where it was before. "
                "Keep it on a disk that all workers see, with open_session()",
                session.session_id,
                len(data),
            )
            return
        try:
            # 0 s: the expiry is the beats' to move. This only saves the data.
            self._message.extend_visibility(0, data)
        except ReceiptHandleExpiredError as error:
            self._over = True
            self._on_lost(self._message, error.reason)
        except TenureError as error:
            # The work goes on: with luck the next commit is kept, and without it only some turns are made again.
            _logger.warning("Session %s could not be kept: %s", session.session_id, error)
