"""Requests for every operation, made from the message types themselves, so that a new operation or field is fuzzed from its first day.

Three kinds: values that fit the types, values at and just beyond the borders of the types, and whole requests in which something was broken afterwards.
`Names` are what exists (jobs, workflows, workers, schedules, queues): requests that name them reach the states behind the door.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from functools import cache
from random import Random, SystemRandom
from typing import Any

from msgspec import UNSET, inspect

from tenure.control.messages.operations import OPERATIONS, Operation
from tenure.jobs.model import WorkflowSpec
from tests.soak import SOAK

SEED = int(os.environ.get("TENURE_FUZZ_SEED", "0")) or (SystemRandom().randrange(1, 2**31) if SOAK else 16)
HOSTILE_TEXTS = (
    "",
    " ",
    "my queue",
    "\u00e4",
    "\u202e",
    "a\u0000b",
    "a\nb\r\nX: y",
    "\x1b[31m",
    "../../etc/passwd",
    "a/b/c",
    "'; DROP TABLE journal; --",
    "{job}",
    "%s%n",
    "\U0001f600" * 3,
    "\ud7ff\ufffe",
    "-",
    ".",
    "None",
    "x" * 127,
    "x" * 129,
    "x" * 201,
    "x" * 9_000,
    "\u20ac" * 5_000,
    "y" * 200_000,
)
HOSTILE_NUMBERS = (
    0, 1, -1, 2**31, 2**53, 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**30,
    0.5, -0.0, 5e-324, 1e-300, 1e308, -1e308, math.nan, math.inf, -math.inf,
)  # fmt: skip
HOSTILE: tuple[Any, ...] = (None, True, [], {}, [[]], {"": {}}, [None] * 3, *HOSTILE_NUMBERS, *HOSTILE_TEXTS)
DEEP = 99, 101, 2_000


class Names:
    """What a fuzzer may name: its own jobs, workers, schedules and queues. Honest ones are not among them, because many requests end what they name."""

    def __init__(self) -> None:
        self.jobs: list[str] = ["fuzz-0"]
        self.workflows = ["echo", "raises", "w"]
        self.workers = ["fuzz-w-1", "fuzz-w-2"]
        self.schedules = ["fuzz-s-1", "fuzz-s-2"]
        self.queues = ["default", "fuzz", "fuzz.q/2"]
        self.datacenter = "local"

    def learn(self, job_id: str) -> None:
        """A job was accepted."""
        if len(self.jobs) > 500:
            self.jobs[len(job_id) % 500] = job_id
        else:
            self.jobs.append(job_id)


class Grammar:
    """Makes requests from one seed."""

    def __init__(self, random: Random, names: Names | None = None) -> None:
        self.random, self.names = random, names or Names()
        self._made = 0
        self._by_field: dict[str, Callable[[], Any]] = {
            "job_id": self._job_id,
            "new_job_id": self._new_id,
            "worker": lambda: self._pick(self.names.workers),
            "worker_id": lambda: self._pick(self.names.workers),
            "node": lambda: self._pick(self.names.workers),
            "incarnation": lambda: self._pick([*self.names.workers, ""]),
            "workflow": lambda: self._pick([*self.names.workflows, ""]),
            "function": lambda: self._pick([*self.names.workflows, ""]),
            "queue": lambda: self._pick(self.names.queues),
            "datacenter": lambda: self._pick([self.names.datacenter, ""]),
            "schedule": lambda: self._pick(self.names.schedules),
            "mailbox": lambda: self._pick(["default.p0", "fuzz.p0", ""]),
            "cron": lambda: self._pick(["* * * * *", "*/5 1-3 * * mon", ""]),
            "zone": lambda: self._pick(["UTC", "Europe/Zurich"]),
            # A long wait is legitimate, and would only hold up the fuzzer.
            "wait_s": lambda: self._pick([0.0, 0.01, 0.05]),
            "reason": lambda: self._pick(["long_workflow", "some words"]),
            "idempotency_key": lambda: self._pick(["", "", f"key-{self.random.randrange(50)}"]),
        }

    # Requests

    def request(self) -> tuple[str, bytes]:
        """The name of an operation, and a body for it."""
        operation = self.random.choice(OPERATIONS)
        return operation.name, self.body(operation)

    def body(self, operation: Operation) -> bytes:
        """A body that fits the types, is at their borders, or is broken."""
        kind = self.random.random()
        tree = self._value(_type_of(operation), "", 0.0 if kind < 0.5 else 0.12)
        if kind > 0.75:
            for _ in range(self.random.choice((1, 1, 2, 4))):
                tree = self._broken(tree)
        text = _encode(tree, ascii_only=self.random.random() < 0.5)
        return self._scarred(text) if kind > 0.97 else text

    def _scarred(self, text: bytes) -> bytes:
        """No JSON any more, or not quite."""
        place = self.random.randrange(len(text) + 1)
        return self.random.choice(
            (
                text[:place],
                text[:place] + bytes([self.random.randrange(256)]) + text[place:],
                text + b"}",
                b"\xef\xbb\xbf" + text,
                b"[" * self.random.choice((50, 5_000)),
                text.replace(b'"', b"'"),
                b"",
            )
        )

    # Values that fit

    def _value(self, kind: inspect.Type, field: str, border: float) -> Any:
        """A value of this type; with probability `border` one at or beyond its border."""
        while isinstance(kind, inspect.Metadata):
            kind = kind.type
        if self.random.random() < border:
            return self._at_the_border(kind)
        make = _MAKERS.get(type(kind))
        if isinstance(kind, inspect.StrType) and field in self._by_field:
            return self._by_field[field]()
        if field == "wait_s":
            return self._by_field[field]()
        return make(self, kind, field, border) if make is not None else self._any(2)

    def make_struct(self, kind: Any, field: str, border: float) -> Any:
        found: dict[str, Any] = {}
        tag = getattr(kind, "tag_field", None)
        if tag is not None and self.random.random() < 0.9:
            found[tag] = kind.tag
        for one in kind.fields:
            optional = not one.required
            if optional and self.random.random() < 0.5:
                continue
            if one.default is UNSET and self.random.random() < 0.5:
                continue
            found[one.encode_name] = self._value(one.type, one.encode_name, border)
        if kind.cls.__name__ in ("WorkflowSpec", "JobSubmission", "Schedule", "TriggerSchedule"):
            self._make_it_likely(kind.cls.__name__, found)
        return found

    def _make_it_likely(self, name: str, found: dict[str, Any]) -> None:
        """Most submissions should be accepted, and most workflows should run: what is refused at the door fuzzes the door only."""
        if self.random.random() < 0.25:
            return
        if name == "WorkflowSpec":
            found["name"] = self._pick(["a", "b", "echo"])
            found["function"] = self._pick(self.names.workflows)
            found["arguments"] = {"value": self._any(2)} if found["function"] == "echo" else {}
            for field in ("after", "retry", "stall", "arguments_at"):
                found.pop(field, None)
        elif name == "JobSubmission":
            found["job_id"] = self._new_id()
            flows = found.get("workflows") or [self._value(_SPEC, "", 0.0)]
            flows = flows if isinstance(flows, list) else []
            found["workflows"] = list({str(one.get("name")): one for one in flows if isinstance(one, dict)}.values())
            for field in ("gate_addr", "gate_addrs", "timeout_seconds", "stuck_threshold", "delay", "datacenters"):
                if self.random.random() < 0.8:
                    found.pop(field, None)
            if self.random.random() < 0.9:
                found.pop("target_datacenters", None)
        elif name == "TriggerSchedule":
            found["name"], found["job_id"] = self._pick(self.names.schedules), self._new_id()
        else:
            found["name"] = self._pick(self.names.schedules)
            found["every_s"] = self._pick([1.0, 3_600.0])
            found.pop("cron", None)

    def make_union(self, kind: inspect.UnionType, field: str, border: float) -> Any:
        return self._value(self.random.choice(kind.types), field, border)

    def make_many(self, kind: Any, field: str, border: float) -> Any:
        return [self._value(kind.item_type, field, border) for _ in range(self.random.choice((0, 1, 1, 2, 5)))]

    def make_tuple(self, kind: inspect.TupleType, field: str, border: float) -> Any:
        return [self._value(one, field, border) for one in kind.item_types]

    def make_dict(self, kind: inspect.DictType, field: str, border: float) -> Any:
        count = self.random.choice((0, 1, 2))
        return {f"k{place}": self._value(kind.value_type, "", border) for place in range(count)}

    def make_int(self, kind: inspect.IntType, field: str, border: float) -> Any:
        return self._within(kind, self.random.choice((0, 1, 2, 3, 100)))

    def make_float(self, kind: inspect.FloatType, field: str, border: float) -> Any:
        return self._within(kind, self.random.choice((0.0, 0.5, 1.0, 10.0, 3_600.0)))

    def _within(self, kind: Any, value: Any) -> Any:
        """The value, moved into what the type allows."""
        least = kind.ge if kind.ge is not None else kind.gt
        most = kind.le if kind.le is not None else kind.lt
        if least is not None and (value < least or (kind.gt is not None and value <= kind.gt)):
            value = least + (1 if kind.gt is not None else 0)
        return value if most is None or value <= most else most

    def make_str(self, kind: inspect.StrType, field: str, border: float) -> Any:
        text = self.random.choice(("a", "encode", "some words", "x" * 40))
        if kind.pattern is not None:
            text = text.replace(" ", "-")
        return text[: kind.max_length] if kind.max_length is not None else text

    def make_bool(self, kind: inspect.Type, field: str, border: float) -> Any:
        return self.random.random() < 0.5

    def make_none(self, kind: inspect.Type, field: str, border: float) -> Any:
        return None

    def make_enum(self, kind: inspect.EnumType, field: str, border: float) -> Any:
        return self.random.choice([one.value for one in kind.cls])

    def make_raw(self, kind: inspect.Type, field: str, border: float) -> Any:
        """The body of a forwarded request: of any operation."""
        operation = self.random.choice(OPERATIONS)
        if operation.name == "forward":
            return {}
        return self._value(_type_of(operation), "", border)

    def _any(self, depth: int) -> Any:
        kind = self.random.randrange(7)
        if depth and kind == 0:
            return [self._any(depth - 1) for _ in range(self.random.randrange(4))]
        if depth and kind == 1:
            return {f"k{n}": self._any(depth - 1) for n in range(self.random.randrange(4))}
        return self.random.choice((None, True, 1, 2.5, "text", "\u20ac", 2**63))

    # Values that hardly fit, or do not

    def _at_the_border(self, kind: inspect.Type) -> Any:
        if isinstance(kind, inspect.StrType):
            most = kind.max_length
            borders = [] if most is None else ["x" * most, "x" * (most + 1), "\u20ac" * most]
            return self.random.choice([*borders, *HOSTILE_TEXTS])
        if isinstance(kind, (inspect.IntType, inspect.FloatType)):
            limits = [one for one in (kind.ge, kind.gt, kind.le, kind.lt) if one is not None]
            near = [limit + step for limit in limits for step in (-1, 0, 1)]
            return self.random.choice([*near, *HOSTILE_NUMBERS])
        if isinstance(kind, (inspect.VarTupleType, inspect.ListType)):
            few = [self._value(kind.item_type, "", 0.0)]
            return few * self.random.choice((0, 1, 100, 2_000))
        return self.random.choice(HOSTILE)

    def _broken(self, tree: Any) -> Any:
        """The tree with one thing wrong."""
        if isinstance(tree, dict) and tree and self.random.random() < 0.9:
            key = self.random.choice(list(tree))
            how = self.random.random()
            if how < 0.15:
                return {other: value for other, value in tree.items() if other != key}
            if how < 0.25:
                return {**tree, self.random.choice(HOSTILE_TEXTS): self.random.choice(HOSTILE)}
            return {**tree, key: self._broken(tree[key])}
        if isinstance(tree, list) and tree and self.random.random() < 0.8:
            place = self.random.randrange(len(tree))
            return [*tree[:place], self._broken(tree[place]), *tree[place + 1 :]]
        if self.random.random() < 0.05:
            return _nested(self.random.choice(DEEP), self.random.random() < 0.5)
        return self.random.choice(HOSTILE)

    # Names

    def _pick(self, values: list[Any]) -> Any:
        return self.random.choice(values)

    def _job_id(self) -> str:
        return self._new_id() if self.random.random() < 0.2 else self.random.choice(self.names.jobs)

    def _new_id(self) -> str:
        self._made += 1
        return f"fuzz-{self.random.randrange(1_000)}-{self._made}"


_MAKERS: dict[type, Callable[..., Any]] = {
    inspect.StructType: Grammar.make_struct,
    inspect.DataclassType: Grammar.make_struct,
    inspect.UnionType: Grammar.make_union,
    inspect.VarTupleType: Grammar.make_many,
    inspect.ListType: Grammar.make_many,
    inspect.TupleType: Grammar.make_tuple,
    inspect.DictType: Grammar.make_dict,
    inspect.IntType: Grammar.make_int,
    inspect.FloatType: Grammar.make_float,
    inspect.StrType: Grammar.make_str,
    inspect.BoolType: Grammar.make_bool,
    inspect.NoneType: Grammar.make_none,
    inspect.EnumType: Grammar.make_enum,
    inspect.RawType: Grammar.make_raw,
}


_SPEC = inspect.type_info(WorkflowSpec)


@cache
def _type_of(operation: Operation) -> inspect.Type:
    return inspect.type_info(operation.request)


class _Nested(dict[str, Any]):
    """Stands for brackets that are too deep for an encoder; `_encode` writes them by hand."""


def _nested(depth: int, lists: bool) -> Any:
    return _Nested(depth=depth, lists=lists)


def _encode(tree: Any, *, ascii_only: bool) -> bytes:
    """JSON as strangers write it: NaN and Infinity too, which are not JSON."""
    marks: list[_Nested] = []

    def swap(value: Any) -> Any:
        if isinstance(value, _Nested):
            marks.append(value)
            return f"@nested-{len(marks) - 1}@"
        if isinstance(value, dict):
            return {key: swap(one) for key, one in value.items()}
        return [swap(one) for one in value] if isinstance(value, list) else value

    text = json.dumps(swap(tree), ensure_ascii=ascii_only)
    for place, mark in enumerate(marks):
        opening, closing = ("[", "]") if mark["lists"] else ('{"a":', "}")
        text = text.replace(f'"@nested-{place}@"', opening * mark["depth"] + "1" + closing * mark["depth"])
    return text.encode("utf-8", "surrogatepass")
