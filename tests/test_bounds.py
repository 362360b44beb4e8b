"""Every field that somebody outside can set is bounded in its type, and the one checker means what the document says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect

from tenure import bounds as b
from tenure.backoff import Retry
from tenure.beat.board import BeatBoard
from tenure.beat.record import COLD_BYTES, Occupant, Phase
from tenure.bound_checks import check, shown
from tenure.control.messages.jobs import Submit
from tenure.control.messages.operations import BY_NAME, OPERATIONS
from tenure.control.request_decoding import read_body
from tenure.engines.checks import check_name
from tenure.engines.contracts import Ticket
from tenure.errors import LimitError, OutOfBoundsError
from tenure.jobs import GateJobTracker, JobBook, decide, decide_gate
from tenure.jobs.gate_jobs import GateSubmit
from tenure.jobs.mailbox_names import mailbox_name
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.jobs.state_records import Schedule
from tenure.jobs.submission import SubmitJob
from tenure.work.delivery import WorkResult

FREE = {"arguments", "body", "payload", "result", "signals"}
"""JSON of the user's own, and schemas of it: bounded by its size and depth where it is read."""
ROOTS: list[Any] = [*(one.request for one in OPERATIONS), WorkResult]


def unbounded(kind: inspect.Type, path: str) -> Iterator[str]:
    """The places of a type where nothing says how much there may be."""
    said: dict[str, Any] = {}
    while isinstance(kind, inspect.Metadata):
        said |= kind.extra_json_schema or {}
        kind = kind.type
    if (isinstance(kind, inspect.StrType) and not ("enum" in said or {"minLength", "maxLength"} <= set(said))) or (
        isinstance(kind, (inspect.IntType, inspect.FloatType)) and not {"minimum", "maximum"} <= set(said)
    ):
        yield path
    elif isinstance(kind, (inspect.StructType, inspect.DataclassType)):
        for field in kind.fields:
            if field.name not in FREE and field.name != "failure":
                yield from unbounded(field.type, f"{path}.{field.name}")
    elif isinstance(kind, inspect.UnionType):
        for one in kind.types:
            yield from unbounded(one, path)
    elif isinstance(kind, inspect.TupleType):
        for one in kind.item_types:
            yield from unbounded(one, path)
    elif isinstance(kind, (inspect.VarTupleType, inspect.ListType)):
        if "maxItems" not in said:
            yield path
        yield from unbounded(kind.item_type, f"{path}[]")
    elif isinstance(kind, inspect.DictType):
        if "maxProperties" not in said:
            yield path
        yield from unbounded(kind.key_type, f"{path} (keys)")
        yield from unbounded(kind.value_type, f"{path}[]")
    elif isinstance(kind, (inspect.AnyType, inspect.RawType)):
        yield path


@pytest.mark.parametrize("root", ROOTS, ids=lambda root: root.__name__)
def test_every_field_that_somebody_outside_can_set_has_a_bound(root: Any) -> None:
    assert list(unbounded(inspect.type_info(root), root.__name__)) == []


def structs(kind: inspect.Type, found: dict[type, inspect.StructType]) -> None:
    if isinstance(kind, inspect.StructType) and kind.cls not in found:
        found[kind.cls] = kind
    for name in ("type", "item_type", "key_type", "value_type"):
        if isinstance(inner := getattr(kind, name, None), inspect.Type):
            structs(inner, found)
    for name in ("types", "item_types"):
        for inner in getattr(kind, name, ()):
            structs(inner, found)
    if isinstance(kind, (inspect.StructType, inspect.DataclassType)):
        for field in kind.fields:
            if not (isinstance(field.type, inspect.StructType) and field.type.cls in found):
                structs(field.type, found)


def test_every_default_is_within_its_own_bounds() -> None:
    """The checker does not look at a value that is the default."""
    found: dict[type, inspect.StructType] = {}
    for root in ROOTS:
        structs(inspect.type_info(root), found)
    assert JobSubmission in found
    assert Schedule in found
    looked = 0
    for cls in found:
        hints = {field.name: field for field in msgspec.structs.fields(cls)}
        for name, field in hints.items():
            if field.default is not msgspec.NODEFAULT and field.default is not msgspec.UNSET:
                check(field.default, field.type, field=f"{cls.__name__}.{name}")
                looked += 1
    assert looked > 60


TEXTS = {name: kind for name, kind in vars(b).items() if getattr(kind, "__origin__", None) is str}
NUMBERS = {name: kind for name, kind in vars(b).items() if getattr(kind, "__origin__", None) in (int, float)}


def accepts(kind: Any, value: object) -> bool:
    try:
        check(value, kind)
    except OutOfBoundsError:
        return False
    return True


TRICKY = [
    "",
    "a",
    "a\n",
    "\n",
    "ä",
    "a b",
    "a/b",
    "_a",
    "-a",
    ".",
    "a@b",
    "\u202e",
    "\u2066a",
    "\x7f",
    "😀",
    "a\u2028",
    "0",
    "1.2",
    "0.1",
    "::1",
]


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_a_text_means_the_same_to_the_checker_and_to_a_reader_of_the_document(name: str) -> None:
    """`jsonschema_rs` reads patterns as ECMA 262 has them."""
    kind = TEXTS[name]
    schema = msgspec.json.schema(kind)
    said = jsonschema_rs.validator_for(schema)

    @given(st.one_of(st.sampled_from(TRICKY), st.text(max_size=20), st.from_regex(schema.get("pattern", "^.*$"))))
    def same(text: str) -> None:
        assert accepts(kind, text) == said.is_valid(text)

    same()
    most = schema["maxLength"]
    assert accepts(kind, "a" * most) == said.is_valid("a" * most)
    assert not accepts(kind, "a" * (most + 1))
    assert schema.get("pattern", "^$").startswith("^")
    assert schema.get("pattern", "^$").endswith("$")
    assert not re.search(r"(?<!\\)\\[wdsbWDSB]", schema.get("pattern", "")), (
        "these mean more in Python than in ECMA 262"
    )


@pytest.mark.parametrize("name", sorted(NUMBERS))
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), True, "1", None])
def test_a_number_is_a_finite_number(name: str, value: object) -> None:
    assert not accepts(NUMBERS[name], value)


@pytest.mark.parametrize("name", sorted(NUMBERS))
def test_a_number_has_both_ends(name: str) -> None:
    schema = msgspec.json.schema(NUMBERS[name])
    for end, step in (("minimum", -1), ("maximum", 1)):
        assert accepts(NUMBERS[name], schema[end])
        assert not accepts(NUMBERS[name], schema[end] + step)


@given(
    st.from_regex(re.compile(b.MAILBOX, re.ASCII), fullmatch=True).filter(lambda name: accepts(b.QueueName, name)),
    st.integers(-b.PRIORITY_MOST, b.PRIORITY_MOST),
)
def test_a_queue_and_a_priority_always_name_a_mailbox(queue: str, priority: int) -> None:
    check_name(mailbox_name(queue, priority))


def test_also_the_longest() -> None:
    check_name(mailbox_name("q" * b.QUEUE_CHARS, -b.PRIORITY_MOST))
    assert not accepts(b.QueueName, "q" * (b.QUEUE_CHARS + 1))


@pytest.mark.parametrize("kind", [b.WorkflowName, b.ScheduleName, b.WorkerName, b.DatacenterName])
def test_every_other_name_is_a_part_of_the_name_of_a_mailbox(kind: Any) -> None:
    @given(st.one_of(st.sampled_from(TRICKY), st.from_regex(msgspec.json.schema(kind)["pattern"], fullmatch=True)))
    def part(name: str) -> None:
        if accepts(kind, name):
            check_name(f"x.{name}")

    part()


@given(st.text())
def test_whatever_a_function_is_called_its_workflow_has_a_name(called: str) -> None:
    assert accepts(b.WorkflowName, b.as_name(called))


def test_an_error_names_the_field_the_value_and_what_is_allowed() -> None:
    job = JobSubmission(job_id="j", workflows=(WorkflowSpec(name="a"), WorkflowSpec(name="b", retry=Retry(jitter=2))))
    with pytest.raises(OutOfBoundsError) as found:
        check(job, field="submission")
    assert str(found.value).startswith(
        "submission.workflows[1].retry.jitter is 2, and must be between 0 and 1. docs/limits.md"
    )
    with pytest.raises(
        LimitError, match=r"^labels\['k'\] is 'x\\x1b\[2J', and must be 0 to 2,000 characters, none of them a control"
    ):
        check(msgspec.structs.replace(job, workflows=job.workflows[:1], labels={"k": "x\x1b[2J"}))


def test_a_long_value_is_repeated_in_part_and_never_acts_on_a_terminal() -> None:
    assert shown("x" * 700_000) == f"'{'x' * 60}'… (700,000 characters)"
    assert shown("\u202e\x1b") == r"'\u202e\x1b'"
    assert len(shown(10**300)) < 200


def test_a_surrogate_is_no_character() -> None:
    with pytest.raises(OutOfBoundsError, match="half of a surrogate pair"):
        check("a\udc80", b.JobId, field="job_id")


def test_the_longest_names_fit_on_the_beat_board() -> None:
    wide = "😀"  # four bytes
    ticket = Ticket(
        id="i" * 512,
        receipt_handle="r" * 1_024,
        delivery_count=2**53,
        enqueued_at=1e9,
        lease_until=1e12,
        reply_to="m" * b.MAILBOX_CHARS,
        key=wide * 401,
        generation=2**53,
        mailbox="m" * b.MAILBOX_CHARS,
    )
    occupant = Occupant(
        ticket=ticket,
        job=wide * 200,
        workflow=wide * 200,
        workflow_id=wide * 200,
        attempt=1,
        queue="q" * b.MAILBOX_CHARS,
        stall_s=1.0,
        note=wide * 500,
    )
    assert len(msgspec.msgpack.encode(msgspec.structs.replace(occupant, note=""))) < COLD_BYTES, "a note makes room"
    BeatBoard.private(1).records[0].occupy(Phase.RUNNING, occupant, now=1.0)


def bounded_fields() -> Iterator[tuple[str, str, Any]]:
    """Each operation with each field of its own that is text or a number, and a value that is outside of every bound."""
    for operation in OPERATIONS:
        info = inspect.type_info(operation.request)
        assert isinstance(info, inspect.StructType)
        for field in info.fields:
            kinds = field.type.types if isinstance(field.type, inspect.UnionType) else (field.type,)
            for kind in kinds:
                while isinstance(kind, inspect.Metadata):
                    kind = kind.type
                if isinstance(kind, (inspect.StrType, inspect.IntType, inspect.FloatType)):
                    yield operation.name, field.name, "\0" * 70_000 if isinstance(kind, inspect.StrType) else 2**62


def plain(kind: inspect.Type) -> Any:
    """A small value within the bounds of a type, as JSON has it."""
    said: dict[str, Any] = {}
    while isinstance(kind, inspect.Metadata):
        said |= kind.extra_json_schema or {}
        kind = kind.type
    if isinstance(kind, inspect.StrType):
        return said["enum"][0] if "enum" in said else "a" * max(1, said["minLength"])
    if isinstance(kind, (inspect.StructType, inspect.DataclassType)):
        return {one.encode_name: plain(one.type) for one in kind.fields if one.required}
    if isinstance(kind, inspect.TupleType):
        return [plain(one) for one in kind.item_types]
    if isinstance(kind, (inspect.VarTupleType, inspect.ListType)):
        return [plain(kind.item_type)] * said.get("minItems", 0)
    if isinstance(kind, inspect.EnumType):
        return next(iter(kind.cls)).value
    return said.get("minimum", "")


@pytest.mark.parametrize(("name", "field", "bad"), list(bounded_fields()), ids=lambda one: str(one)[:30])
def test_no_request_comes_through_the_door_with_a_field_that_is_out_of_bounds(name: str, field: str, bad: Any) -> None:
    # A node checks nothing again, so this is the only place at which such a value is found.
    request = BY_NAME[name].request
    info = inspect.type_info(request)
    assert isinstance(info, inspect.StructType)
    made = {one.encode_name: plain(one.type) for one in info.fields if one.required}
    body = msgspec.json.encode({**made, field: bad, "type": name})
    with pytest.raises(OutOfBoundsError, match=field):
        read_body(BY_NAME[name], body)


@pytest.mark.parametrize(
    "command",
    [
        lambda one: (decide, JobBook(), SubmitJob(submission=one)),
        lambda one: (decide_gate, GateJobTracker(), GateSubmit(submission=one, target_datacenters=("eu",))),
    ],
)
def test_the_door_leaves_a_submission_to_the_decision_and_every_decision_about_one_checks_it(command: Any) -> None:
    bad = JobSubmission(job_id="j-1", workflows=(WorkflowSpec(name="w"),), queue="my queue")
    check(Submit(submission=bad))
    deciding, fold, asked = command(bad)
    with pytest.raises(OutOfBoundsError, match=r"submission\.queue"):
        deciding(fold, asked, 0.0)
