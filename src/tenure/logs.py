"""Formats the log of a node's process: lines for people, or JSON for machines.

Everything goes through the standard library's logging, so that lines of the engines, of gossip and of a user's own code look the same as the
node's. Facts travel beside the sentence: those given with it, and those of the context (a request, a job).
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from enum import StrEnum
from typing import Any, TextIO

import msgspec

_facts: ContextVar[dict[str, Any]] = ContextVar("tenure_facts", default={})  # noqa: B039 - it is never changed in place
_encode = msgspec.json.Encoder(enc_hook=str).encode


class LogForm(StrEnum):
    TEXT = "text"
    JSON = "json"


@contextlib.contextmanager
def facts(**given: Any) -> Iterator[None]:
    """Every line that is written inside, in this task and those that it starts, carries these facts."""
    token = _facts.set({**_facts.get(), **given})
    try:
        yield
    finally:
        _facts.reset(token)


def current_facts() -> dict[str, Any]:
    return _facts.get()


def node_log(
    kind: str, name: str, form: LogForm | str = LogForm.TEXT, stream: TextIO | None = None
) -> Callable[[str], None]:
    """Let this process log as one node: `say(sentence)`. Replaces what was set up before."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines(kind, name) if LogForm(form) is LogForm.JSON else TextLines(kind, name))
    root = logging.getLogger()
    for old in [one for one in root.handlers if isinstance(one.formatter, (JsonLines, TextLines))]:
        root.removeHandler(old)
    root.addHandler(handler)
    logger = logging.getLogger("tenure.node")
    logger.setLevel(logging.INFO)

    def say(text: str) -> None:
        logger.log(logging.ERROR if text.startswith("ALARM") else logging.INFO, "%s", text)

    return say


class TextLines(logging.Formatter):
    """`manager m1: leads with epoch 3`; others than the node itself are named."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__()
        self._who = f"{kind} {name}" if name else kind

    def format(self, record: logging.LogRecord) -> str:
        own = record.name == "tenure.node"
        level = "" if own or record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        source = "" if own else f" ({record.name})"
        given = " ".join(f"{name}={value}" for name, value in current_facts().items())
        line = f"{self._who}: {level}{record.getMessage()}{source}" + (f" [{given}]" if given else "")
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonLines(logging.Formatter):
    """One object a line. `at` is Unix time; facts are fields, and never hide those that every line has."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__()
        self._kind, self._name = kind, name

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            **current_facts(),
            **getattr(record, "facts", {}),
            "at": round(record.created, 6),
            "level": record.levelname.lower(),
            "kind": self._kind,
            "node": self._name,
            "logger": record.name,
            "text": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return _encode(line).decode()
