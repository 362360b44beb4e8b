"""Keeps a program within its call: nothing that it starts outlives the call, and it does not read the memory of the process that runs it.

Where the machine allows it, a program gets a pid namespace of its own with its own /proc: when the call ends, the kernel ends the namespace. Elsewhere, as in most
containers, `command_guard` stands between us and the program. This is order, not a prison: see `CommandRunner` for the part that is not promised.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

GUARD = Path(__file__).with_name("command_guard.py")
_PROBE_S = 10.0


def confined(command: list[str]) -> list[str]:
    """Returns the command as it is started here."""
    if sys.platform != "linux":
        return command
    if prefix := namespace():
        return [*prefix, *command]
    # Isolated and without site-packages: the folder that it starts in is the agent's, and may hold modules.
    return [sys.executable, "-I", "-S", str(GUARD), *command]


@lru_cache(maxsize=1)
def namespace() -> tuple[str, ...]:
    """Returns the words before a command that put it into a pid namespace, or none where the machine does not allow it."""
    unshare, shell = shutil.which("unshare"), shutil.which("sh")
    if unshare is None or shell is None:
        return ()
    user = () if os.geteuid() == 0 else ("--user", "--map-current-user")
    flags = ("--pid", "--fork", "--kill-child", "--mount-proc", *user)
    # The first process of a namespace ignores most signals. It is a shell, so that the program is an ordinary process.
    prefix = (unshare, *flags, "--", shell, "-c", '"$@"; exit $?', "sh")
    try:
        tried = subprocess.run(  # noqa: S603  two programs of the system
            [*prefix, "true"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=_PROBE_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return prefix if tried.returncode == 0 else ()
