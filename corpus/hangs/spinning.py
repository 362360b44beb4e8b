"""Work that is busy, says so, and gets nowhere. The last ones claim progress that is none: nothing but their meaning tells them from work."""

from __future__ import annotations

import itertools
import time

from corpus.case import hang
from corpus.job import Job


@hang(
    "an agent that makes the same tool call again and again, and beats after each",
    "calls_the_same_tool",
    spins=True,
    short=True,
)
def agent_repeats_itself(job: Job) -> None:
    def calls_the_same_tool() -> None:
        while True:
            time.sleep(0.1)
            job.beat(7, 20, note="search('weather')")

    calls_the_same_tool()


@hang("an agent that alternates between two steps", "alternates", spins=True)
def ping_pong(job: Job) -> None:
    def alternates() -> None:
        for step in itertools.cycle((7, 8)):
            time.sleep(0.1)
            job.beat(step, 20)

    alternates()


@hang("stuck at 99 %", "stays_at_the_end", spins=True)
def last_percent(job: Job) -> None:
    def stays_at_the_end() -> None:
        while True:
            time.sleep(0.1)
            job.beat(fraction=0.6)

    stays_at_the_end()


@hang("each retry beats, and none succeeds", "retries_and_beats", spins=True)
def retry_storm_that_beats(job: Job) -> None:
    def retries_and_beats() -> None:
        while True:
            time.sleep(0.1)
            job.beat(note="retrying")

    retries_and_beats()


@hang("it saves the same state for ever", "saves_the_same_state", spins=True)
def same_checkpoint(job: Job) -> None:
    def saves_the_same_state() -> None:
        while True:
            time.sleep(0.3)
            job.checkpoint(6)
            job.beat()

    saves_the_same_state()


@hang("it logs the same line for ever", "logs_the_same_line", spins=True)
def same_log_line(job: Job) -> None:
    def logs_the_same_line() -> None:
        while True:
            time.sleep(0.3)
            job.log("waiting for the lock")
            job.beat()

    logs_the_same_line()


@hang("a batch that fails at the seventh item and starts over", "starts_over", spins=True)
def starts_over_for_ever(job: Job) -> None:
    def starts_over() -> None:
        while True:
            for item in range(1, 7):
                time.sleep(0.05)
                job.beat(item, 20)

    starts_over()


@hang("a poll that was not declared, for something that never comes", "sleeps_and_looks", spins=True)
def undeclared_poll(job: Job) -> None:
    def sleeps_and_looks() -> None:
        while True:
            job.sleep(0.5)

    sleeps_and_looks()


@hang("one declared silence after the other, and nothing in between", "declares_again")
def silence_after_silence(job: Job) -> None:
    def declares_again() -> None:
        while True:
            with job.silence(0.5, "one more"):
                time.sleep(0.5)

    declares_again()


@hang("a job that only ever beats, in a loop that never ends", "only_beats", spins=True, counts=False)
def beats_only(job: Job) -> None:
    def only_beats() -> None:
        while True:
            time.sleep(0.1)
            job.beat()

    only_beats()


@hang("each retry logs another line, with its number", "logs_each_retry", spins=True)
def retry_storm_that_logs(job: Job) -> None:
    def logs_each_retry() -> None:
        for number in itertools.count():
            time.sleep(0.2)
            job.log(f"attempt {number} failed: connection refused")
            job.beat()

    logs_each_retry()


@hang("the next page is always the same page, and each is counted", "counts_pages", spins=True)
def endless_pagination(job: Job) -> None:
    def counts_pages() -> None:
        for page in itertools.count(7):
            time.sleep(0.1)
            job.beat(page)

    counts_pages()


@hang("it saves the time of day as its state, for ever", "saves_the_time", spins=True)
def moving_checkpoint(job: Job) -> None:
    def saves_the_time() -> None:
        while True:
            time.sleep(0.3)
            job.checkpoint(time.time())
            job.beat()

    saves_the_time()
