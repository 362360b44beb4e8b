"""Holds the evidence of an attempt that ended without a result, as data and as the lines that people read first.

The leader puts it together from the store, where workers keep it; nothing is decided by it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tenure.jobs.span_text import seconds

SHOWN_LOG_LINES = 8
SHOWN_STACK_LINES = 14


class AttemptEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt that failed, was killed or died."""

    workflow: str
    attempt: int
    worker: str = ""
    cause: str = ""
    reason: str = ""
    place: str = ""
    """The innermost line of the user's code: `file:line, in function`."""
    traceback: str = ""
    stacks: str = ""
    """The stacks of all threads before a kill or at a fatal signal, those with the user's code first."""
    note: str = ""
    silent_s: float | None = None
    """Seconds from its last beat to its end."""
    beats: tuple[tuple[float, int], ...] = ()
    """(seconds since its start, beats so far), to its end."""
    log: tuple[str, ...] = ()
    """The last lines that it logged or printed."""
    facts: dict[str, str] = {}
    """Everything else that was found: exit code, signal, peak memory."""


def evidence_of(workflow: str, attempt: int, worker: str, kept: Any, log: tuple[str, ...]) -> AttemptEvidence:
    """Returns the evidence from a record of the store, which any release may have written; `kept` is None where there is none."""
    found = kept if isinstance(kept, dict) else {}
    facts = found.get("evidence")
    facts = {str(name): str(text) for name, text in facts.items()} if isinstance(facts, dict) else {}
    return AttemptEvidence(
        workflow=workflow,
        attempt=attempt,
        worker=worker,
        cause=str(found.get("cause", "")),
        reason=str(found.get("reason", "")),
        beats=_points(facts.pop("beats", "")),
        silent_s=_number(facts.pop("silent_s", "")),
        log=log,
        **{name: facts.pop(name, "") for name in ("place", "traceback", "stacks", "note")},
        facts=facts,
    )


def _points(text: str) -> tuple[tuple[float, int], ...]:
    try:
        return msgspec.json.decode(text, type=tuple[tuple[float, int], ...])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ()


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def evidence_lines(one: AttemptEvidence) -> list[str]:
    """Returns the evidence as people read it first: where it was, what it had said, how its beats came."""
    lines = [f"{one.workflow!r}, attempt {one.attempt}" + (f", on {one.worker}" if one.worker else "") + ":"]
    lines += [f"  {line}" for line in first_stack(one)]
    if one.beats:
        lines.append(f"  beats: {beats_in_words(one)}")
    if one.note:
        lines.append(f"  its last note: {one.note}")
    lines += [f"  {name.replace('_', ' ')}: {text}" for name, text in one.facts.items() if "\n" not in text]
    if one.log:
        lines += ["  the end of its log:", *(f"    {line}" for line in one.log[-SHOWN_LOG_LINES:])]
    return lines if len(lines) > 1 else []


def first_stack(one: AttemptEvidence) -> list[str]:
    """Returns the traceback, or the stack of the thread with the user's code; the middle of a long one is left out."""
    text = one.traceback or one.stacks.partition("\n\n")[0]
    lines = text.strip("\n").split("\n") if text else []
    over = len(lines) - SHOWN_STACK_LINES
    if over <= 0:
        return lines
    # A traceback ends with the error, a dump of stacks begins with the innermost call: the other end is of less use.
    keep = 3 if one.traceback else SHOWN_STACK_LINES - 1
    return [*lines[:keep], f"  ... {over + 1} lines: tenure why --json has all ...", *lines[keep + over + 1 :]]


def beats_in_words(one: AttemptEvidence) -> str:
    """Returns how the beats came, in one line."""
    took, count = one.beats[-1]
    words = f"{count} in {seconds(took)}"
    if one.silent_s is not None:
        words += f", the last one {seconds(one.silent_s)} before its end"
    steps = [f"{seconds(at)}: {beats}" for at, beats in one.beats[:: max(1, len(one.beats) // 5)]]
    return words + (f" ({', '.join(steps)})" if len(one.beats) > 2 else "")
