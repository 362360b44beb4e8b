"""Writes tracebacks and stack dumps so that a person finds their own code first: frames of Tenure are folded, and idle threads come last.

It runs where the code ran, because only there the folders of Tenure and of Python are known.
"""

from __future__ import annotations

import re
import sysconfig
import traceback
from pathlib import Path

import tenure

MAX_TRACE_CHARS = 20_000
MAX_PLACE_CHARS = 300
_OURS = str(Path(tenure.__file__).parent) + "/"
_PYTHON = sysconfig.get_paths()["stdlib"] + "/"
_PYTHONS = (_PYTHON, "<frozen ", "<string>")
"""The last is the line that started the process (`start_interpreter`). Code that a workflow gives to `exec` has that name, too: its caller is the place then."""
_PACKAGES = "/site-packages/"
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.*)')
"""A frame as `faulthandler` writes it."""


def is_users(file: str) -> bool:
    """Returns True for a file that is neither of Tenure nor of Python's own library. What is installed beside them counts as the user's."""
    return not file.startswith(_OURS) and (_PACKAGES in file or not file.startswith(_PYTHONS))


def exception_evidence(error: BaseException) -> dict[str, str]:
    """Returns the traceback of an exception without frames of Tenure, and the place in the user's code where it was raised."""
    try:
        told = traceback.TracebackException.from_exception(error)
        frames = [frame for frame in told.stack if is_users(frame.filename)]
        folded = _fold(told)
        text = "".join(told.format())
    except Exception:
        return {}  # of an exception that cannot be written as text
    if folded:
        text += f"({folded} frames of Tenure are not shown)\n"
    found = {"traceback": text[-MAX_TRACE_CHARS:]}
    if frames:
        found["place"] = f"{frames[-1].filename}:{frames[-1].lineno}, in {frames[-1].name}"[-MAX_PLACE_CHARS:]
    return found


def _fold(told: traceback.TracebackException) -> int:
    """Takes the frames of Tenure out of an exception and of those that it was raised from. Returns how many; one with no other frames keeps its own."""
    folded = 0
    seen: set[int] = set()
    chain: list[traceback.TracebackException | None] = [told]
    while chain:
        one = chain.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        chain += [one.__cause__, one.__context__, *(getattr(one, "exceptions", None) or ())]
        kept = [frame for frame in one.stack if not frame.filename.startswith(_OURS)]
        if kept and len(kept) < len(one.stack):
            folded += len(one.stack) - len(kept)
            one.stack[:] = kept
    return folded


def stack_evidence(dump: str) -> dict[str, str]:
    """Returns the dump of `faulthandler` with the threads first that run the user's code, and the innermost place there."""
    if not dump:
        return {}
    threads = [part for part in dump.strip().split("\n\n") if part.strip()]
    placed = [(part, _innermost(part)) for part in threads]
    ours = [part for part, place in placed if not place]
    users = [part for part, place in placed if place]
    found = {"stacks": "\n\n".join([*map(_folded, users), *ours]) + "\n"}
    place = next((place for _, place in placed if place), "")
    current = next((place for part, place in placed if place and "Current thread" in part), place)
    return {**found, "place": current[-MAX_PLACE_CHARS:]} if current else found


def _folded(thread: str) -> str:
    """Takes out of one thread's stack what lies outside of the user's code: Tenure called it, and Python called Tenure."""
    lines = thread.split("\n")
    last = max(place for place, line in enumerate(lines) if (frame := _FRAME.match(line)) and is_users(frame["file"]))
    left = len(lines) - last - 1
    return "\n".join([*lines[: last + 1], *([f"  ({left} frames of Tenure are not shown)"] if left else [])])


def _innermost(thread: str) -> str:
    """Returns the innermost place of the user's code in one thread's stack, which `faulthandler` writes with the last call first."""
    for frame in _FRAME.finditer(thread):
        if is_users(frame["file"]):
            return f"{frame['file']}:{frame['line']}, in {frame['name']}"
    return ""
