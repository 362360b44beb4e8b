"""A deploy does not break work that sleeps: it goes on in its version, or in one that declares itself compatible and whose steps fit."""

from __future__ import annotations

from typing import Any

import pytest

from tenure import workflow
from tenure.errors import ConfigurationError
from tenure.testing import TestDatacenter

ran: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


def note(word: str) -> str:
    ran.append(word)
    return word


@workflow(name="bill", version="1", max_attempts=2)
def bill_1(ctx: Any) -> str:
    ctx.step("charge", note, "charged by 1")
    ctx.sleep(minutes=10)
    ctx.step("mail", note, "mailed by 1")
    return "1"


@workflow(name="bill", version="2", max_attempts=2)
def bill_2(ctx: Any) -> str:
    ctx.step("charge", note, "charged by 2")
    ctx.sleep(minutes=10)
    return "2"


@workflow(name="bill", version="3", compatible_with=["1"], max_attempts=2)
def bill_3(ctx: Any) -> str:
    ctx.step("charge", note, "charged by 3")
    ctx.sleep(minutes=10)
    ctx.step("mail", note, "mailed by 3")
    ctx.sleep(minutes=10)
    return "3"


@workflow(name="bill", version="4", compatible_with=["1"], max_attempts=2)
def bill_4(ctx: Any) -> str:
    ctx.step("check", note, "checked by 4")
    ctx.step("charge", note, "charged by 4")
    ctx.sleep(minutes=10)
    return "4"


@workflow(name="bill", version="5", compatible_with=["1"], max_attempts=2)
async def bill_5(ctx: Any) -> str:
    ran.append("began")
    await ctx.step("invoice", note, "invoiced by 5")
    await ctx.sleep(minutes=10)
    return "5"


def asleep_in_version_1(datacenter: TestDatacenter) -> Any:
    job = datacenter.submit(bill_1)
    datacenter.advance(minutes=1)
    assert job.status().workflows[0].state == "suspended"
    assert "in version '1'" in job.why()
    return job


def test_a_sleeper_waits_for_its_own_version_shown_and_alarmed(tenure_dc: TestDatacenter) -> None:
    job = asleep_in_version_1(tenure_dc)
    tenure_dc.deploy(bill_2)
    tenure_dc.advance(minutes=20)
    [view] = job.status().workflows
    assert (view.state, view.version) == ("pending", "1")
    assert view.waits_for == "a worker that serves 'bill' in version '1' in queue 'default'"
    assert any(
        "waiting for a worker that serves 'bill' in version '1'" in str(one)
        for one in tenure_dc.manager.observer.alarms
    )
    tenure_dc.deploy(bill_1, bill_2)
    tenure_dc.advance(minutes=1)
    assert (job.wait(), ran) == ("1", ["charged by 1", "mailed by 1"])
    assert tenure_dc.submit("bill").wait() == "2", "new work takes the newest"


def test_a_sleeper_goes_on_in_a_version_that_declares_itself_compatible(tenure_dc: TestDatacenter) -> None:
    job = asleep_in_version_1(tenure_dc)
    tenure_dc.deploy(bill_3)
    tenure_dc.advance(minutes=12)
    [view] = job.status().workflows
    assert (view.state, view.version) == ("suspended", "3"), "from here on it is work of version 3"
    tenure_dc.advance(minutes=12)
    assert (job.wait(), ran) == ("3", ["charged by 1", "mailed by 3"])


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (bill_4, "in version '4', step 'check' was added before step 'charge', which is recorded"),
        (bill_5, "in version '5', step 'charge' was removed, and is recorded"),
    ],
)
def test_a_version_that_does_not_fit_runs_nothing_and_the_sleeper_waits_for_one_that_does(
    tenure_dc: TestDatacenter, wrong: Any, words: str
) -> None:
    job = asleep_in_version_1(tenure_dc)
    tenure_dc.deploy(wrong)
    tenure_dc.advance(minutes=12)
    [view] = job.status().workflows
    assert (view.state, view.version) == ("suspended", "1")
    assert view.waits_for == f"version '1' of 'bill', or one that fits its steps: {words}"
    assert ran == ["charged by 1"]
    assert any("suspended, and cannot go on" in str(one) for one in tenure_dc.manager.observer.alarms)
    assert words in job.why()
    tenure_dc.deploy(bill_3)
    tenure_dc.advance(minutes=1)
    assert ran == ["charged by 1", "mailed by 3"], "its first sleep was over, and is not slept again"
    tenure_dc.advance(minutes=11)
    assert (job.wait(), job.attempts) == ("3", 1)
    assert tenure_dc.manager.observer.alarms == ()


def test_a_misfit_outlives_its_leader(tenure_dc: TestDatacenter) -> None:
    job = asleep_in_version_1(tenure_dc)
    tenure_dc.deploy(bill_5)
    tenure_dc.advance(minutes=12)
    tenure_dc.crash_manager()
    tenure_dc.advance(minutes=1)
    assert job.status().workflows[0].state == "suspended"
    tenure_dc.deploy(bill_1)
    assert job.wait() == "1"


def test_versions_are_given_as_a_list() -> None:
    with pytest.raises(ConfigurationError, match=r"Write compatible_with=\['1'\]"):
        workflow(compatible_with="1")(lambda ctx: None)
