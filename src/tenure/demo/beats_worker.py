"""One worker process of the demonstration: takes jobs from a SQLite file, and reports each step to a second mailbox there."""

from __future__ import annotations

import os
import sys
from typing import Any

import msgspec

from tenure.beat import Heartbeat
from tenure.clock import SystemClock
from tenure.engines.contracts import Engine, Mailbox, Message
from tenure.work import FunctionLoop, LoopGroup

LEASE_S = 3.0
STALL_S = 2.0


class Job(msgspec.Struct, frozen=True):
    """What to do: so many steps of so many seconds. `hang_at` is the step at which the first delivery stops beating."""

    name: str
    steps: int
    step_s: float = 0.1
    hang_at: int | None = None


class Step(msgspec.Struct, frozen=True):
    """What a worker reports."""

    job: str
    worker: str
    pid: int
    delivery: int
    done: int
    steps: int


def main() -> None:
    """`python -m tenure.demo.beats_worker URL NAME`"""
    url, name = sys.argv[1:]
    clock = SystemClock()
    with Engine.open(url) as engine:
        reports: Mailbox[Step, Any] = engine.mailbox("steps", body=Step)

        def work(message: Message[Job, Any], heartbeat: Heartbeat) -> None:
            job = message.body
            for step in range(job.steps + 1):
                reports.send(Step(job.name, name, os.getpid(), message.delivery_count, step, job.steps))
                if step == job.hang_at and message.delivery_count == 1:
                    hang(clock)
                if step < job.steps:
                    clock.sleep(job.step_s)
                    heartbeat.beat(progress=(step + 1) / job.steps, note=f"step {step + 1} of {job.steps}")

        loop = FunctionLoop(engine.mailbox("jobs", body=Job), work, name=name)
        LoopGroup(
            [loop],
            visibility_timeout=LEASE_S,
            wait_time_seconds=0.5,
            watchdog_threshold=STALL_S,
            watchdog_interval=0.2,
        ).run()


def hang(clock: SystemClock) -> None:
    """What no timeout of the work's own would end."""
    clock.sleep(3_600)


if __name__ == "__main__":
    main()
