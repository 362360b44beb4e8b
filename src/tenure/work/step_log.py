"""The finished steps of one workflow, as its attempts see them: what was recorded, what this attempt calls, and whether the two fit.

It does no I/O: `AttemptHandle` reads the records from the engine and appends new ones. A step is identified by its kind, its name and its key. Nothing
else of a workflow must be deterministic: code between steps runs again, and may take another way.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from tenure.errors import LimitError, StepConflictError

MOST_STEPS = 10_000
"""The most steps that one workflow of a job records."""
MOST_STEP_BYTES = 4 << 20
"""The most bytes that all its records have together. Suspended work keeps them as one value of the store."""
MOST_RESULT_BYTES = 520_000
"""The most bytes of one result: with its name and key it is one record, for which engines have 524,288 bytes."""
MOST_NAME_CHARS = 200
STEP = "step"


class StepId(NamedTuple):
    """Identifies a step within its workflow."""

    kind: str
    name: str
    key: str

    def __str__(self) -> str:
        named = f"{self.kind} {self.name!r}"
        return f"{named} with key {self.key!r}" if self.key else named


class StepRecord(msgspec.Struct, frozen=True, array_like=True):
    """One finished step, as the engine keeps it."""

    kind: str
    name: str
    key: str
    alone: bool
    """True when no other step ran at the same time: then its order counts."""
    result: bytes
    """JSON, encoded by the worker's codec where it has one."""
    emitted: int = 0
    """The items that the workflow had emitted before it."""
    made_by: str = ""
    """The job that recorded it, where this job began again from a step of that one. A codec sealed the result about it."""

    @property
    def id(self) -> StepId:
        return StepId(self.kind, self.name, self.key)


encode_record = msgspec.msgpack.Encoder().encode
_decode_record = msgspec.msgpack.Decoder(StepRecord).decode
NOT_TAKEN_OVER = frozenset({"checkpoint", "job"})
"""The kinds that a job which begins again from a step does not take over: its children are its own, and its cursor would be behind that step."""


def cut_before(records: Iterable[bytes], step: str, made_by: str) -> list[bytes] | None:
    """Returns the records before the first of this step, as another job takes them over; None where the step is not among them."""
    kept: list[bytes] = []
    for data in records:
        record = _decode_record(data)
        if (record.kind, record.name) == (STEP, step):
            return kept
        if record.kind not in NOT_TAKEN_OVER:
            taken = msgspec.structs.replace(record, emitted=0, made_by=record.made_by or made_by)
            kept.append(encode_record(taken))
    return None


def step_names(records: Iterable[bytes]) -> list[str]:
    """Returns the names of the recorded steps, in their order, each once."""
    found = (_decode_record(data) for data in records)
    return list(dict.fromkeys(one.name for one in found if one.kind == STEP))


class StepLog:
    """Its methods may be called from several threads."""

    def __init__(self, records: Iterable[bytes]) -> None:
        self._lock = threading.Lock()
        self._found: dict[StepId, StepRecord] = {}
        self._places: dict[StepId, int] = {}
        """The order of the recorded steps that ran alone."""
        self._called: dict[StepId, int] = {}
        """Maps each step that this attempt has called to the number of the call."""
        self._running: dict[StepId, bool] = {}
        """True for a running step that ran alone so far."""
        self._last: StepId | None = None
        """The recorded step that ran alone and was asked for last."""
        self._bytes = 0
        for data in records:
            self._take_in(data)

    def _take_in(self, data: bytes) -> None:
        record = _decode_record(data)
        self._bytes += len(data)
        # A record that was appended twice, because the first answer was lost, counts once.
        if record.id not in self._found:
            self._found[record.id] = record
            if record.alone:
                self._places[record.id] = len(self._places)

    @property
    def count(self) -> int:
        """Returns how many steps are recorded."""
        return len(self._found)

    def of(self, kind: str, name: str) -> list[StepRecord]:
        """Returns the recorded steps of one kind and name."""
        with self._lock:
            return [one for one in self._found.values() if one.kind == kind and one.name == name]

    @property
    def sequence(self) -> list[StepId]:
        """Returns the recorded steps that ran alone, in their order. Waits and checkpoints are none."""
        with self._lock:
            return [one for one in self._places if one.kind == STEP]

    def begin(self, step: StepId) -> StepRecord | None:
        """Returns the record of a finished step, or None for one that runs now. Raises `StepConflictError`."""
        _check_name(step)
        with self._lock:
            self._check_new(step)
            self._called[step] = len(self._called) + 1
            found = self._found.get(step)
            if found is not None:
                self._check_order(step)
                return found
            if len(self._found) + len(self._running) >= MOST_STEPS:
                raise LimitError("steps", len(self._found) + 1, f"at most {MOST_STEPS:,} for one workflow")
            for other in self._running:
                self._running[other] = False
            self._running[step] = len(self._running) == 0
            return None

    def again(self, step: StepId) -> None:
        """Lets a step that did not finish be called once more."""
        with self._lock:
            self._running.pop(step, None)

    def recorded(self, step: StepId, result: bytes, emitted: int = 0) -> bytes:
        """Returns the record of a step that is done. Raises `LimitError` when there is no room for it."""
        with self._lock:
            alone = self._running.get(step, True)
            data = encode_record(StepRecord(*step, alone, result, emitted))
            if self._bytes + len(data) > MOST_STEP_BYTES:
                raise LimitError(
                    f"the result of {step}",
                    f"{len(result):,} bytes",
                    f"at most {MOST_STEP_BYTES:,} bytes for all steps together, of which {self._bytes:,} are used",
                    remedy="Put large results into a store of your own and return their address",
                )
            return data

    def finished(self, data: bytes) -> None:
        """Notes that the record is durable."""
        with self._lock:
            record = _decode_record(data)
            self._running.pop(record.id, None)
            self._take_in(data)

    def _check_new(self, step: StepId) -> None:
        before = self._called.get(step)
        if before is not None and step not in self._running:
            raise StepConflictError(
                f"{step} was call {before} of this workflow, and comes again as call {len(self._called) + 1}",
                remedy="Give each its own name, or a key= that differs: ctx.step('charge', charge, order, key=order.id)",
            )

    def _check_order(self, step: StepId) -> None:
        place = self._places.get(step)
        if place is None:
            return
        if self._last is not None and place < self._places[self._last]:
            raise StepConflictError(
                f"{step} comes after {self._last}, and came before it when they were recorded",
                remedy="Keep the order of steps that follow each other, or give the changed ones new names",
            )
        self._last = step


def _check_name(step: StepId) -> None:
    for field, value, least in (("name", step.name, 1), ("key", step.key, 0)):
        if not isinstance(value, str) or not least <= len(value) <= MOST_NAME_CHARS:
            raise LimitError(
                f"{field} of a step", repr(value)[:100], f"text of {least} to {MOST_NAME_CHARS} characters"
            )
