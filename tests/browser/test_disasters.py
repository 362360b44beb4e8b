"""The page of a job after a disaster, in a real browser: its first view says who ended the job and what to do. The pictures in the docs are these."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.browser.conftest import Look, Place
from tests.browser.devtools import Browser
from tests.patience import wait_until

pytestmark = pytest.mark.slow
SHOWN = ("stall-in-c", "segfault")
"""The pictures that the docs keep."""
PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"

DISASTERS: dict[str, tuple[str, dict[str, object], str, str]] = {
    "stall-in-c": ("hold_the_gil", {}, "It stopped beating, so Tenure killed it", "in hold_the_gil"),
    "segfault": ("crash_in_c", {}, "Native code crashed its process", "in crash_in_c"),
    "dead-provider": ("ask_a_dead_provider", {}, "The provider of the model failed it", "in ask_a_dead_provider"),
    "memory-limit": ("eat_memory", {}, "It ran out of the memory that it may have", "in eat_memory"),
    "exit": ("leave", {}, "Your code ended its own process", "exit code: 17"),
}
"""Maps each disaster to its workflow, the arguments, the answer, and a piece of the evidence."""


@pytest.fixture(scope="module")
def place(new_place: Callable[[], Place]) -> Place:
    place = new_place()
    place.manager("m-1", "--term", "20")
    place.until_led()
    place.serve("--name", "worker-3", "--slots", "4", "--stall", "1", "--memory-limit", "600")
    return place


def test_the_first_view_of_each_disaster_says_who_ended_it_and_what_to_do(look: Look, place: Place) -> None:
    for name, (workflow, arguments, _, _) in DISASTERS.items():
        place.client.submit(workflow, arguments, job_id=name, max_attempts=1)
    for name in DISASTERS:
        wait_until(lambda name=name: place.client.job(name).ended, why=place.said)

    async def story(browser: Browser) -> None:
        async with browser.page(place.page("m-1", "#/jobs")) as page:
            await page.look(1_100, 800)
            for name, (_, _, answer, evidence) in DISASTERS.items():
                await page.go(place.page("m-1", f"#/job/{name}"))
                await page.until(f"document.querySelector('.answer')?.innerText.includes({answer!r})", answer)
                card = await page.run("document.querySelector('.answer').innerText")
                assert evidence in card, card
                assert f"tenure retry {name}" in card
                top = await page.run("document.querySelector('.answer .headline').getBoundingClientRect().top")
                assert 0 < top < 400, "the answer is on the first screen"
                if os.environ.get("TENURE_GOLDEN") and name in SHOWN:
                    PICTURES.mkdir(exist_ok=True)
                    await asyncio.sleep(0.3)  # the page has drawn itself before the picture is taken
                    await page.picture(PICTURES / f"{name}.png")
            assert page.complaints == []

    look(story)
