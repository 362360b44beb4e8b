"""The first screen of `why` after each of twelve disasters: it must answer "who ended my job, and what do I do?".

`TENURE_GOLDEN=1 pytest tests/nodes/manager/test_disasters.py` writes the screens anew: read each against that question.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from tests.nodes.manager.disasters import DISASTERS, Stage
from tests.nodes.manager.harness import ask

from tenure.control.messages.jobs import AskWhy, WhyReply

GOLDEN = Path(__file__).parent / "golden"
SCREEN_LINES = 24
PAGE = Path(__file__).resolve().parents[3] / "docs" / "disasters.md"


def first_screen(name: str) -> str:
    async def play() -> str:
        stage = Stage()
        try:
            await stage.raise_curtain()
            await DISASTERS[name][0](stage, "encode-7")
            reply = await ask(stage.manager_now, AskWhy(job_id="encode-7"))
        finally:
            await stage.end()
        assert isinstance(reply, WhyReply)
        return "\n".join(reply.text.split("\n")[:SCREEN_LINES]).rstrip() + "\n"

    return asyncio.run(play())


@pytest.mark.parametrize("name", DISASTERS)
def test_the_first_screen_says_who_ended_the_job_and_what_to_do(name: str) -> None:
    _, who, what = DISASTERS[name]
    screen, path = first_screen(name), GOLDEN / f"{name}.txt"
    if os.environ.get("TENURE_GOLDEN"):
        path.write_text(screen)
    assert screen == path.read_text()
    answer, step = screen.split("\n")[:2]
    assert who in answer
    assert step.startswith("Next: ")
    assert what in step


HEAD = """# Twelve disasters

Who ended my job, and what do I do? For each of these the first lines of `tenure why JOB` and the first view of the job's page say so. Every transcript and every picture is taken by a test
(`tests/nodes/manager/test_disasters.py`, `tests/browser/test_disaster_pages.py`), on a real manager with a clock that the test moves; `tests/process/slots/test_faults.py` and `tests/browser/test_disasters.py` have real processes that hang, crash and run out of memory.
"""


def test_the_page_of_the_docs_shows_what_was_said() -> None:
    parts = [HEAD]
    for name in DISASTERS:
        title = name.replace("-", " ").capitalize().replace("in c", "in C")
        screen = (GOLDEN / f"{name}.txt").read_text()
        parts.append(
            f"\n## {title}\n\n```\n{screen}```\n\n![The page of that job: {screen.splitlines()[0]}](pictures/disasters/{name}.png)\n"
        )
    told = "".join(parts)
    if os.environ.get("TENURE_GOLDEN"):
        PAGE.write_text(told)
    assert told == PAGE.read_text()


def test_there_are_the_twelve_that_the_issue_names() -> None:
    assert len(DISASTERS) == 12
