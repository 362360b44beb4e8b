"""Formats the log of a node's process: lines for people, or JSON for machines.

Everything goes through the standard library's logging, so that lines of the engines, of gossip and of a user's own code look the same as the
node's. Facts travel beside the sentence: those given with it, and those of the context (a request, a job).
"""

from __future__ import annotations

import contextlib
import logging
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from enum import StrEnum
from typing import Any, TextIO

import msgspec

_facts: ContextVar[dict[str, Any]] = ContextVar("tenure_facts", default={})  # noqa: B039 - it is never changed in place
NODE_LOGGER = "tenure.node"
"""The logger of the lines that nodes write about themselves. A `NodeLog` adds which node it was."""
_encode = msgspec.json.Encoder(enc_hook=str).encode


class LogForm(StrEnum):
    TEXT = "text"
    JSON = "json"


@contextlib.contextmanager
def facts(**given: Any) -> Iterator[None]:
    """Has every line carry these facts that this task, or one that it starts, writes inside of the block."""
    token = _facts.set({**_facts.get(), **given})
    try:
        yield
    finally:
        _facts.reset(token)


@contextlib.contextmanager
def without_facts() -> Iterator[None]:
    """Lines that are written inside carry no facts: for those whose text holds all of them already."""
    token = _facts.set({})
    try:
        yield
    finally:
        _facts.reset(token)


@contextlib.contextmanager
def quiet(name: str) -> Iterator[None]:
    """Inside, the logger of this name writes errors only. Afterwards it has its level again: a program that calls a command goes on."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def current_facts() -> dict[str, Any]:
    return _facts.get()


class NodeLog(logging.LoggerAdapter[logging.Logger]):
    """The log of one node. Every line carries the node's kind and name: several nodes may run in one process.

    `info` is for what happened, `warning` for what an operator should look at, `error` for what was lost or is broken.
    """

    def __init__(self, kind: str, name: str = "", logger: logging.Logger | None = None) -> None:
        super().__init__(logger or logging.getLogger(NODE_LOGGER), {"kind": kind, "node": name})

    def info_all(self, lines: Sequence[str]) -> None:
        """Writes several lines as one record: the logging of a line costs more than its text. The handlers of this file write each as a line of its own."""
        self.logger.info("\n".join(lines), extra={**(self.extra or {}), "lines": lines})


class LineHandler(logging.Handler):
    """Passes the text of each line to a function, which may be called from any thread."""

    def __init__(self, write: Callable[[str], object]) -> None:
        super().__init__()
        self._write = write

    def emit(self, record: logging.LogRecord) -> None:
        for text in _texts_of(record):
            self._write(text)


def log_to(write: Callable[[str], object], kind: str = "node", name: str = "") -> NodeLog:
    """Returns the log of a node inside of another program: its lines go to `write`, and to no handler of the program.

    The logger belongs to the caller alone, so two simulated worlds, or two nodes of one test, never see each other's lines.
    """
    logger = logging.Logger(NODE_LOGGER, logging.INFO)
    logger.addHandler(LineHandler(write))
    return NodeLog(kind, name, logger)


def node_log(kind: str, name: str, form: LogForm | str = LogForm.TEXT, stream: TextIO | None = None) -> NodeLog:
    """Makes this process log as one node, and returns the node's log. Replaces what was set up before."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines(kind, name) if LogForm(form) is LogForm.JSON else TextLines(kind, name))
    root = logging.getLogger()
    for old in [one for one in root.handlers if isinstance(one.formatter, (JsonLines, TextLines))]:
        root.removeHandler(old)
    root.addHandler(handler)
    logging.getLogger(NODE_LOGGER).setLevel(logging.INFO)
    return NodeLog(kind, name)


class TextLines(logging.Formatter):
    """`manager m1: leads with epoch 3`; the logger is named where a node did not write the line itself.

    `kind` and `name` are those of the process, for lines that carry no node. A node's own lines have no level: their words say how grave they are.
    """

    def __init__(self, kind: str, name: str) -> None:
        super().__init__()
        self._process = kind, name

    def format(self, record: logging.LogRecord) -> str:
        own = record.name == NODE_LOGGER
        who = " ".join(filter(None, _node_of(record, self._process)))
        level = "" if own or record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        source = "" if own else f" ({record.name})"
        given = " ".join(f"{name}={value}" for name, value in current_facts().items())
        given = f"{source} [{given}]" if given else source
        # Indented: a name with a line end in it cannot pass for a line of its own.
        line = "\n".join(
            plain(f"{who}: {level}{text}{given}", lines=True).replace("\n", "\n    ") for text in _texts_of(record)
        )
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonLines(logging.Formatter):
    """One object a line. `at` is Unix time; facts are fields, and never hide those that every line has."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__()
        self._process = kind, name

    def format(self, record: logging.LogRecord) -> str:
        return "\n".join(self._line(record, text) for text in _texts_of(record))

    def _line(self, record: logging.LogRecord, text: str) -> str:
        kind, node = _node_of(record, self._process)
        line: dict[str, Any] = {
            **current_facts(),
            **getattr(record, "facts", {}),
            "at": round(record.created, 6),
            "level": record.levelname.lower(),
            "kind": kind,
            "node": node,
            "logger": record.name,
            "text": text,
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return _encode(line).decode()


def _texts_of(record: logging.LogRecord) -> Sequence[str]:
    """Returns the lines of a record: those of `NodeLog.info_all`, else its only one, which may have line ends."""
    return getattr(record, "lines", None) or (record.getMessage(),)


def _node_of(record: logging.LogRecord, process: tuple[str, str]) -> tuple[str, str]:
    """Returns the kind and the name of the node that wrote the line; those of the process where none did."""
    return getattr(record, "kind", process[0]), getattr(record, "node", process[1])


_KEPT = "\n\t"
# C0 and C1 control characters, DEL, the marks and overrides of bidirectional text, and the line and paragraph separators of Unicode.
_ODD = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


def plain(text: str, *, lines: bool = False) -> str:
    """Returns the text with every character that a terminal would obey written out, as `\\u001b`. With `lines`, line ends and tabs stay.

    No line of a log can be forged with text that others wrote.
    A JSON document reads the same afterwards: JSON itself escapes only what is below a space, and in this form.
    """
    return _ODD.sub(lambda found: found[0] if lines and found[0] in _KEPT else f"\\u{ord(found[0]):04x}", text)
