from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tenure.agent import (
    AsyncMainLoop,
    Dataset,
    EvalLoop,
    EvalRequest,
    EvalResult,
    EvalRun,
    MainLoop,
    MainLoopRequest,
    MainLoopResult,
    Prompt,
    Sample,
    Score,
    Session,
)
from tenure.clock import ManualClock
from tenure.errors import ConfigurationError, LimitError
from tenure.testing import AsyncScriptedAdapter, FakeEngine, ScriptedAdapter
from tenure.work import DeadLetterPolicy, LoopGroup


@dataclass(frozen=True)
class Ask:
    text: str


class Agent(MainLoop[Ask, str]):
    def prepare(self, request: Ask) -> tuple[Prompt[str], Session]:
        return Prompt("agent", request.text), Session()


class AsyncAgent(AsyncMainLoop[Ask, str]):
    def prepare(self, request: Ask) -> tuple[Prompt[str], Session]:
        return Prompt("agent", request.text), Session()


def exact(output: str, expected: str) -> Score:
    return Score(1.0 if output == expected else 0.0, passed=output == expected)


DATASET = Dataset(Sample(f"s{n}", Ask(f"double {n}"), str(2 * n)) for n in range(4))


class Rig:
    def __init__(self, tmp_path: Path, clock: Any = None) -> None:
        self.clock = clock or ManualClock()
        self.engine = FakeEngine(self.clock)
        self.main = self.engine.mailbox("main", MainLoopRequest[Ask], MainLoopResult[str])
        self.requests = self.engine.mailbox("evals", EvalRequest[Ask, str], EvalResult)
        self.results = self.engine.mailbox("eval-results", EvalResult)
        self.path = tmp_path / "run.jsonl"

    def run(self, run_id: str = "run-1") -> EvalRun:
        return EvalRun(run_id, DATASET, requests=self.requests, results=self.results, path=self.path, clock=self.clock)

    def loop(self, lines: Any, **settings: Any) -> EvalLoop:
        main = Agent(adapter=ScriptedAdapter(lines), requests=self.main, clock=self.clock)
        return EvalLoop(loop=main, evaluator=exact, requests=self.requests, clock=self.clock, **settings)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_every_sample_is_run_and_scored(rig: Rig) -> None:
    run = rig.run()
    assert run.submit() == 4
    rig.loop(["0", "2", "wrong", "6"]).run(max_iterations=4, wait_time_seconds=0)
    report = run.collect()
    assert (report.mean_score, report.pass_rate, report.missing) == (0.75, 0.75, ())
    assert str(report) == "4 of 4 samples, mean score 0.750, 75% passed, 0 failed, 60 tokens"


def test_a_run_that_crashed_sends_nothing_twice_and_gathers_the_rest(rig: Rig) -> None:
    run = rig.run()
    run.submit()
    loop = rig.loop(["0", "2", "4", "6"])
    loop.run(max_iterations=2, wait_time_seconds=0)
    assert len(run.collect().results) == 2
    with rig.path.open("ab") as file:
        file.write(b'{"run_id":"run-1","sam')  # the crash
    again = rig.run()
    assert again.submit() == 0
    loop.run(max_iterations=2, wait_time_seconds=0)
    assert again.collect().pass_rate == 1.0
    assert rig.run().report().missing == ()


def test_a_sample_that_fails_has_a_score_of_0_and_an_error(rig: Rig) -> None:
    run = rig.run()
    run.submit()
    rig.loop([OSError("no model"), "2", "4", "6"]).run(max_iterations=4, wait_time_seconds=0)
    report = run.collect()
    assert (report.failed, report.results["s0"].error) == (("s0",), "OSError: no model")


def test_a_sample_that_is_given_up_is_counted_and_not_waited_for(rig: Rig) -> None:
    run = rig.run()
    run.submit()
    loop = rig.loop(
        [OSError("no model"), "2", "4", "6"], dead_letters=DeadLetterPolicy(max_delivery_count=1)
    )  # fmt: skip
    loop.run(max_iterations=4, wait_time_seconds=0)
    report = run.collect()
    assert (report.missing, report.failed) == ((), ("s0",))
    assert "no model" in str(report.results["s0"].error)


def test_an_async_agent_is_evaluated_the_same_way(rig: Rig) -> None:
    main = AsyncAgent(adapter=AsyncScriptedAdapter(["0", "2", "4", "6"]), requests=rig.main, clock=rig.clock)
    run = rig.run()
    run.submit()
    loop = EvalLoop(loop=main, evaluator=exact, requests=rig.requests, clock=rig.clock)
    loop.run(max_iterations=4, wait_time_seconds=0)
    assert run.collect().pass_rate == 1.0
    assert loop.heartbeat.count > 8, "its own heartbeat is the one that beats"
    assert main.heartbeat.count == 0


def test_main_and_eval_loop_run_in_one_group_with_probes(tmp_path: Path) -> None:
    from tenure.clock import SystemClock

    rig = Rig(tmp_path, SystemClock())
    main = Agent(adapter=ScriptedAdapter(["hello", *map(str, (0, 2, 4, 6))]), requests=rig.main)
    evals = EvalLoop(loop=main, evaluator=exact, requests=rig.requests)
    group = LoopGroup(loops=[main, evals], health_port=0, health_host="127.0.0.1")
    runner = threading.Thread(target=group.run)
    runner.start()
    try:
        replies = rig.engine.mailbox("replies", MainLoopResult[str])
        rig.main.send(MainLoopRequest(Ask("hi")), reply_to="replies")
        (reply,) = replies.receive(1, 30, 30)
        assert reply.body.output == "hello"
        run = rig.run()
        run.submit()
        assert run.collect(timeout=30).pass_rate == 1.0
    finally:
        group.shutdown()
        runner.join(30)


def test_samples_need_ids_of_their_own_and_files_are_read_with_their_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="same id: a"):
        Dataset([Sample("a", 1, 1), Sample("a", 2, 2)])
    path = tmp_path / "d.jsonl"
    path.write_text('{"id":"a","input":{"text":"x"},"expected":"y"}\n\n{"id":"b"}\n')
    with pytest.raises(ConfigurationError, match="line 3"):
        Dataset.load(path, Sample[Ask, str])
    path.write_text('{"id":"a","input":{"text":"x"},"expected":"y"}\n')
    assert list(Dataset.load(path, Sample[Ask, str])) == [Sample("a", Ask("x"), "y")]


def test_a_score_is_between_0_and_1() -> None:
    with pytest.raises(LimitError, match=r"Score.value is 2"):
        Score(2, passed=True)
