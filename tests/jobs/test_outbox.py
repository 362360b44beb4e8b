"""Work goes into a mailbox of its queue, priority, workflow and version, and no two of those share a mailbox."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure import bounds as b
from tenure.engines.checks import check_name
from tenure.jobs.mailbox_names import mailbox_name, work_mailbox

QUEUES = st.one_of(
    st.from_regex(re.compile(b.MAILBOX, re.ASCII), fullmatch=True).map(lambda name: name[: b.QUEUE_CHARS]),
    st.sampled_from(["q", "q.p0", "q.p0/f", "q.p0/f/1", "q.p0/f/", "q/.p", "Q" * b.QUEUE_CHARS]),
)
PARTS = st.one_of(
    st.text(max_size=200), st.sampled_from(["", "f", "1", "x.p0", "f/1", ".1", "p0/f", "ü", "f" * 100, "-.p-1"])
)
WORK = st.tuples(QUEUES, st.integers(-b.PRIORITY_MOST, b.PRIORITY_MOST), PARTS, PARTS)


def test_the_name_of_ordinary_work_can_be_read() -> None:
    assert work_mailbox("gpu", 5, "encode", "2") == "gpu.p5/encode/2"
    assert work_mailbox("gpu", 5, "encode", "") == "gpu.p5/encode/"


@given(WORK)
def test_any_work_has_a_mailbox_that_every_engine_accepts(work: tuple[str, int, str, str]) -> None:
    check_name(work_mailbox(*work))


@given(WORK, WORK)
def test_different_work_never_shares_a_mailbox(
    one: tuple[str, int, str, str], other: tuple[str, int, str, str]
) -> None:
    assert (work_mailbox(*one) == work_mailbox(*other)) == (one == other)


@given(WORK, QUEUES, st.integers(-2, 2))
def test_no_mailbox_of_a_workflow_is_one_of_the_old_form(
    work: tuple[str, int, str, str], queue: str, priority: int
) -> None:
    assert work_mailbox(*work) != mailbox_name(queue, priority)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("q.p0/f", 0, "g", "1"), ("q", 0, "f", "p0/g/1")),
        (("q", 0, "f", "/1"), ("q", 0, "f/", "1")),
        (("q" * 115, 0, "f", "1"), ("q" * 115, 0, "f", "2")),
        (("q" * 114, 0, "f", "1"), ("q" * 115, 0, "f", "1")),
    ],
)
def test_names_that_look_alike_differ(one: tuple[str, int, str, str], other: tuple[str, int, str, str]) -> None:
    assert work_mailbox(*one) != work_mailbox(*other)


def test_a_version_cannot_make_the_name_of_another_queue() -> None:
    assert work_mailbox("q", 0, "f", "1.p0") != mailbox_name("q.p0/f/1", 0)
