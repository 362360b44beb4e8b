"""Makes a process ready to become a slot: limits and logging are set, and the user's modules are imported. A fork server does it once for all its slots."""

from __future__ import annotations

import logging
import resource
import sys
import traceback
from collections.abc import Callable
from typing import NamedTuple

from tenure.clock import Clock, SystemClock
from tenure.work.attempt_logs import AttemptLogHandler, LoggedStream
from tenure.work.log_lines import MemoryLines
from tenure.work.registry import Registry
from tenure.work.served_modules import load_module
from tenure.work.slots.frames import SlotBroken


class SlotGround(NamedTuple):
    """A process that has imported the modules, and can become a slot."""

    clock: Clock
    log_handler: AttemptLogHandler
    registry: Registry | None
    broken: SlotBroken | None
    """Why there is no registry."""


def prepare(
    modules: list[str], memory_limit_mb: int | None, loaded: Callable[[str], None] = lambda name: None
) -> SlotGround:
    """Sets limits and logging up, then imports the modules. `loaded` is called after each one."""
    clock = SystemClock()
    if memory_limit_mb is not None:
        limit = memory_limit_mb << 20
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    log_handler = AttemptLogHandler(MemoryLines(), clock)  # no attempt runs before `run_slot`, which has the folder
    logging.getLogger().addHandler(log_handler)
    sys.stdout = LoggedStream(sys.stdout, "stdout", log_handler)
    sys.stderr = LoggedStream(sys.stderr, "stderr", log_handler)
    logging.getLogger("tenure.workflow").setLevel(logging.INFO)
    try:
        found = []
        for name in modules:
            found.append(load_module(name))
            loaded(name)
        return SlotGround(clock, log_handler, Registry.from_modules(found), None)
    except BaseException as error:
        broken = SlotBroken(f"{type(error).__name__}: {error}", traceback.format_exc()[-20_000:])
        return SlotGround(clock, log_handler, None, broken)
