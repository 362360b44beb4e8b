"""Scraping with Celery: a task for each page, because a retry begins the whole task anew, and a chord that gathers the answers."""

from __future__ import annotations

import os
import urllib.error
import urllib.request

from celery import Celery, chord

app = Celery("scraper", broker=os.environ.get("BROKER", "redis://127.0.0.1:6379"))
app.conf.result_backend = os.environ.get("RESULTS", "redis://127.0.0.1:6379")
app.conf.task_acks_late = True
app.conf.task_reject_on_worker_lost = True
app.conf.worker_prefetch_multiplier = 1


class Gone(Exception):
    """A page that will not come back."""


@app.task(bind=True, max_retries=9, time_limit=60)
def fetch(self, url: str) -> tuple[str, int]:
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return url, len(answer.read(5_000_000))
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 429:
            raise self.retry(exc=error, countdown=float(error.headers.get("Retry-After", 60))) from error
        if error.code in (404, 410):
            raise Gone(f"{url} is gone") from error
        raise self.retry(exc=error, countdown=2**self.request.retries) from error
    except OSError as error:
        raise self.retry(exc=error, countdown=2**self.request.retries) from error


@app.task
def gather(pages: list[tuple[str, int]]) -> dict[str, int]:
    return dict(pages)


def scrape(urls: list[str]):
    return chord([fetch.s(url) for url in urls])(gather.s())
