"""A program on a machine that is not Linux, or that allows little: it runs a job, has a hung one ended, and starts a process that it forgets."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

from tenure import embedded, machine, workflow


@workflow
def forgets_a_process(ctx: Any) -> int:
    return subprocess.Popen(["sleep", "1000"]).pid


@workflow(stall=1.5, max_attempts=2)
def hangs_once(ctx: Any) -> str:
    if ctx.attempt == 1:
        time.sleep(1000)
    return "the second attempt ended"


if __name__ == "__main__":
    with embedded(sys.argv[1], [forgets_a_process, hangs_once], slots=1, mode="processes", grace_s=0.5) as datacenter:
        forgotten = datacenter.submit(forgets_a_process).wait(180)
        print("left", machine.here.exists(forgotten))
        print(datacenter.submit(hangs_once).wait(180))
        print(machine.here.name)
