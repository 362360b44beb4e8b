"""Signals whose type a workflow declares: refused where they are sent, converted where they arrive, and shown to whoever has to send one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pytest

from tenure import workflow
from tenure.errors import ArgumentsError, ConfigurationError, LimitError, NodeRefusedError
from tenure.jobs.states import JobState
from tenure.testing import TestDatacenter


@dataclass
class Approval:
    by: str
    verdict: Literal["yes", "no"] = "yes"


@workflow(max_attempts=1, signals={"approved": Approval, "amount": int})
def pays(ctx: Any) -> str:
    approval = ctx.wait_event("approved")
    assert isinstance(approval, Approval)
    return f"{approval.by} {approval.verdict} {ctx.wait_event('amount')} {ctx.wait_event('other')}"


def test_a_signal_that_does_not_fit_is_refused_where_it_is_sent_and_one_that_fits_has_its_type(
    tenure_dc: TestDatacenter,
) -> None:
    job = tenure_dc.submit(pays)
    tenure_dc.advance(minutes=1)
    [view] = job.status().workflows
    assert (view.state, view.signal) == ("suspended", "approved")
    shape = view.signal_shape
    assert shape is not None
    assert shape["properties"] == {"payload": {"$ref": "#/$defs/Approval"}}
    assert shape["$defs"]["Approval"]["required"] == ["by"]
    for payload, words in {
        None: "field 'payload' is None, and should be an object",
        "yes": "field 'payload' is 'yes', and should be an object",
        (("verdict", "yes"),): "field 'payload.by' is missing",
        (("by", "ada"), ("verdict", "perhaps")): "field 'payload.verdict' is 'perhaps', and may be 'no', 'yes'",
    }.items():
        with pytest.raises(NodeRefusedError, match=words):
            job.signal("approved", dict(payload) if isinstance(payload, tuple) else payload)
    for payload in (float("nan"), object(), 2**70):
        with pytest.raises(ArgumentsError, match="'payload' of signal approved, of type"):
            job.signal("approved", payload)
    job.signal("approved", Approval("ada"))
    job.signal("amount", 7)
    job.signal("other", {"nobody": "declared it"})
    tenure_dc.advance(minutes=1)
    assert (job.state, job.result()) == (JobState.COMPLETED, "ada yes 7 {'nobody': 'declared it'}")
    [view] = job.status().workflows
    assert (view.signal, view.signal_shape) == ("", None)


@workflow(name="later", version="1")
def takes_anything(ctx: Any) -> Any:
    return ctx.wait_event("approved")


@workflow(name="later", version="2", compatible_with=["1"], max_attempts=1, signals={"approved": Approval})
def declares_it(ctx: Any) -> Any:
    return ctx.wait_event("approved").by


def test_the_version_that_goes_on_with_the_work_says_what_fits(tenure_dc: TestDatacenter) -> None:
    early, late = tenure_dc.submit(takes_anything), tenure_dc.submit(takes_anything)
    tenure_dc.advance(minutes=1)
    tenure_dc.deploy(declares_it)
    tenure_dc.advance(minutes=1)
    with pytest.raises(NodeRefusedError, match=r"payload\.by"):
        early.signal("approved", {})
    early.signal("approved", {"by": "ada"})
    late.cancel()
    tenure_dc.advance(minutes=1)
    assert early.result() == "ada"


def test_types_that_nobody_could_write_a_form_for_are_refused_where_they_are_declared() -> None:
    wrong: list[tuple[Any, str]] = [
        (["approved"], "a type for each name"),
        ({"approved": object()}, "has no JSON Schema"),
        ({"": int}, "name of a signal of w"),
    ]
    for signals, words in wrong:
        with pytest.raises(ConfigurationError, match=words):
            workflow(name="w", signals=signals)(lambda ctx: None)
    with pytest.raises(LimitError, match="at most 50"):
        workflow(name="w", signals={f"s{n}": int for n in range(51)})(lambda ctx: None)
