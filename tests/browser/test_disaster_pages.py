"""The page of a job after each of the twelve disasters: its first view answers "who ended my job, and what do I do?".

The disasters are played in this process, on a real manager with a manual clock behind a real port (`tests/nodes/manager/disasters.py`), so the pictures
differ only when the page does. `TENURE_GOLDEN=1` writes them into docs/pictures/disasters: look at each. `test_disasters.py` has some of them by real processes.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from tests.browser.conftest import Look
from tests.browser.devtools import Browser
from tests.browser.stage import IDS, all_disasters
from tests.nodes.manager.disasters import DISASTERS

pytestmark = pytest.mark.slow
PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures" / "disasters"
WIDE, HIGH = 1_000, 700


def test_the_first_view_of_each_disaster_says_who_ended_it_and_what_to_do(look: Look) -> None:
    async def story(browser: Browser) -> None:
        async with all_disasters() as base, browser.page(base) as page:
            await page.look(WIDE, HIGH)
            for name, (_, who, what) in DISASTERS.items():
                await page.go(f"{base}#/job/{IDS[name]}")
                await page.until(f"document.querySelector('.answer')?.innerText.includes({who!r})", who)
                step = "document.querySelector('.answer .step')"
                assert what in await page.run(f"{step}.innerText"), name
                assert await page.run(f"{step}.getBoundingClientRect().bottom") < HIGH, (
                    "the next step is on the first screen"
                )
                if os.environ.get("TENURE_GOLDEN"):
                    PICTURES.mkdir(exist_ok=True, parents=True)
                    await asyncio.sleep(0.3)  # the page has drawn itself before the picture is taken
                    await page.picture(PICTURES / f"{name}.png")
            if os.environ.get("TENURE_GOLDEN"):
                await page.look(1_280, 900)
                await page.go(f"{base}#/overview")
                await page.sees("Time left, the shortest first")
                await asyncio.sleep(0.5)
                await page.picture(PICTURES.parents[1] / "dashboard.png")
            assert page.complaints == []

    look(story)
