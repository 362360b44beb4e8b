"""Limits: rates on average and at once, room for those who wait, and bounded memory for both."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.memory import kept_bytes

from tenure.clock import ManualClock
from tenure.control.admission import Admission, AdmittedCaller, Buckets, HttpLimits, Turnstile, Visitor
from tenure.control.messages.operations import BY_NAME, Role
from tenure.control.messages.tokens import CallerBounds, Certificate, Token
from tenure.control.messages.wire import Problem, ProblemKind
from tenure.control.messages.workers import ExtendDeadline, WorkerReport
from tenure.control.request_decoding import MAX_DEPTH, check_depth
from tenure.control.tokens import CallerIdentity, TokenBook
from tenure.errors import ConfigurationError, LimitError
from tenure.health.extension import ExtensionReason, HealthcheckExtensionRequest


def test_a_bucket_gives_its_burst_at_once_and_its_rate_after_that() -> None:
    buckets = Buckets(rate=2.0, burst=3.0)
    assert [buckets.take("a", 0.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert buckets.take("b", 0.0) == 0.0
    assert buckets.take("a", 0.5) == 0.0
    assert buckets.take("a", 0.5) == pytest.approx(0.5)


@given(st.lists(st.floats(0, 2), min_size=1, max_size=60), st.floats(0.5, 20), st.integers(1, 10))
def test_in_no_span_more_than_the_burst_and_the_rate_get_through(gaps: list[float], rate: float, burst: int) -> None:
    buckets, now, passed = Buckets(rate, float(burst)), 0.0, []
    for gap in gaps:
        now += gap
        wait = buckets.take("a", now)
        if not wait:
            passed.append(now)
        else:
            assert 0 < wait <= 1 / rate + 1e-9
    for first in range(len(passed)):
        for last in range(first, len(passed)):
            assert last - first + 1 <= burst + (passed[last] - passed[first]) * rate + 1e-6


def test_however_many_callers_there_are_memory_is_bounded() -> None:
    def after(callers: int) -> Callable[[], Buckets]:
        def fill() -> Buckets:
            buckets = Buckets(1.0, 5.0)
            for number in range(callers):
                buckets.take(number, number / 1_000)
            return buckets

        return fill

    assert kept_bytes(after(50_000)) < 1.5 * kept_bytes(after(10_000))


def test_a_turnstile_has_room_for_all_and_for_each() -> None:
    stile = Turnstile(3, 2)
    assert [stile.enter("a"), stile.enter("a"), stile.enter("a")] == [True, True, False]
    assert [stile.enter("b"), stile.enter("b")] == [True, False]
    stile.leave("a")
    assert stile.enter("b")
    for caller in ("a", "b", "b"):
        stile.leave(caller)
    assert stile.inside == 0
    assert [stile.enter("a"), stile.enter("a"), stile.enter("b")] == [True, True, True]


def test_limits_are_positive() -> None:
    with pytest.raises(LimitError, match="burst"):
        HttpLimits(burst=0)


def door(**limits: float) -> Admission:
    return Admission(TokenBook(shared="right"), HttpLimits(**limits), ManualClock())  # type: ignore[arg-type]


def test_guessing_tokens_is_slowed_down_and_does_not_lock_out_who_knows_one() -> None:
    admission = door(wrong_tokens_per_s=1.0, wrong_tokens_burst=5.0)
    wrong = Visitor("10.0.0.1", "Bearer guess")
    kinds = [_kind(admission.admit(wrong)) for _ in range(10)]
    assert kinds == [ProblemKind.FORBIDDEN] * 5 + [ProblemKind.TOO_MANY] * 5
    assert isinstance(admission.admit(Visitor("10.0.0.1", "Bearer right")), AdmittedCaller)
    assert _kind(admission.admit(Visitor("10.0.0.2", "Bearer guess"))) is ProblemKind.FORBIDDEN


def _kind(answer: AdmittedCaller | Problem) -> ProblemKind:
    assert isinstance(answer, Problem)
    return answer.kind


@pytest.mark.parametrize("authorization", ["", "Bearer", "Basic right", "right", "Bearer  right x", "Bearer: right"])
def test_a_header_that_is_no_token_lets_nobody_in(authorization: str) -> None:
    assert _kind(door().admit(Visitor("h", authorization))) is ProblemKind.FORBIDDEN


@pytest.mark.parametrize(
    ("host", "origin", "let_in"),
    [
        ("127.0.0.1:8470", "", True),
        ("localhost:8470", "", True),
        ("[::1]:8470", "", True),
        ("", "", True),
        ("evil.example:8470", "", False),
        ("127.0.0.1.evil.example", "", False),
        ("localhost:8470", "http://localhost:8470", True),
        ("localhost:8470", "http://evil.example", False),
        ("localhost:8470", "null", False),
        ("evil.example", "http://evil.example", False),
    ],
)
def test_a_page_of_another_site_gets_nothing_from_a_node_without_tokens(host: str, origin: str, let_in: bool) -> None:
    admission = Admission(TokenBook(), HttpLimits(), ManualClock())
    answer = admission.admit(Visitor("127.0.0.1", host=host, origin=origin))
    assert isinstance(answer, AdmittedCaller) is let_in
    if not let_in:
        assert _kind(answer) is ProblemKind.DENIED


def test_a_certificate_has_the_role_that_its_name_is_given_and_without_an_entry_none() -> None:
    book = TokenBook([], [Certificate(name="worker-7", role=Role.WORKER)])
    admission = Admission(book, HttpLimits(), ManualClock())
    caller = admission.admit(Visitor("10.0.0.1", host="dc.example", certificate="worker-7"))
    assert isinstance(caller, AdmittedCaller)
    assert (str(caller), caller.identity.roles) == ("worker-7@10.0.0.1", {Role.WORKER})
    for visitor in (
        Visitor("10.0.0.1", host="dc.example", certificate="worker-8"),
        Visitor("10.0.0.1", host="dc.example"),
        Visitor("10.0.0.1", "Bearer guess", host="dc.example", certificate="worker-7"),
    ):
        assert _kind(admission.admit(visitor)) is ProblemKind.FORBIDDEN


def test_a_token_that_expired_lets_nobody_in_and_ends_the_streams_that_it_began() -> None:
    clock = ManualClock()
    ends = datetime.fromtimestamp(clock.wall() + 60, UTC)
    token = Token(name="ci", role=Role.CLIENT, sha256=hashlib.sha256(b"secret").hexdigest(), expires=ends)
    admission = Admission(TokenBook([token]), HttpLimits(), clock)
    visitor = Visitor("10.0.0.1", "Bearer secret", host="dc.example")
    caller = admission.admit(visitor)
    assert isinstance(caller, AdmittedCaller)
    assert admission.still_knows(caller)
    clock.advance(61)
    answer = admission.admit(visitor)
    assert isinstance(answer, Problem)
    assert (answer.kind, answer.fact) == (ProblemKind.FORBIDDEN, "the token of 'ci' has expired")
    assert not admission.still_knows(caller)


@pytest.mark.parametrize(
    ("bound", "worker", "may"),
    [
        ("", "any", True),
        ("gpu-1", "gpu-1", True),
        ("gpu-1", "gpu-11", False),
        ("gpu-*", "gpu-11", True),
        ("gpu-*", "cpu-1", False),
    ],
)
def test_a_worker_speaks_for_the_workers_that_its_token_names(bound: str, worker: str, may: bool) -> None:
    admission = Admission(TokenBook(), HttpLimits(), ManualClock())
    identity = CallerIdentity("w", frozenset({Role.WORKER}), CallerBounds(worker=bound))
    asked = HealthcheckExtensionRequest(worker, ExtensionReason.LONG_WORKFLOW, 0.5, 0.0, 1)
    for request in (
        WorkerReport(worker=worker),
        WorkerReport(worker=worker, leaving=True),
        ExtendDeadline(request=asked),
    ):
        refused = admission.refuse(BY_NAME[str(request.__struct_config__.tag)], request, identity)
        assert (refused is None) == may
        assert refused is None or (refused.kind is ProblemKind.DENIED and repr(worker) in refused.fact)


@pytest.mark.parametrize(
    ("body", "fits"),
    [
        (b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, True),
        (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), False),
        (b'{"a":' * (MAX_DEPTH + 1), False),
        (b'"' + b"[" * 500 + b'"', True),
        (b'["' + b'\\"[' * 500 + b'"]', True),
        (b"[]," * 5_000, True),
        (b"[" * 1_000_000, False),
    ],
)
def test_json_may_only_be_so_deep(body: bytes, fits: bool) -> None:
    if fits:
        check_depth(body)
    else:
        with pytest.raises(ConfigurationError, match="nests deeper"):
            check_depth(body)
