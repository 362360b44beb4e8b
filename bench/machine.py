"""How much of the machine others used while we measured: what decides whether a bar on a time on the wall says anything.

Over a stretch of time it is what all processors did (`/proc/stat`) less what this process and everything below it did, in cores. Unlike the load
average it belongs to that stretch alone, and what we start ourselves is not in it.
"""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path
from typing import NamedTuple

BUSY_CORES = 0.25
"""Others who use more than this make the machine too busy to judge a time on the wall."""
SHORTEST_S = 0.3
"""Processor time is counted in hundredths of a second: a shorter stretch says nothing, and the answer is that about the one before."""

_TICKS = os.sysconf("SC_CLK_TCK")


class Mark(NamedTuple):
    at: float
    everybody_s: float
    ours_s: float


class Others:
    """Asked again and again: each answer is about the time since the one before."""

    def __init__(self) -> None:
        self._since, self._answer = _mark(), 0.0
        time.sleep(SHORTEST_S)
        self.cores()

    def cores(self) -> float:
        """How many cores' worth of work others did since the last time this was asked."""
        now = _mark()
        span = now.at - self._since.at
        if span >= SHORTEST_S:
            used = (now.everybody_s - self._since.everybody_s) - (now.ours_s - self._since.ours_s)
            self._since, self._answer = now, max(0.0, used / span)
        return self._answer


def load() -> str:
    """The load averages, in words: what the whole machine has been doing, we included."""
    one, five, fifteen = os.getloadavg()
    return f"load average {one:.1f}, {five:.1f}, {fifteen:.1f} on {os.cpu_count()} cores"


def _mark() -> Mark:
    return Mark(time.monotonic(), _everybody_s(), _ours_s())


def _everybody_s() -> float:
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    except FileNotFoundError:  # no Linux: the load average is all that there is
        return os.getloadavg()[0] * time.monotonic()
    user, nice, system, _idle, _waits, irq, softirq, steal = (int(field) for field in fields[:8])
    return (user + nice + system + irq + softirq + steal) / _TICKS


def _ours_s() -> float:
    """Processor time of this process, of all that it waited for, and of all that still run below it."""
    own, ended = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime
    parents, ticks = dict[int, int](), dict[int, int]()
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended just now
        number = int(entry.parent.name)
        parents[number] = int(fields[1])
        ticks[number] = sum(int(field) for field in fields[11:15])  # with what it waited for itself
    below = {os.getpid()}
    for _ in range(10):  # generations
        below |= {number for number, parent in parents.items() if parent in below}
    return spent + sum(ticks[number] for number in below if number != os.getpid() and number in ticks) / _TICKS
