"""Scraping that is polite: a page that is gone is not tried again, a site that says "later" is asked later, and a page that was read is read once."""

from __future__ import annotations

import urllib.error
import urllib.request

from tenure import Context, Permanent, RetryAfter, workflow


def fetch(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return len(answer.read(5_000_000))
    except urllib.error.HTTPError as error:
        error.close()  # it holds the connection
        if error.code == 429:
            raise RetryAfter(float(error.headers.get("Retry-After", 60)), f"{url} says later") from error
        if error.code in (404, 410):
            raise Permanent(f"{url} is gone") from error
        raise


@workflow(stall=60, max_attempts=10)
def scrape(ctx: Context, urls: list[str]) -> dict[str, int]:
    with ctx.depends("the site"):  # when it is down for most, nobody's clock runs
        return {url: ctx.step("fetch", fetch, url, key=url) for url in ctx.track(urls)}
