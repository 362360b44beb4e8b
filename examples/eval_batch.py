"""A batch of evals: a data set through an agent, scored, with its results on disk. Sending it again sends nothing twice.

python examples/eval_batch.py
"""

from __future__ import annotations

import re
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from local_model import arguments, model_url

from tenure.agent import (
    Dataset,
    EvalLoop,
    EvalRequest,
    EvalResult,
    EvalRun,
    MainLoop,
    MainLoopRequest,
    MainLoopResult,
    ModelSaid,
    Prompt,
    Sample,
    Score,
    Session,
    ToolContext,
    ToolResult,
    tool,
)
from tenure.agent.providers import OpenAIAdapter
from tenure.engines import Engine
from tenure.testing.model import calls, says


@dataclass(frozen=True)
class Problem:
    text: str


@dataclass(frozen=True)
class Factors:
    a: int
    b: int


@tool
def multiply(params: Factors, *, context: ToolContext) -> ToolResult[int]:
    """Multiply two whole numbers."""
    return ToolResult.ok(params.a * params.b)


class Calculator(MainLoop[Problem, str]):
    def prepare(self, request: Problem) -> tuple[Prompt[str], Session]:
        return Prompt("calculate", request.text, tools=(multiply,)), Session()


def rule(asked: str, results: list[str]) -> ModelSaid:
    """What the local model does: it multiplies with the tool, and gets numbers with a 9 wrong."""
    a, b = map(int, re.findall(r"\d+", asked))
    if "9" in asked:
        return says(str(a * b + 1))
    return says(results[0]) if results else calls(("multiply", {"a": a, "b": b}))


DATASET = Dataset(Sample(f"{a}x{b}", Problem(f"What is {a} times {b}?"), str(a * b)) for a in (3, 7, 9) for b in (4, 8))


def exact(output: str, expected: str) -> Score:
    return Score(float(output == expected), passed=output == expected)


def main() -> None:
    options = arguments(__doc__ or "")
    with tempfile.TemporaryDirectory() as scratch, model_url(options.base_url, rule, openai=True) as url:
        folder = Path(scratch)
        with Engine.open(f"sqlite:///{folder}/evals.db") as engine:
            main_loop = Calculator(
                adapter=OpenAIAdapter(options.model, base_url=url, api_key=options.api_key),
                requests=engine.mailbox("problems", MainLoopRequest[Problem], MainLoopResult[str]),
            )
            requests = engine.mailbox("evals", EvalRequest[Problem, str], EvalResult)
            eval_loop = EvalLoop(loop=main_loop, evaluator=exact, requests=requests)
            run = EvalRun(
                "run-1",
                DATASET,
                requests=requests,
                results=engine.mailbox("results", EvalResult),
                path=folder / "run-1.jsonl",
            )
            print(f"sent {run.submit()} samples; sent again after a crash: {run.submit()}")
            worker = threading.Thread(target=lambda: eval_loop.run(wait_time_seconds=5))
            worker.start()
            report = run.collect(timeout=120)
            eval_loop.shutdown()
            worker.join()
    print(report)
    for name, result in report.results.items():
        print(f"  {name}: {'passed' if result.score.passed else 'FAILED'}, {result.tool_calls} tool calls")
    if report.missing:
        sys.exit(f"no result for {report.missing}")


if __name__ == "__main__":
    main()
