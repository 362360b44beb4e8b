"""What somebody sees and does at the dashboard of a real manager, in a real browser."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from tests.browser.conftest import Look, Place
from tests.browser.devtools import Browser, Page
from tests.patience import wait_until
from tools.servers.process import free_port

from tenure.jobs.states import JobState

pytestmark = pytest.mark.slow
PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"

MUCH = "document.querySelector('[data-job=%s] [data-kind=%s] .much')"
NASTY = "<img src=x onerror=\"window.pwned=1;alert('pwned')\"><script>window.pwned=2</script>"


@pytest.fixture(scope="module")
def place(new_place: Callable[[], Place]) -> Place:
    """A leader, a standby and a worker."""
    place = new_place()
    place.manager("m-1", "--term", "20")  # no election while we look, however busy the machine is
    place.until_led()
    place.manager("m-2", "--term", "20")
    place.serve("--name", "worker-7", "--slots", "4")
    return place


def seconds(said: str) -> int:
    """`1 min 59 s` as a number."""
    found = re.search(r"(?:(\d+) min )?(\d+) s", said)
    assert found is not None, said
    return int(found[1] or 0) * 60 + int(found[2])


def only_from(page: Page, place: Place, name: str) -> None:
    """Nothing was asked of anybody but the manager that gave out the page, and no script complained."""
    assert {url.split("/")[2] for url in page.requested if url.startswith("http")} == {place.addresses[name]}
    assert page.complaints == []


def test_a_job_appears_advances_and_its_time_counts_down(look: Look, place: Place) -> None:
    told = place.gate_file()

    async def story(browser: Browser) -> None:
        async with browser.page(place.page("m-1", "#/jobs")) as page:
            await page.sees("live")
            await asyncio.to_thread(
                place.client.submit, "silent_until", told=str(told), job_id="count-down", timeout=3_600
            )
            stall, row = MUCH % ("count-down", "stall"), "document.querySelector('[data-job=count-down]')"
            await page.until(f"{row}?.querySelectorAll('.left').length === 1", "one chip: the grant that ends next")
            await page.until(f"{row}.querySelector('button.more')", "the button that shows the rest")
            await page.run(f"{row}.querySelector('button.more').click()")
            await page.until(f"{stall} && {stall}.textContent", "the time left until it must beat")
            for kind in ("lease", "healthcheck", "stuck", "deadline"):
                await page.until(MUCH % ("count-down", kind), f"the time left of {kind}")
            first = seconds(await page.run(f"{stall}.textContent"))
            assert first <= 120
            await page.until(f"{stall}.textContent !== '' && parseInt({stall}.textContent) >= 0")
            read = f"{stall}.textContent.match(/(?:(\\d+) min )?(\\d+) s/).slice(1).map(n => +(n || 0))"
            await page.until(f"(([m, s]) => m * 60 + s <= {first} - 3)({read})", "three seconds less")
            assert "running" in await page.run("document.querySelector('[data-job=count-down]').innerText")
            told.touch()
            await page.until("document.querySelector('[data-job=count-down]').innerText.includes('completed')")
            assert await page.run("document.querySelector('[data-job=count-down] .left')") is None
            only_from(page, place, "m-1")

    look(story)


def test_a_job_is_cancelled_by_a_click_and_not_by_half_a_click(look: Look, place: Place) -> None:
    told = place.gate_file()
    place.client.submit("beat_until", told=str(told), job_id="to-cancel")

    async def story(browser: Browser) -> None:
        # From the standby: it has the leader do what only the leader can.
        async with browser.page(place.page("m-2", "#/job/to-cancel")) as page:
            await page.until("document.querySelector('.workflow .state.running')", "it runs")
            await page.has(".left[data-kind=stall]")
            await page.click("[data-act=cancel]")
            await page.sees("Cancel this job?")
            await page.press("Escape")
            await page.unsees("Cancel this job?")
            assert (await asyncio.to_thread(place.client.job, "to-cancel")).state is JobState.RUNNING
            assert await page.run("document.activeElement.dataset.act") == "cancel"  # the focus is back
            await page.click("[data-act=cancel]")
            await page.click("dialog input")
            await page.write("wrong input file")
            await page.click("dialog button.act")
            await page.until("document.querySelector('.title .state.cancelled')", "it is cancelled")
            await page.sees("wrong input file")
            await page.has("[data-act=retry]")
            assert await page.run("document.querySelector('[data-act=cancel]')") is None
            only_from(page, place, "m-2")

    look(story)
    found = place.client.job("to-cancel")
    assert found.state is JobState.CANCELLED
    assert "wrong input file" in found.reason


def test_a_job_is_paused_given_time_and_resumed_by_clicks_each_with_a_reason(look: Look, place: Place) -> None:
    told = place.gate_file()
    place.client.submit("beat_until", told=str(told), job_id="steer-me", timeout=3_600)
    wait_until(lambda: place.client.job("steer-me").workflows[0].state == "running", why=place.said)

    async def press(page: Page, label: str, done: str) -> None:
        chosen = f"[...document.querySelectorAll('.actions button')].find(one => one.textContent === {label!r})"
        await page.until(chosen, f"the button {label}")
        await page.run(f"{chosen}.click()")
        await page.until("document.querySelector('dialog[open] input[name=reason]')", "the question why")
        await page.run("document.querySelector('dialog button[type=submit]').click()")
        assert await page.run("document.querySelector('dialog').open"), "without a reason nothing is done"
        await page.run("document.querySelector('dialog input[name=reason]').value = 'the licence server is down'")
        await page.run("document.querySelector('dialog button[type=submit]').click()")
        await page.until(f"document.querySelector('.said').innerText.includes({done!r})", done)

    async def story(browser: Browser) -> None:
        async with browser.page(place.page("m-1", "#/job/steer-me")) as page:
            await page.look(1_100, 800)
            await page.sees("live")
            await press(page, "Give it time", "30 minutes more")
            await press(page, "Pause", "is paused")
            await page.sees("paused by dashboard")
            await page.until("document.querySelector('.workflow .state.pending')", "its attempt has made way")
            await page.until(
                "document.querySelector('.answer')?.innerText.includes('tenure resume steer-me')", "the next step"
            )
            if os.environ.get("TENURE_GOLDEN"):
                await page.picture(PICTURES / "paused.png")
            await press(page, "Resume", "goes on")
            await page.until("document.querySelector('.workflow .state.running')", "it goes on")
            told.touch()
            await page.until("document.querySelector('.title .state.completed')", "its end")
            assert page.complaints == []

    look(story)
    assert "the licence server is down" in place.client.why("steer-me").text


def test_all_that_a_filter_shows_is_cancelled_and_retried_at_once_after_a_question_that_names_it(
    look: Look, place: Place
) -> None:
    told = place.gate_file()
    for number in (1, 2):
        place.client.submit("beat_until", told=str(told), job_id=f"bulk-{number}")

    async def story(browser: Browser) -> None:
        async with browser.page(place.page("m-1", "#/jobs?name=bulk-")) as page:
            await page.sees("Cancel these 2")
            await page.click("[data-act=cancel]")
            await page.sees("bulk-2, bulk-1")
            await page.click("dialog button.act")
            await page.sees("2 jobs done.")
            await page.sees("Retry these 2")
            await page.click("[data-act=retry]")
            await page.click("dialog button.act")
            await page.sees("bulk-1~2")
            assert page.complaints == []

    look(story)
    told.touch()
    for number in (1, 2):
        assert place.client.wait(f"bulk-{number}~2", 180).state is JobState.COMPLETED


def test_whatever_work_says_of_itself_stays_text(look: Look, place: Place) -> None:
    client = place.client
    unseen = f"{NASTY}\u202egnp.exe\x1b[2J"  # reads as exe.png where the marks are obeyed
    client.submit("echo", text=unseen, job_id="nasty", name=NASTY, labels={"note": NASTY})
    client.submit("echo", text=NASTY, fails=True, job_id="nasty-fails", name="fails", max_attempts=1)
    odd = f"odd{NASTY}"
    client.submit("echo", text="x", job_id=odd, queue="default")
    told = place.gate_file()
    client.submit("noting_until", told=str(told), text=NASTY, job_id="nasty-note")
    for job_id in ("nasty", "nasty-fails", odd):
        wait_until(lambda job_id=job_id: client.job(job_id).ended, why=place.said)

    async def story(browser: Browser) -> None:
        async with browser.page(place.page("m-1", "#/overview")) as page:
            await page.sees("badly in the last 15 minutes")
            await page.go(place.page("m-1", "#/jobs"))
            await page.sees("<img src=x onerror")
            for job_id in ("nasty", "nasty-fails", odd):
                await page.go(place.page("m-1", f"#/job/{quote(job_id, safe='')}"))
                await page.until(f"document.querySelector('.facts').innerText.includes({json.dumps(job_id)})")
                await page.sees("Why it is so")
            await page.go(place.page("m-1", "#/job/nasty"))
            await page.until(
                "document.querySelector('.result').textContent.includes('<script>')", "the result, as text"
            )
            await page.until("document.querySelector('.log')?.textContent.includes('<script>')", "the log, as text")
            assert "\\u202egnp.exe" in await page.run("document.querySelector('.result').textContent")
            assert not await page.run(r"/[\u202e\u001b]/.test(document.body.textContent)")
            await page.go(place.page("m-1", "#/workers"))
            await page.sees("nasty-note")
            await page.until("document.querySelector('main').textContent.includes('onerror')", "the note, as text")
            told.touch()
            await page.go(place.page("m-1", "#/job/" + quote(NASTY, safe="")))
            await page.sees("job ")
            assert await page.run("window.pwned") is None
            assert await page.run("document.querySelectorAll('main img, main script').length") == 0
            assert page.dialogs == []
            assert [one for one in page.complaints if "404" not in one] == []

    look(story)


def test_a_reader_sees_everything_and_no_button_and_the_token_stays_in_the_tab(
    look: Look, new_place: Callable[[], Place]
) -> None:
    place = new_place()
    tokens = place.folder / "tokens.toml"
    roles = {"ann": "reader", "bob": "operator", "worker": "worker"}
    tokens.write_text(
        "".join(
            f'[[tokens]]\nname = "{name}"\nrole = "{role}"\nsha256 = "{hashlib.sha256(f"{name}-secret".encode()).hexdigest()}"\n'
            for name, role in roles.items()
        )
    )
    place.manager("m-1", "--tokens", str(tokens))
    place.until_said("leads with epoch")
    base = place.page("m-1")

    async def enter(page: Page, token: str) -> None:
        await page.has("#token")
        await page.click("#token")
        await page.write(token)
        await page.press("Enter")

    async def story(browser: Browser) -> None:
        async with browser.page(f"{base}#/queues") as page:
            await enter(page, "wrong-secret")
            await page.sees("This token is not known here.")
            await enter(page, "ann-secret")
            await page.sees("Dead letters are shown to operators")
            await page.sees("ann")
            await page.go(f"{base}#/overview")
            await page.sees("no other manager would take over")
            assert await page.run("document.querySelectorAll('[data-act]').length") == 0
            kept = "[sessionStorage.length, localStorage.length, document.cookie, location.href.includes('secret')]"
            assert await page.run(kept) == [1, 0, "", False]
            await page.run("location.reload()")
            await page.sees("no other manager would take over")
        async with browser.page(f"{base}#/queues") as page:  # another tab is another browser as far as the token goes
            await enter(page, "bob-secret")
            await page.sees("Nothing was given up")
            await page.until(
                "[...document.querySelectorAll('button')].find(one => one.innerText === 'Forget token').click() || 1"
            )
            await page.has("#token")
            assert await page.run("sessionStorage.length") == 0

    look(story)


def test_a_page_says_since_when_it_is_not_connected_and_goes_on_by_itself(
    look: Look, new_place: Callable[[], Place]
) -> None:
    place = new_place()
    port = free_port()
    place.manager("m-1", "--port", str(port))
    place.until_led()

    async def story(browser: Browser) -> None:
        async with browser.page(place.page("m-1", "#/jobs")) as page:
            await page.sees("There is no job yet.")
            await page.until("document.querySelector('.connection.up')", "it is live")
            await asyncio.to_thread(place.managers["m-1"].kill)
            await page.sees("Not connected since")
            await page.sees("What you see is from before.")
            assert await page.run("document.documentElement.classList.contains('stale')")
            await asyncio.to_thread(place.manager, "m-1", "--port", str(port))
            await asyncio.to_thread(place.until_led)
            await page.until(
                "document.querySelector('.connection.up') && !document.querySelector('.banner')", "live again"
            )
            await asyncio.to_thread(place.new_client().submit, "echo", text="hello", job_id="after-restart")
            await page.sees("after-restart")
            assert not await page.run("document.documentElement.classList.contains('stale')")

    look(story)
