"""Samples, scores and reports of evaluations, and the run that sends samples and gathers results over crashes.

Every sample is a message with a key, so sending a data set again after a crash sends only what is not known yet; every result is written to
the run's file before its reply is acknowledged, so gathering goes on where it was.

Samples through an agent, each scored: a loop like any other, with a lease and a heartbeat of its own.
"""

from __future__ import annotations

import logging
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from tenure.agent.agent_loop import AgentLoop, AwaitingLoop, MainLoopRequest
from tenure.agent.events import NO_USAGE, Usage
from tenure.agent.prompt import PromptResponse, StopReason
from tenure.agent.session import SessionKeeper
from tenure.clock import Clock, SystemClock
from tenure.engines.contracts import MAX_MESSAGES, Mailbox, Message, Outgoing
from tenure.errors import AgentError, Cancelled, ConfigurationError, LeaseLostError, LimitError

_logger = logging.getLogger(__name__)

InputT = TypeVar("InputT")
ExpectedT = TypeVar("ExpectedT")


class Sample(msgspec.Struct, Generic[InputT, ExpectedT], frozen=True):
    """One case: what the agent is asked, and what is expected of it."""

    id: str
    input: InputT
    expected: ExpectedT


class Score(msgspec.Struct, frozen=True):
    """How good an output is, between 0 and 1, and whether that is good enough."""

    value: float
    passed: bool
    reason: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.value <= 1:
            raise LimitError("Score.value", self.value, "between 0 and 1")


class EvalRequest(msgspec.Struct, Generic[InputT, ExpectedT], frozen=True):
    """A sample on its way to an `EvalLoop`."""

    run_id: str
    sample: Sample[InputT, ExpectedT]

    @property
    def key(self) -> str:
        return f"{self.run_id}/{self.sample.id}"


class EvalResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one sample."""

    run_id: str
    sample_id: str
    score: Score
    error: str | None = None
    stop: StopReason | None = None
    seconds: float = 0.0
    usage: Usage = NO_USAGE
    tool_calls: int = 0


class Dataset(Sequence[Sample[Any, Any]]):
    """Samples with ids of their own."""

    def __init__(self, samples: Iterable[Sample[Any, Any]]) -> None:
        self._samples = tuple(samples)
        ids = [sample.id for sample in self._samples]
        twice = sorted({one for one in ids if ids.count(one) > 1}) if len(set(ids)) < len(ids) else []
        if twice:
            raise ConfigurationError(f"samples with the same id: {', '.join(twice[:5])}", remedy="Give each its own")

    @classmethod
    def load(cls, path: Path | str, kind: Any = Sample) -> Dataset:
        """Reads a file with one sample of this type per line."""
        decode = msgspec.json.Decoder(kind).decode
        samples = []
        for number, line in enumerate(Path(path).read_bytes().splitlines(), 1):
            if line.strip():
                try:
                    samples.append(decode(line))
                except msgspec.DecodeError as error:
                    raise ConfigurationError(f"{path}, line {number}: {error}") from error
        return cls(samples)

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: Any) -> Any:
        return self._samples[index]

    def __iter__(self) -> Iterator[Sample[Any, Any]]:
        return iter(self._samples)


@dataclass(frozen=True, slots=True)
class EvalReport:
    """All results of a run, by sample; `missing` are those without one yet."""

    results: dict[str, EvalResult]
    missing: tuple[str, ...] = ()
    failed: tuple[str, ...] = field(default=())
    """Samples whose work failed: they have a score of 0 and an error."""

    @property
    def mean_score(self) -> float:
        return statistics.fmean(result.score.value for result in self.results.values()) if self.results else 0.0

    @property
    def pass_rate(self) -> float:
        return sum(result.score.passed for result in self.results.values()) / len(self.results) if self.results else 0.0

    def __str__(self) -> str:
        usage = sum((result.usage for result in self.results.values()), NO_USAGE)
        return (
            f"{len(self.results)} of {len(self.results) + len(self.missing)} samples, mean score {self.mean_score:.3f}, "
            f"{self.pass_rate:.0%} passed, {len(self.failed)} failed, {usage.total_tokens:,} tokens"
        )


class EvalRun:
    """Sends a data set to an `EvalLoop` and gathers its results into a file. Made again after a crash, it goes on."""

    def __init__(
        self,
        run_id: str,
        dataset: Dataset,
        *,
        requests: Mailbox[EvalRequest[Any, Any], EvalResult],
        results: Mailbox[EvalResult, Any],
        path: Path | str,
        clock: Clock | None = None,
    ) -> None:
        self.run_id, self.dataset = run_id, dataset
        self._requests, self._results = requests, results
        self._path = Path(path)
        self._clock = clock or SystemClock()
        self._known = self._read()

    def submit(self) -> int:
        """Sends every sample that has no result and was not sent before. Returns how many it sent."""
        fresh = [sample for sample in self.dataset if sample.id not in self._known]
        sent = 0
        for start in range(0, len(fresh), MAX_MESSAGES):
            requests = [EvalRequest(self.run_id, sample) for sample in fresh[start : start + MAX_MESSAGES]]
            outgoing = [Outgoing(one, key=one.key, reply_to=self._results.name) for one in requests]
            sent += sum(one.refused is None for one in self._requests.send_many(outgoing))
        return sent

    def collect(self, *, timeout: float = 0.0) -> EvalReport:
        """Gather what has come, waiting up to `timeout` seconds for the rest."""
        until = self._clock.monotonic() + timeout
        while self._missing():
            left = max(0.0, until - self._clock.monotonic())
            messages = self._results.receive(100, 60, left)
            if not messages and self._clock.monotonic() >= until:
                break
            self._take(messages)
        return self.report()

    def report(self) -> EvalReport:
        failed = tuple(name for name, result in self._known.items() if result.error is not None)
        return EvalReport(dict(self._known), tuple(self._missing()), failed)

    def _missing(self) -> list[str]:
        return [sample.id for sample in self.dataset if sample.id not in self._known]

    def _take(self, messages: list[Message[EvalResult, Any]]) -> None:
        news = []
        for message in messages:
            result = message.body if message.failure is None else self._given_up(message)
            if result is not None and result.run_id == self.run_id and result.sample_id not in self._known:
                self._known[result.sample_id] = result
                news.append(msgspec.json.encode(result) + b"\n")
        self._path.touch(0o600)  # for this user only; a file that is there keeps its mode
        with self._path.open("ab") as file:
            file.write(b"".join(news))
        self._results.acknowledge_many(messages)

    def _given_up(self, message: Message[EvalResult, Any]) -> EvalResult | None:
        failure = message.failure
        assert failure is not None
        run_id, _, sample_id = (failure.key or "").rpartition("/")
        return EvalResult(
            run_id=run_id, sample_id=sample_id, score=Score(0, passed=False, reason="given up"), error=failure.reason
        )

    def _read(self) -> dict[str, EvalResult]:
        try:
            lines = self._path.read_bytes().split(b"\n")
        except FileNotFoundError:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return {}
        if lines[-1]:  # torn by a crash: its reply was not acknowledged, and comes again
            self._path.write_bytes(b"\n".join([*lines[:-1], b""]))
        try:
            found = [msgspec.json.decode(line, type=EvalResult) for line in lines[:-1] if line]
        except msgspec.DecodeError as error:
            raise AgentError(f"{self._path} is not a file of results: {error}") from error
        return {result.sample_id: result for result in found if result.run_id == self.run_id}


Evaluator = Callable[[Any, Any], Score]
"""Takes an output and what was expected, and returns a score."""


class EvalLoop(AwaitingLoop[EvalRequest[Any, Any], EvalResult]):
    """Runs each sample through a `MainLoop`'s own `prepare` and adapter, and scores the output.

    A sample whose worker dies comes again and goes on from its session. One that fails has a score of 0 and an error; with `dead_letters` it is
    tried again first. `heartbeat` is this loop's own: watchdogs and probes see it as they see every loop.
    """

    def __init__(
        self,
        *,
        loop: AgentLoop[Any, Any],
        evaluator: Evaluator,
        requests: Mailbox[EvalRequest[Any, Any], EvalResult],
        **settings: Any,
    ) -> None:
        settings.setdefault("lease_extender", loop.config.lease_extender)
        super().__init__(requests, **settings)
        self._loop = loop
        self.awaits = loop.awaits
        self._evaluator = evaluator

    def handle(self, message: Message[EvalRequest[Any, Any], EvalResult]) -> EvalResult:
        request = message.body
        begun = self.clock.monotonic()
        try:
            response = self._execute(message)
            score, error = self._judge(response, request)
        except (LeaseLostError, Cancelled):
            raise
        except Exception as failed:
            if self._dead_letters is not None:
                raise
            _logger.exception("%s: sample %s failed", self.name, request.key)
            response, error = None, f"{type(failed).__name__}: {failed}"
            score = Score(0, passed=False, reason="the work failed")
        return EvalResult(
            run_id=request.run_id,
            sample_id=request.sample.id,
            score=score,
            error=error,
            seconds=self.clock.monotonic() - begun,
            **({} if response is None else _costs(response)),
        )

    def _execute(self, message: Message[EvalRequest[Any, Any], EvalResult]) -> PromptResponse[Any]:
        request = message.body
        keeper = SessionKeeper(message, self.lease_lost) if self._loop.config.checkpoint_sessions else None
        asked = MainLoopRequest(request.sample.input, request.key)
        return self.outcome_of(self._loop.execute(asked, heartbeat=self.heartbeat, keeper=keeper))[0]

    def _judge(self, response: PromptResponse[Any], request: EvalRequest[Any, Any]) -> tuple[Score, str | None]:
        if not response.done:
            return Score(0, passed=False, reason=response.stop), f"{response.stop}: {response.detail}"
        return self._evaluator(response.output, request.sample.expected), None


def _costs(response: PromptResponse[Any]) -> dict[str, Any]:
    return {"stop": response.stop, "usage": response.usage, "tool_calls": response.tool_calls}
