"""An agent that reviews the Python files of a folder, as a worker on a durable mailbox.

    python examples/code_review_agent.py

It takes a request from a SQLite mailbox, opens a section of its prompt, reads and compiles the files through tools, and replies with a typed review.
"""

from __future__ import annotations

import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from local_model import arguments, as_json, model_url

from tenure.agent import (
    Budget,
    MainLoop,
    MainLoopConfig,
    MainLoopRequest,
    MainLoopResult,
    ModelSaid,
    Prompt,
    Section,
    Session,
    Visibility,
)
from tenure.agent.providers import OpenAIAdapter
from tenure.agent.toolbox import CommandRunner, Filesystem, list_files, read_file, run_command, search_files
from tenure.engines import Engine
from tenure.testing.model import calls, says

SAMPLE = {
    "billing.py": "def total(items):\n    try:\n        return sum(i.price for i in items)\n    except:\n        return 0\n",
    "config.py": "import os\n\ndef load(text):\n    return eval(text)\n",
}


@dataclass(frozen=True)
class ReviewRequest:
    title: str


@dataclass(frozen=True)
class Finding:
    file: str
    line: int
    comment: str


@dataclass(frozen=True)
class Review:
    summary: str
    findings: list[Finding]


class CodeReviewAgent(MainLoop[ReviewRequest, Review]):
    def prepare(self, request: ReviewRequest) -> tuple[Prompt[Review], Session]:
        rules = Section("rules", "Rules", "Read every Python file, compile them, and report real problems only.")
        style = Section(
            "style",
            "Style",
            "Comments are one sentence.",
            summary="How to write comments.",
            visibility=Visibility.SUMMARY,
        )
        tools = (list_files, read_file, search_files, run_command)
        return Prompt(
            "review", f"Review: {request.title}", sections=(rules, style), tools=tools, output=Review
        ), Session()


def rule(asked: str, results: list[str]) -> ModelSaid:
    """What the local model does: open the style section, list, read each file, compile, and report what it saw."""
    if not results:
        return calls(("open_sections", {"keys": ["style"], "why": "to write comments well"}))
    if len(results) == 1:
        return calls(("list_files", {}))
    files = re.findall(r'"([^"]+\.py)"', results[1])
    read = results[2 : 2 + len(files)]
    if not read:
        return calls(*(("read_file", {"path": name}) for name in files), text="I read all of them.")
    if len(results) == 2 + len(files):
        return calls(("run_command", {"command": ["python3", "-m", "py_compile", *files]}))
    problems = {"except:": "A bare except hides every error.", "eval(": "eval() runs whatever the text says."}
    findings = [
        {"file": name, "line": int(line.split()[0]), "comment": comment}
        for name, text in zip(files, read, strict=True)
        for line in text.splitlines()
        for sign, comment in problems.items()
        if sign in line
    ]
    return says(as_json({"summary": f"{len(files)} files, {len(findings)} problems", "findings": findings}))


def main() -> None:
    options = arguments(__doc__ or "")
    with tempfile.TemporaryDirectory() as folder, model_url(options.base_url, rule, openai=True) as url:
        code = Path(folder, "code")
        code.mkdir()
        for name, text in SAMPLE.items():
            (code / name).write_text(text)
        with Engine.open(f"sqlite:///{folder}/work.db") as engine:
            requests = engine.mailbox("reviews", MainLoopRequest[ReviewRequest], MainLoopResult[Review])
            replies = engine.mailbox("review-replies", MainLoopResult[Review])
            runner = CommandRunner(code, allowed=frozenset({"python3"}), timeout_s=60)
            agent = CodeReviewAgent(
                adapter=OpenAIAdapter(options.model, base_url=url, api_key=options.api_key),
                requests=requests,
                config=MainLoopConfig(
                    budget=Budget(max_tool_calls=50), resources={Filesystem: Filesystem(code), CommandRunner: runner}
                ),
            )
            requests.send(MainLoopRequest(ReviewRequest("the billing change")), reply_to=replies)
            agent.run(max_iterations=1)
            (reply,) = replies.receive()
            result = reply.body
            reply.acknowledge()
    if result.output is None:
        sys.exit(f"no review: {result.error}")
    print(result.output.summary)
    for finding in result.output.findings:
        print(f"  {finding.file}:{finding.line}: {finding.comment}")
    print(f"  ({result.tool_calls} tool calls, {result.usage.total_tokens} tokens)")


if __name__ == "__main__":
    main()
