from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tenure.demo.consumer import Step
from tenure.demo.consumers import FRAMES, Story

ROOT = Path(__file__).resolve().parent.parent.parent


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}/src", "COLUMNS": "120"}
    return subprocess.run(
        [sys.executable, "-m", "tenure.demo", *arguments], capture_output=True, text=True, env=environment, timeout=250
    )


def test_the_demo_kills_a_consumer_and_shows_who_got_what_how_often() -> None:
    done = demo("consumers")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = re.findall(r"│\s+frame (\d+) │ (.+?)\s+│\s+(\d+) │ (\w+)\s+│", done.stdout)
    assert [int(number) for number, *_ in rows] == list(range(1, FRAMES + 1))
    (killed,) = [row for row in rows if "ben (killed)" in row[1]]
    assert int(killed[2]) >= 2
    assert killed[3] in ("anna", "cleo")
    assert "done: 12 of 12" in done.stdout
    assert "lost: 0; done twice: 0" in done.stdout


def test_a_story_that_did_not_come_true_is_told_apart() -> None:
    story = Story()
    for number in range(1, FRAMES + 1):
        story.hear(Step(number, "ben" if number == 2 else "anna", 1, done=False), 0.0)
        if number != 2:
            story.hear(Step(number, "anna", 1, done=True), 1.0)
    story.lost_by_victim = story.held_by("ben")
    assert story.lost_by_victim == {2}
    assert not story.complete
    assert not story.came_true()
    story.hear(Step(2, "cleo", 2, done=False), 2.0)
    story.hear(Step(2, "cleo", 2, done=True), 2.0)
    assert story.complete
    assert story.came_true()
    story.hear(Step(3, "cleo", 2, done=True), 3.0)
    assert not story.came_true()
