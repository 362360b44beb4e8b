"""One consumer of the story `consumers`: `python -m tenure.demo.consumer URL NAME WORK_S LEASE_S`.

It tells of each delivery before it works on it, so that the story knows what a killed one held. The answer and the
acknowledgement are one step: whoever is killed has either done both or neither.
"""

from __future__ import annotations

import sys

import msgspec

from tenure.clock import SystemClock
from tenure.engines import Engine, Mailbox


class Frame(msgspec.Struct, frozen=True):
    """A piece of work."""

    number: int


class Step(msgspec.Struct, frozen=True):
    """What a consumer tells of a frame: that it was given to it, or that it is done."""

    frame: int
    who: str
    delivery: int
    done: bool


def consume(url: str, name: str, work_s: float, lease_s: float) -> None:
    clock = SystemClock()
    with Engine.open(url, clock=clock) as engine:
        frames: Mailbox[Frame, Step] = engine.mailbox("frames", Frame, Step)
        steps: Mailbox[Step, None] = engine.mailbox("steps", Step)
        while True:
            for message in frames.receive(1, lease_s, wait_time_seconds=60):
                number, delivery = message.body.number, message.delivery_count
                steps.send(Step(number, name, delivery, done=False))
                clock.sleep(work_s)
                message.settle(Step(number, name, delivery, done=True))


if __name__ == "__main__":
    consume(sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4]))
