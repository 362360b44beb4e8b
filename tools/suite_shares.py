"""The time that each suite may take, the number of processes it runs in, and the suites that run beside the others.

`make test` has to end within 12 minutes on two idle cores (decision 0280). A suite that takes longer than its share says so at the end of the
run; it fails nothing, because a machine that is busy with other work makes every suite slow. `Machine` tells the two apart.
"""

from __future__ import annotations

import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path

MOST_S = 720.0
BUSY = 0.15
"""Above this part of the machine's CPU time in other hands, a suite that is late is no news."""


@dataclass(frozen=True)
class Share:
    """`workers` processes run the suite; on two idle cores it ends within `seconds`."""

    seconds: float
    workers: int = 1
    beside: bool = False
    """It only computes: it runs beside the suites that wait, and yields each core to them. Its seconds pass while theirs do."""
    during: str = ""
    """The suite that it runs during, because both leave cores idle; those that name the same one run one after the other. Its seconds pass while that one's do."""

    @property
    def together(self) -> str:
        """Returns how the run says that it does not have the machine to itself; empty for a suite that the others follow."""
        return ", beside the others" if self.beside else f", during {self.during}" if self.during else ""


SHARES = {
    "checks": Share(25),
    # Half of their time these wait for servers, leases and processes: several keep two cores busy, and the simulator has the rest.
    "process": Share(330, 6),
    "contract": Share(150, 6),
    "browser": Share(60, 0, during="contract"),  # one browser, in the process that collects
    "seeds": Share(20, 2, during="contract"),
    # The fuzzer computes, and so does the manager that it asks: with a low priority its leader would lose its term.
    "fuzz": Share(70, 2, during="contract"),
    "unit": Share(215, 6),
    "sim": Share(600, 2, beside=True),
    "parsers": Share(660, 2, beside=True),
}


@dataclass(frozen=True)
class Usage:
    """CPU seconds that a stretch of time cost us, and the part of the machine that others had meanwhile."""

    cpu_s: float
    others: float

    @property
    def starved(self) -> bool:
        return self.others > BUSY


class Machine:
    """Measures from its creation on, over everything that this process has waited for."""

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self._stat = stat
        self._begun, self._mine, self._busy = time.monotonic(), my_cpu_s(), self._busy_s()

    def used(self) -> Usage:
        cpu_s = my_cpu_s() - self._mine
        capacity = (time.monotonic() - self._begun) * (os.cpu_count() or 1)
        others = max(0.0, self._busy_s() - self._busy - cpu_s)
        return Usage(cpu_s, others / capacity if capacity else 0.0)

    def _busy_s(self) -> float:
        """Seconds for which any CPU did something, also for the neighbours of a virtual machine; 0 where nobody counts them."""
        try:
            fields = [int(word) for word in self._stat.read_text().partition("\n")[0].split()[1:9]]
        except (OSError, ValueError):
            return 0.0
        user, nice, system, _idle, _iowait, *rest = fields
        return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")


def my_cpu_s() -> float:
    """What this process and all that it has waited for have used."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def late(name: str, seconds: float, usage: Usage) -> str:
    """Returns the sentence about a suite that took longer than its share; empty when it did not."""
    share = SHARES.get(name)
    if share is None or seconds <= share.seconds:
        return ""
    told = f"{name} took {seconds:.0f} s; its share is {share.seconds:.0f} s"
    if usage.starved:
        return f"{told}. Others had {usage.others:.0%} of this machine meanwhile: measure again when it is idle"
    return f"{told}. The machine was ours: find what is slow (pytest --durations=20), or what is proven twice"
