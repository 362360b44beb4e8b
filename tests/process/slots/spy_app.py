"""Workflows that look for the secrets of the worker that runs them, as far as its user can, and one that hangs."""

from __future__ import annotations

import ctypes
import os
import re
import time
from pathlib import Path
from typing import Any

from tenure import workflow


class Piece(ctypes.Structure):
    _fields_ = (("begin", ctypes.c_void_p), ("length", ctypes.c_size_t))


def memory(pid: int) -> bytes:
    """Returns the memory of another process, or nothing where the kernel refuses it."""
    libc, found = ctypes.CDLL(None, use_errno=True), b""
    for begin, end in re.findall(r"^(\w+)-(\w+) rw", Path(f"/proc/{pid}/maps").read_text(), re.MULTILINE):
        size = min(int(end, 16) - int(begin, 16), 64 << 20)
        there = ctypes.create_string_buffer(size)
        ours, theirs = Piece(ctypes.addressof(there), size), Piece(int(begin, 16), size)
        if libc.process_vm_readv(pid, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0) > 0:
            found += there.raw
    return found


@workflow
def spy(ctx: Any) -> dict[str, Any]:
    """Returns the names of the places in which it found a word that begins with `hush-`."""
    parent, found, refused = os.getppid(), [], []
    places = {
        "own environment": lambda: repr(os.environ).encode(),
        "own command line": Path("/proc/self/cmdline").read_bytes,
        "environment": Path(f"/proc/{parent}/environ").read_bytes,
        "command line": Path(f"/proc/{parent}/cmdline").read_bytes,
        "memory": lambda: memory(parent),
        "memory file": lambda: os.close(os.open(f"/proc/{parent}/mem", os.O_RDONLY)),
        "open files": lambda: [os.readlink(f"/proc/{parent}/fd/{one}") for one in os.listdir(f"/proc/{parent}/fd")],
    }
    for name, look in places.items():
        try:
            seen = look()
            if b"hush-" in (seen if isinstance(seen, bytes) else str(seen).encode()):
                found.append(name)
        except OSError:
            refused.append(name)
    return {"found": found, "refused": refused}


@workflow(stall=1.0)
def hangs(ctx: Any) -> None:
    ctx.beat()
    time.sleep(1_000)
