"""Which arguments stay in the journal, and what stands there for those that do not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.jobs.desk import Desk, spec

from tenure import Secret
from tenure.control.messages.jobs import ListJobs
from tenure.errors import ConfigurationError, LimitError
from tenure.jobs.arguments import (
    MASK,
    check_not_stored,
    declared_secrets,
    has_argument,
    masked,
    masked_event,
    shown,
    stored_bytes,
    too_large,
)
from tenure.jobs.catalogue import RegisterWorkflows, offer_digest
from tenure.jobs.event_text import words_of
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.jobs.settings import LIMITS
from tenure.jobs.submission import validate
from tenure.jobs.unique_jobs import digest
from tenure.nodes.job_listing import manager_list
from tenure.work.registry import Registry, workflow


def job(*arguments: dict[str, Any]) -> JobSubmission:
    specs = tuple(WorkflowSpec(name=f"w{place}", arguments=one) for place, one in enumerate(arguments))
    return JobSubmission(job_id="j", workflows=specs)


def as_journaled(submission: JobSubmission) -> JobSubmission:
    large = too_large(submission)
    specs = [
        msgspec.structs.replace(one, arguments=large[one.name].kept, arguments_at=f"j/{one.name}/x")
        if one.name in large
        else one
        for one in submission.workflows
    ]
    return msgspec.structs.replace(submission, workflows=tuple(specs))


def test_arguments_up_to_the_journals_limit_stay_where_they_are() -> None:
    assert too_large(job({"text": "x" * 131_000})) == {}


def test_beyond_it_only_the_large_ones_go_and_a_mark_says_how_large_each_is() -> None:
    [split] = too_large(job({"tenant": "a", "text": "x" * 200_000, "more": "y" * 9_000})).values()
    assert split.stored == {"text": "x" * 200_000, "more": "y" * 9_000}
    assert split.kept["tenant"] == "a"
    assert split.kept["text"]["tenure.stored"]["bytes"] == 200_002
    assert stored_bytes(as_journaled(job({"text": "x" * 200_000})).workflows) == 200_002


def test_many_small_arguments_that_are_too_much_together_go_all() -> None:
    given = {f"a{number}": "x" * 1_000 for number in range(300)}
    [split] = too_large(job(given)).values()
    assert split.stored == given


def test_arguments_of_several_workflows_that_are_too_much_together_fit_into_one_append() -> None:
    journaled = as_journaled(job(*({"text": "x" * 100_000} for _ in range(20))))
    validate(journaled, LIMITS)
    assert all(one.arguments_at for one in journaled.workflows)


def test_other_contents_are_another_submission_and_the_place_of_the_same_contents_is_not() -> None:
    one, other = as_journaled(job({"text": "x" * 200_000})), as_journaled(job({"text": "y" * 200_000}))
    moved = msgspec.structs.replace(
        one, workflows=(msgspec.structs.replace(one.workflows[0], arguments_at="elsewhere"),)
    )
    assert digest(one) != digest(other)
    assert digest(one) == digest(moved)


def test_arguments_beyond_the_stores_limit_are_a_clear_error() -> None:
    with pytest.raises(
        LimitError, match=r"arguments is 8,000,011 bytes, and must be at most 7,340,032 bytes for one job"
    ):
        too_large(job({"text": "x" * 8_000_000}))


def test_nobody_outside_may_name_a_place_of_arguments() -> None:
    forged = JobSubmission(job_id="j", workflows=(WorkflowSpec(name="w", arguments_at="other/w/abc"),))
    with pytest.raises(ConfigurationError, match="only a leader does that"):
        check_not_stored(forged)
    check_not_stored(forged, ["other/w/abc"])


@pytest.mark.parametrize("told", [{}, {"bytes": "many"}, {"bytes": [1]}, {"bytes": -1_000_000}, {"bytes": None}])
def test_an_argument_that_looks_like_a_mark_neither_raises_nor_takes_bytes_away(told: dict[str, Any]) -> None:
    """A leader counts the bytes of every live job: one such argument of one caller must not end that for all, or make room for more."""
    honest = as_journaled(job({"text": "x" * 300_000}))
    forged = as_journaled(job({"text": "x" * 300_000, "like": {"tenure.stored": told}}))
    assert stored_bytes(forged.workflows) == stored_bytes(honest.workflows) == 300_002


CARD = "4111 1111 1111 1111"


@workflow
def charge(ctx: Any, card: Secret[str], pin: Secret[int] | None = None, tenant: int = 0) -> int:
    return tenant


def test_an_annotation_makes_an_argument_secret_and_the_function_still_gets_it() -> None:
    assert declared_secrets(charge.served.arguments or {}) == {"card", "pin"}
    assert charge.check_arguments({"card": CARD, "pin": 7}) == {"card": CARD, "pin": 7, "tenant": 0}
    assert shown(spec(arguments={"card": CARD, "tenant": 7}), frozenset({"card"})) == {"card": MASK, "tenant": 7}


@pytest.mark.parametrize(
    "given",
    [
        {"password": "x"},
        {"db_password": "x"},
        {"api-key": "x"},
        {"access_token": "x"},
        {"deep": {"list": [{"client_secret": "x"}]}},
        {"url": "postgresql://ada:x@db/film"},
        {"header": "Bearer abc.def"},
        {"pem": "-----BEGIN RSA PRIVATE KEY-----\nx"},
    ],
)
def test_what_looks_like_a_secret_is_masked(given: dict[str, Any]) -> None:
    text = msgspec.json.encode(shown(spec(arguments=given))).decode()
    assert MASK in text
    assert '"x"' not in text
    assert "abc.def" not in text


def test_ordinary_arguments_stay_as_they_are() -> None:
    given = {"path": "a.mov", "tokens_per_second": 5, "monkey": "x", "passenger": "ada", "url": "https://x.test/a@b"}
    assert masked(given) is given


def test_a_long_value_is_cut_and_so_is_a_long_list_of_arguments() -> None:
    found = shown(spec(arguments={"text": "x" * 10_000, **{f"a{number}": number for number in range(100)}}))
    assert len(found) == 50
    assert found["text"].endswith("... (10,000 characters)")
    assert len(found["text"]) < 400


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        ("tenant", True),
        ("tenant=7", True),
        ("tenant=8", False),
        ("name=ada", True),
        ("deep.level=2", True),
        ("deep.other", False),
        ("card", True),
        (f"card={CARD}", False),
        (f"card={MASK}", False),
    ],
)
def test_a_filter_finds_arguments_and_guesses_no_secret(wanted: str, fits: bool) -> None:
    one = spec(arguments={"tenant": 7, "name": "ada", "deep": {"level": 2}, "card": CARD})
    assert has_argument(one, wanted, frozenset({"card"})) is fits


def test_the_catalogue_masks_lists_and_events_of_a_manager() -> None:
    desk = Desk(at=1_000.0)
    lanes, served = ("default.p0",), Registry([charge]).served
    offer = offer_digest(lanes, served)
    desk.do(RegisterWorkflows(worker="w1", incarnation="i1", offer=offer, lanes=lanes, workflows=served))
    desk.submit("j", spec("charge", arguments={"card": CARD, "tenant": 7}))
    desk.submit("k", spec("charge", arguments={"card": CARD, "tenant": 8}))
    found = manager_list(desk.book, desk.at, ListJobs(arg="tenant=7", args=True))
    assert [(row.job_id, row.args) for row in found.jobs] == [("j", f"charge(card={MASK!r}, tenant=7)")]
    events = [masked_event(data, desk.book) for data in desk.journal]
    assert not any(CARD.encode() in data for data in events)
    assert any(CARD.encode() in data for data in desk.journal), "the journal, and so the worker, has it"
    unchanged = [data for data in desk.journal if CARD.encode() not in data]
    assert all(data in events for data in unchanged)


def test_the_words_of_a_submission_mask_what_looks_like_a_secret() -> None:
    desk = Desk(at=1_000.0)
    desk.submit("j", spec("w", arguments={"password": "hunter2", "n": 1}))
    event = next(msgspec.json.decode(data) for data in desk.journal if b"hunter2" in data)
    assert words_of(event) == f"submitted: w(password={MASK!r}, n=1)"


def test_an_event_that_names_a_schedule_stays_as_it_is() -> None:
    data = b'{"type":"CronFired","schedule":"nightly"}'
    assert masked_event(data) == data
