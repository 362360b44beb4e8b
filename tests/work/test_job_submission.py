"""What `submit` makes of what it is called with, and what it refuses before anything is sent."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from tenure import Retry, hours, workflow
from tenure.errors import ArgumentsError, ConfigurationError, LimitError
from tenure.jobs.model import JobSubmission
from tenure.randomness import seeded_ids
from tenure.work.job_submission import positional, split, spread, submission_for


@dataclass
class Crop:
    left: int
    top: int = 0


@workflow(stall=600, max_attempts=5, retry=Retry(delay=2, max_delay=10, jitter=0))
def encode(ctx: Any, path: str, quality: int = 7, crop: Crop | None = None) -> int:
    return quality


@workflow
def enqueue(ctx: Any, queue: str) -> str:
    return queue


def made(target: Any, /, *values: Any, **given: Any) -> JobSubmission:
    options, found = split(target, given, positional(target, values))
    return submission_for(target, found, options, seeded_ids(Random(1)))


def test_options_are_sorted_from_arguments_and_the_functions_settings_travel() -> None:
    job = made(encode, path="a.mov", crop=Crop(1), timeout=hours(6), queue="video", priority=2, labels={"for": "x"})
    assert (job.timeout_seconds, job.queue, job.priority, job.labels) == (21_600, "video", 2, {"for": "x"})
    (spec,) = job.workflows
    assert spec.arguments == {"path": "a.mov", "crop": {"left": 1, "top": 0}}
    assert (spec.stall, spec.retry.max_attempts, spec.retry.delay, spec.retry.max_delay) == (600, 5, 2, 10)
    assert job.job_id.startswith("encode-")


def test_an_id_of_your_own_is_kept_and_what_is_given_wins_over_the_function() -> None:
    job = made(encode, path="a", job_id="mine", idempotency_key="k", max_attempts=1, stall=5)
    assert (job.job_id, job.idempotency_key) == ("mine", "k")
    assert (job.workflows[0].max_attempts, job.workflows[0].stall) == (1, 5)


def test_options_may_be_called_as_the_fields_of_a_submission() -> None:
    job = made("report", timeout_seconds=60, stuck_threshold=30)
    assert (job.timeout_seconds, job.stuck_threshold, job.workflows[0].arguments) == (60, 30, {})


def test_a_workflow_known_by_name_takes_any_json() -> None:
    job = made("report", tags=["a"], since=None)
    assert job.workflows[0].arguments == {"tags": ["a"], "since": None}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"path": 3}, "$.path"),
        ({}, "path"),
        ({"path": "a", "qualty": 3}, "qualty"),
        ({"path": "a", "quality": "high"}, "$.quality"),
        ({"path": "a", "crop": {"left": "x"}}, "$.crop.left"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_by_name(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(ArgumentsError) as refused:
        made(encode, **arguments)
    assert named in str(refused.value)
    assert "It takes (path: 'str'" in str(refused.value).replace("path: str", "path: 'str'")


@pytest.mark.parametrize("value", [object(), {1, object()}, float("nan"), [float("inf")], 2**70, lambda: 1])
def test_what_is_no_json_is_refused_with_the_arguments_name(value: Any) -> None:
    with pytest.raises(ArgumentsError, match="argument 'x' of report"):
        made("report", x=value)


def test_a_name_that_is_both_an_option_and_an_argument_is_not_guessed_at() -> None:
    with pytest.raises(ArgumentsError, match="'queue' is an argument of enqueue and an option"):
        made(enqueue, queue="a")
    assert made(enqueue, {"queue": "a"}).workflows[0].arguments == {"queue": "a"}
    assert made(enqueue, {"queue": "a"}).queue == ""
    with pytest.raises(ArgumentsError, match="given twice"):
        made(encode, {"path": "a"}, path="b")


def test_what_is_not_a_workflow_is_refused_with_a_remedy() -> None:
    def plain(ctx: Any) -> None: ...

    with pytest.raises(ConfigurationError, match="write @workflow above"):
        made(plain)
    with pytest.raises(LimitError, match=r"timeout is '6h'.*hours"):
        made(encode, path="a", timeout="6h")
    with pytest.raises(ArgumentsError, match="Labels are text"):
        made(encode, path="a", labels={"n": 1})


def test_inputs_of_a_map_are_dictionaries_or_the_first_argument() -> None:
    assert spread(encode, ["a", {"path": "b", "quality": 1}]) == [{"path": "a"}, {"path": "b", "quality": 1}]
    with pytest.raises(ArgumentsError, match="nobody knows which argument"):
        spread("encode", ["a"])


def test_where_a_gate_runs_it_is_an_option() -> None:
    job = made(encode, path="a.mov", target_datacenters=["eu", "us"])
    assert (job.target_datacenters, job.datacenters) == (("eu", "us"), 1)
    assert made(encode, path="a.mov", datacenters=2).datacenters == 2


def test_arguments_may_be_given_in_the_order_of_the_function() -> None:
    assert made(encode, "a.mov", 9).workflows[0].arguments == {"path": "a.mov", "quality": 9}
    assert made(encode, "a.mov", quality=9, queue="q").workflows[0].arguments == {"path": "a.mov", "quality": 9}
    with pytest.raises(ArgumentsError, match="'path' is given twice"):
        made(encode, "a.mov", path="b.mov")
    with pytest.raises(ArgumentsError, match=r"4 values are given to encode, which takes 3 .* path, quality, crop"):
        made(encode, "a.mov", 9, None, 1)
    with pytest.raises(ArgumentsError, match="do not fit"):
        made(encode, 3)


def test_a_name_alone_does_not_say_which_arguments_values_are() -> None:
    with pytest.raises(ArgumentsError, match=r"nobody here knows which arguments of report these are: 3.*by name"):
        made("report", 3)
    assert made("report", {"n": 3}).workflows[0].arguments == {"n": 3}


def test_a_dictionary_that_is_one_argument_is_told_from_a_dictionary_of_arguments() -> None:
    @workflow
    def ingest(ctx: Any, doc: dict[str, int]) -> int:
        return len(doc)

    with pytest.raises(ArgumentsError, match=r"none of them is called 'a'.*write doc="):
        made(ingest, {"a": 1})
    assert made(ingest, {"doc": {"a": 1}}).workflows[0].arguments == {"doc": {"a": 1}}


def test_options_of_a_workflow_are_those_of_its_submissions() -> None:
    quick = encode.options(timeout=60, queue="fast")
    job = made(quick, "a.mov", queue="slow")
    assert (job.timeout_seconds, job.queue, job.workflows[0].function) == (60, "slow", "encode")
    assert made(quick.options(priority=3), "a.mov").priority == 3
    assert made(encode, "a.mov").queue == ""
    with pytest.raises(ConfigurationError, match=r"no option 'tiemout'. Did you mean 'timeout'"):
        encode.options(tiemout=3)
