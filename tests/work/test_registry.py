from __future__ import annotations

import types
from dataclasses import dataclass
from typing import Any

import pytest

from tenure.errors import ArgumentsError, ConfigurationError, LimitError, UnknownWorkflowError
from tenure.work.registry import MAX_RESULT_BYTES, Registry, Workflow, workflow


@dataclass
class Frame:
    width: int
    height: int = 10


@workflow
def encode(ctx: Any, path: str, frames: list[Frame], quality: float = 0.5) -> int:
    return len(frames)


@workflow(name="review", version="2", max_attempts=5, timeout=60, stall=10)
async def review_pull_request(ctx: Any, pr: int) -> str:
    return str(pr)


def test_a_marked_function_keeps_its_name_and_can_still_be_called() -> None:
    assert encode.name == "encode"
    assert encode(None, "a", [Frame(1)]) == 1
    assert not encode.is_async
    assert review_pull_request.is_async
    assert (review_pull_request.name, review_pull_request.version, review_pull_request.retry.max_attempts) == (
        "review",
        "2",
        5,
    )


def test_arguments_become_what_the_annotations_say() -> None:
    found = encode.check_arguments({"path": "a.mov", "frames": [{"width": 3}]})
    assert found == {"path": "a.mov", "frames": [Frame(3)], "quality": 0.5}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "path"),
        ({"path": 3, "frames": []}, "path"),
        ({"path": "a", "frames": [{"width": "x"}]}, "width"),
        ({"path": "a", "frames": [], "extra": 1}, "extra"),
    ],
)
def test_arguments_that_do_not_fit_are_named_with_what_the_workflow_takes(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ArgumentsError) as caught:
        encode.check_arguments(arguments)
    assert said in str(caught.value)
    assert "It takes (path: str" in str(caught.value) or "It takes (path: 'str'" in str(caught.value)


def test_a_result_is_checked_against_the_annotation_and_the_limit() -> None:
    assert encode.encode_result(3) == b"3"
    with pytest.raises(ArgumentsError, match="result of encode"):
        encode.encode_result("three")
    with pytest.raises(ArgumentsError, match="result of encode"):
        encode.encode_result(object())
    with pytest.raises(LimitError, match="Store large results elsewhere"):
        review_pull_request.encode_result("x" * (MAX_RESULT_BYTES + 1))


@pytest.mark.parametrize(
    "source",
    [
        "def bad(): ...",
        "def bad(*, ctx): ...",
        "def bad(ctx, *rest): ...",
        "def bad(ctx, **rest): ...",
        "def bad(ctx, one, /): ...",
        "def bad(ctx, one: 'Missing'): ...",
    ],
)
def test_a_signature_that_cannot_be_served_is_refused_where_it_is_written(source: str) -> None:
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    with pytest.raises(ConfigurationError, match="bad"):
        workflow(namespace["bad"])


def test_the_type_of_the_context_need_not_exist_at_run_time() -> None:
    namespace: dict[str, Any] = {}
    exec("def fine(ctx: 'OnlyForTypeCheckers', n: int) -> int: return n", namespace)
    assert workflow(namespace["fine"]).check_arguments({"n": 1}) == {"n": 1}


@pytest.mark.parametrize("options", [{"max_attempts": 0}, {"timeout": 0}, {"stall": -1}, {"stall": float("nan")}])
def test_settings_out_of_range_are_named(options: dict[str, Any]) -> None:
    with pytest.raises(LimitError):
        workflow(**options)(lambda ctx: None)


def test_a_registry_finds_by_name_and_version_and_prefers_the_newest() -> None:
    versions = [Workflow(lambda ctx: None, name="w", version=v) for v in ("1.9", "1.10", "beta")]
    registry = Registry(versions)
    assert registry.find("w").version == "1.10"
    assert registry.find("w", "1.9") is versions[0]
    with pytest.raises(UnknownWorkflowError, match=r"Known are: 1\.10, 1\.9, beta"):
        registry.find("w", "3")
    with pytest.raises(UnknownWorkflowError, match="no workflow 'x'"):
        registry.find("x")
    assert len(registry) == 3


def test_modules_are_searched_and_two_functions_of_one_name_are_refused() -> None:
    one, two = types.ModuleType("one"), types.ModuleType("two")
    one.encode = encode  # type: ignore[attr-defined]
    one.same = encode  # type: ignore[attr-defined]
    two.encode = Workflow(lambda ctx: None, name="encode")  # type: ignore[attr-defined]
    assert [w.name for w in Registry.from_modules([one])] == ["encode"]
    with pytest.raises(ConfigurationError, match="two workflows are called 'encode'"):
        Registry.from_modules([one, two])
