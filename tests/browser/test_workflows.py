"""What workers serve, on the page, and a job that is started there: refused beside its field, and then done."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.browser.conftest import Look, Place
from tests.browser.devtools import Browser, Page
from tests.patience import wait_until
from tests.process.datacenter.conftest import Node

from tenure.client.client import Client
from tenure.jobs.states import JobState

pytestmark = pytest.mark.slow
PICTURES = Path(os.environ.get("TENURE_PICTURES", Path(__file__).resolve().parents[2] / "docs" / "pictures"))


@pytest.fixture(scope="module")
def place(new_place: Callable[[], Place]) -> Place:
    place = new_place()
    place.manager("m-1", "--term", "20")
    place.until_led()
    place.serve("--name", "worker-7", "--slots", "2")
    wait_until(lambda: bool(place.client.catalogue("resize").workflows), why=place.said)
    return place


async def fill(page: Page, field: str, text: str) -> None:
    """Types into a field, as somebody does who reaches it with the keyboard."""
    await page.run(f"document.getElementById('argument-{field}').focus()")
    await page.run("document.activeElement.select?.()")
    await page.write(text)


async def choose(page: Page, field: str, value: str) -> None:
    await page.run(f"document.getElementById('argument-{field}').value = {value!r}")


def beside(field: str) -> str:
    return f"document.getElementById('argument-{field}-wrong').innerText"


def test_a_workflow_is_started_from_its_form_after_the_door_refused_a_bad_argument(look: Look, place: Place) -> None:
    async def story(browser: Browser) -> str:
        async with browser.page(place.page("m-1", "#/workflows")) as page:
            await page.look(1_100, 1_000)
            await page.sees("Resizes a picture.")
            await page.sees("1 worker")
            await page.click("[data-workflow=resize] [data-act=submit]")
            await page.until("document.activeElement.id === 'argument-path'", "the first field has the focus")
            await fill(page, "path", "a.png")
            await fill(page, "width", "wide")
            await choose(page, "format", '"webp"')
            await choose(page, "sharp", "true")
            await fill(page, "tags", '["a", "b"]')
            await page.press("Enter")  # in a text of several lines it is a line
            await page.run("document.getElementById('argument-width').focus()")
            await page.press("Enter")
            await page.until(f"{beside('width')}.includes('should be an integer')", "the refusal beside its field")
            assert "argument 'width' is 'wide'" in await page.run(beside("width"))
            assert await page.run("document.activeElement.id") == "argument-width"
            assert await page.run("document.activeElement.getAttribute('aria-invalid')") == "true"
            assert await page.run(beside("path")) == ""
            if os.environ.get("TENURE_GOLDEN"):
                await page.picture(PICTURES / "start.png")
            await fill(page, "width", "640")
            await fill(page, "tags", "[oops")
            await page.run("document.getElementById('argument-width').focus()")
            await page.press("Enter")
            await page.until(f"{beside('tags')}.includes('This is no JSON')", "no JSON, said beside its field")
            await fill(page, "tags", '["a", "b"]')
            await page.run("document.getElementById('argument-width').focus()")
            await page.press("Enter")
            await page.until("location.hash.startsWith('#/job/resize-')", "the page of the new job")
            await page.until("document.querySelector('.title .state.completed')", "it is done")
            assert [one for one in page.complaints if "422" not in one] == []
            return str(await page.run("decodeURIComponent(location.hash.split('/')[2])"))

    view = place.client.job(look(story))
    assert view.state is JobState.COMPLETED
    assert view.workflows[0].result == "a.png 640 webp True ['a', 'b'] None"


def test_a_name_that_nobody_serves_is_refused_and_with_park_it_waits(look: Look, place: Place) -> None:
    async def story(browser: Browser) -> str:
        async with browser.page(place.page("m-1", "#/workflows?new=1")) as page:
            await page.until("document.activeElement.id === 'argument-name'", "the first field has the focus")
            await fill(page, "name", "resise")
            await page.press("Enter")
            await page.sees("Did you mean 'resize'?")
            await page.click("input[name=park]")
            await page.run("document.getElementById('argument-name').focus()")
            await page.press("Enter")
            await page.until("location.hash.startsWith('#/job/resise-')", "the page of the new job")
            await page.sees("a worker that serves 'resise'")
            return str(await page.run("decodeURIComponent(location.hash.split('/')[2])"))

    waiting = look(story)
    assert "a worker that serves 'resise'" in place.client.job(waiting).workflows[0].waits_for
    place.client.cancel(waiting)


def test_the_form_is_reached_and_sent_with_the_keyboard_alone(look: Look, place: Place) -> None:
    async def story(browser: Browser) -> str:
        async with browser.page(place.page("m-1", "#/workflows")) as page:
            await page.sees("Resizes a picture.")
            for _ in range(60):
                await page.press("Tab")
                if await page.run("document.activeElement.closest('[data-workflow=resize]') !== null"):
                    break
            await page.press("Enter")
            await page.until("document.activeElement.id === 'argument-path'", "the first field has the focus")
            await page.write("b.png")
            await page.press("Tab")
            await page.write("320")
            await page.press("Enter")
            await page.until("document.querySelector('.title .state.completed')", "it is done")
            return str(await page.run("decodeURIComponent(location.hash.split('/')[2])"))

    view = place.client.job(look(story))
    assert view.workflows[0].result == "b.png 320 png None [] None"


def test_at_a_gate_a_workflow_starts_where_its_row_was_taken_and_what_it_waits_for_is_sent_from_its_form(
    look: Look, place: Place
) -> None:
    arguments = ("--datacenter", f"local={place.addresses['m-1']}", "--engine", f"sqlite:///{place.folder}/gate.db")
    gate = Node(place.folder, "g-1", "gate", *arguments, "--name", "g-1", "--port", "0", "--term", "20")
    place.joined("g-1", gate)

    async def story(browser: Browser) -> str:
        async with browser.page(place.page("g-1", "#/workflows")) as page:
            await page.sees("Resizes a picture.")
            await page.sees("in local")
            await page.click("[data-workflow=resize] [data-act=submit]")
            await page.until("document.activeElement.id === 'argument-path'", "the first field has the focus")
            await page.write("c.png")
            await fill(page, "width", "64")
            await page.press("Enter")
            await page.until("location.hash.startsWith('#/job/resize-')", "the page of the new job")
            await page.until("document.querySelector('.title .state.completed')", "it is done")
            return str(await page.run("decodeURIComponent(location.hash.split('/')[2])"))

    async def signals(browser: Browser) -> None:
        async with browser.page(place.page("g-1", f"#/job/{waiting}")) as page:
            await page.sees("signal 'approved'")
            await fill(page, "asks_a_person-by", "ada")
            await fill(page, "asks_a_person-amount", "much")
            await page.press("Enter")
            refused = f"{beside('asks_a_person-amount')}.includes(\"field 'payload.amount' is 'much'\")"
            await page.until(refused, "the refusal beside its field")
            assert await page.run("document.activeElement.id") == "argument-asks_a_person-amount"
            await fill(page, "asks_a_person-amount", "7")
            await page.press("Enter")
            await page.sees("signal 'sure'")
            await choose(page, "asks_a_person-payload", "true")
            await page.click("[data-signal=sure] [data-act=signal_job]")
            await page.sees("signal 'anything'")
            await fill(page, "asks_a_person-payload", '[1, "b"]')
            await page.click("[data-signal=anything] [data-act=signal_job]")
            await page.until("document.querySelector('.title .state.completed')", "it is done")
            assert [one for one in page.complaints if "422" not in one] == []

    started = look(story)
    assert place.client.job(started).workflows[0].result == "c.png 64 png None [] None"
    with Client([place.addresses["g-1"]]) as asks_the_gate:
        waiting = asks_the_gate.submit("asks_a_person").id
        look(signals)
        said = asks_the_gate.job(waiting).workflows[0].result
    assert said == "ada 7 True [1, 'b']"
    gate.kill()
    del place.managers["g-1"], place.addresses["g-1"]
