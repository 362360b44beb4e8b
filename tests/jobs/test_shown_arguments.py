"""What people see of arguments: never a secret, and never too much."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.jobs.desk import Desk, spec

from tenure import Secret
from tenure.control.messages.jobs import ListJobs
from tenure.jobs.catalogue import RegisterWorkflows, offer_digest
from tenure.jobs.event_text import words_of
from tenure.jobs.shown_arguments import MASK, declared_secrets, has_argument, masked, masked_event, shown
from tenure.nodes.job_listing import manager_list
from tenure.work.registry import Registry, workflow

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
