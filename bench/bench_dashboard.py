"""What the dashboard costs the browser that shows it: a list of a thousand jobs, quiet, and while a hundred more come each second.

The page's own main thread is measured, in processor time by Chromium's own counters, so that a busy machine does not count. The bars: a list in which nothing changes
takes at most a fifth of a core, one in which everything moves at most six tenths: then frames are left for whoever scrolls. How long the worst frame took is told
and has no bar of its own: on a shared machine it is the machine's.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

from tests.browser.devtools import Browser, Page, browser
from tests.nodes.served import Served
from tools.servers.chromium import environment, program
from tools.servers.process import CannotStart

from bench.harness import Report

ROWS = 1_000
EACH_SECOND = 100
LOOK_S = 6
_FRAMES = """new Promise((done) => {
    let last = performance.now(), worst = 0;
    const begun = last;
    const frame = (now) => {
        worst = Math.max(worst, now - last);
        last = now;
        if (now - begun < LOOK * 1000) requestAnimationFrame(frame); else done(worst);
    };
    requestAnimationFrame(frame);
})""".replace("LOOK", str(LOOK_S))


def run(report: Report) -> None:
    try:
        chromium = program()
    except CannotStart as reason:
        report.note(f"nothing was measured: {reason}")
        return

    async def main() -> None:
        async with browser(chromium, environment(chromium)) as one:
            await measure(report, one, node)

    with Served() as node:
        submit(node, "first", ROWS)
        asyncio.run(main())


async def measure(report: Report, one: Browser, node: Served) -> None:
    async with one.page() as page:
        await page.tell("Performance.enable", timeDomain="threadTicks")
        begun = time.perf_counter()
        await page.go(f"http://{node.host}/#/jobs?limit={ROWS}")
        await page.until(f"document.querySelectorAll('.row').length > {ROWS}")
        report.value(f"{ROWS:,} jobs are there after", time.perf_counter() - begun, "s")
        share, worst = await cost(page)
        report.value(f"{ROWS:,} jobs, nothing changes", share, "of a core", most=0.2)
        report.value("worst frame meanwhile", worst, "ms")
        stop = threading.Event()
        busy = threading.Thread(target=churn, args=(node, stop))
        busy.start()
        try:
            share, worst = await cost(page)
        finally:
            stop.set()
            busy.join()
        report.value(f"{ROWS:,} jobs, {EACH_SECOND} more each second", share, "of a core", most=0.6)
        report.value("worst frame meanwhile", worst, "ms")


async def cost(page: Page) -> tuple[float, float]:
    """The share of a core that the page's main thread takes, and the worst frame, in ms."""
    before, begun = await spent(page), time.perf_counter()
    worst = await page.run(_FRAMES)
    return (await spent(page) - before) / (time.perf_counter() - begun), worst


async def spent(page: Page) -> float:
    told: list[dict[str, Any]] = (await page.tell("Performance.getMetrics"))["metrics"]
    return float(next(one["value"] for one in told if one["name"] == "TaskDuration"))


def churn(node: Served, stop: threading.Event) -> None:
    number = 0
    while not stop.is_set():
        submit(node, f"more-{number}", EACH_SECOND // 5)
        number += 1
        stop.wait(0.2)


def submit(node: Served, name: str, count: int) -> None:
    workflows = [{"name": "w", "function": "encode"}]
    submissions = [{"job_id": f"{name}-{index}", "workflows": workflows} for index in range(count)]
    for begin in range(0, count, 500):
        node.ask("/v1/submit_many", {"submissions": submissions[begin : begin + 500]})
