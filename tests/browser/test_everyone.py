"""The page for everybody: with a keyboard, a screen reader, a phone, and with 10,000 jobs. axe-core finds what keeps people out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.browser.conftest import Look
from tests.browser.devtools import Browser, Page
from tests.browser.stage import IDS, all_disasters, many_jobs
from tools.servers.process import CannotStart

from tools.servers import axe

pytestmark = pytest.mark.slow
PAGES = {
    "#/overview": "needs",
    "#/jobs": "12 jobs fit",
    f"#/job/{IDS['stall-in-c']}": "It stopped beating",
    f"#/job/{IDS['lost-lease']}": "Attempts over workers",
    "#/workers": "worker-3",
    "#/workflows": "What workers serve",
    "#/workflows?new=1": "no worker has registered",
    "#/queues": "Nothing was given up",
    "#/schedules": "Nothing is scheduled",
}
"""Maps each page to words that it shows once it is drawn."""
PHONE = (375, 740)


async def drawn(page: Page, base: str, path: str, words: str) -> None:
    await page.go(base + path)
    await page.sees(words)
    await page.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


async def violations(page: Page) -> list[str]:
    """What axe-core finds by the rules of WCAG 2.1 A and AA and by its best practices."""
    found = await page.run("axe.run(document).then((found) => JSON.stringify(found.violations))")
    rules: list[dict[str, Any]] = json.loads(found)
    return [f"{one['id']}: {one['help']}: {node['html'][:200]}" for one in rules for node in one["nodes"]]


def test_axe_finds_nothing_on_any_page_light_dark_or_on_a_phone_and_nothing_is_wider_than_the_phone(look: Look) -> None:
    try:
        script = axe.script()
    except CannotStart as reason:
        pytest.skip(f"no axe-core: {reason}")

    async def story(browser: Browser) -> None:
        async with all_disasters() as base, browser.page(base) as page:
            await page.sees("live")
            await page.run(f"{script};0")
            found: dict[str, list[str]] = {}
            for (width, height), dark in (((1_280, 900), False), (PHONE, True)):
                await page.look(width, height, dark=dark)
                for path, words in PAGES.items():
                    await drawn(page, base, path, words)
                    found[f"{path} at {width}"] = await violations(page)
                    wide = await page.run("document.documentElement.scrollWidth - innerWidth")
                    assert wide <= 0, f"{path} is {wide} px wider than {width}"
            assert {path: wrong for path, wrong in found.items() if wrong} == {}
            assert page.complaints == []

    look(story)


def test_the_times_of_a_job_and_its_buttons_are_reached_with_the_keyboard_alone(look: Look) -> None:
    async def tab_to(page: Page, what: str) -> None:
        for _ in range(80):
            await page.press("Tab")
            if await page.run(f"document.activeElement.matches({what!r})"):
                return
        pytest.fail(f"{what} is not reached")

    async def story(browser: Browser) -> None:
        async with all_disasters() as base, browser.page(base) as page:
            await drawn(page, base, "#/jobs?state=running", IDS["lost-lease"])
            row = f"[data-job={IDS['lost-lease']}]"
            await tab_to(page, f"{row} button.more")
            await page.press("Enter")
            await page.until(f"document.querySelectorAll('{row} .left').length > 1", "all grants of the job")
            assert await page.run("document.activeElement.getAttribute('aria-expanded')") == "true"
            told = await page.run(f"[...document.querySelectorAll('{row} .left')].map((one) => one.title)")
            # Each says in words what happens when it is over.
            assert all(len(words.split()) > 5 for words in told), told
            await drawn(page, base, f"#/job/{IDS['lost-lease']}", "Attempts over workers")
            await tab_to(page, "[data-act=cancel]")
            await page.press("Enter")
            await page.until("document.querySelector('dialog[open]')?.contains(document.activeElement)", "the question")
            await page.press("Escape")
            await page.until("document.activeElement.dataset.act === 'cancel'", "the focus is back")

    look(story)


def test_ten_thousand_jobs_are_listed_filtered_and_named_before_anything_is_done_to_them(look: Look) -> None:
    async def story(browser: Browser) -> None:
        async with many_jobs(10_000) as base, browser.page(base) as page:
            await drawn(page, base, "#/jobs?limit=1000", "10,000 jobs fit")
            assert await page.run("document.querySelectorAll('.row[data-job]').length") == 1_000
            await page.run(
                "[...document.querySelectorAll('.pages button')].find((one) => one.innerText === 'Older').click()"
            )
            await page.until("document.querySelector('[data-job=many-8999]')", "the second thousand")
            await drawn(page, base, "#/jobs?name=many-777", "11 jobs fit")
            await drawn(page, base, "#/jobs?name=many-", "10,000 jobs fit")
            await page.click("[data-act=cancel]")
            await page.sees("Cancel 10,000 jobs?")
            await page.sees("many-9999, many-9998")
            await page.sees("and 9,988 more")
            await page.press("Escape")
            assert page.complaints == []

    look(story)
