"""Which arguments stay in the journal, and what stands there for those that do not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tenure.errors import ConfigurationError, LimitError
from tenure.jobs.large_arguments import check_not_stored, stored_bytes, too_large
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.jobs.settings import LIMITS
from tenure.jobs.submission import validate
from tenure.jobs.submission_digest import digest


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
