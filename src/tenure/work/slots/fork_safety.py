"""Decides whether slots may be forked from this process, by what its modules left behind when they were imported.

A fork copies the calling thread only. A lock that another thread holds stays locked for ever in the child. A socket, a pipe or a place in a
file is shared: what one slot reads, the others miss. A GPU's driver refuses to work in a child. A generator of random numbers goes on
with the same numbers in every child. Each of these is found here, and slots are spawned instead.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Collection, Iterator
from itertools import compress
from random import Random

from tenure import machine
from tenure.machine import OpenDescriptor
from tenure.randomness import DIFFERS_AFTER_FORK
from tenure.work.slots.processes import own_children

GPUS = ("/dev/nvidia", "/dev/dri", "/dev/kfd", "/dev/accel", "/dev/davinci", "/dev/neuron")
HARMLESS = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/pts")
"""Devices without a place: any number of processes may share a descriptor of them."""


def reason_not_to_fork(ours: Collection[int]) -> str:
    """Returns why a fork of this process would be unsafe, as a clause about a module; empty when it is safe. `ours`: descriptors that we opened."""
    return _threads() or _descriptors(ours) or _children()


def reason_after_import(ours: Collection[int]) -> str:
    """Returns the same, and also what only an import can leave behind. It takes some milliseconds: call it once."""
    return reason_not_to_fork(ours) or _generators()


def _threads() -> str:
    running = machine.here.own_threads()
    if len(running) <= 1:
        return ""
    known = [thread for thread in threading.enumerate() if thread is not threading.current_thread()]
    names = [f"{thread.name!r}{_target(thread)}" for thread in known] or [repr(name) for name in running[1:]]
    return f"started a thread: {', '.join(sorted(names)[:5])}"


def _target(thread: threading.Thread) -> str:
    target: object = getattr(thread, "_target", None)
    name = getattr(target, "__qualname__", "")
    return f" ({getattr(target, '__module__', '?')}.{name})" if name else ""


def _descriptors(ours: Collection[int]) -> str:
    for one in machine.here.own_descriptors():
        if one.number > 2 and one.number not in ours and (kind := _shared_kind(one)):
            return f"left {kind} open: {one.target}"
    return ""


def _shared_kind(one: OpenDescriptor) -> str:
    """Returns the word for a descriptor that must not be shared; empty for one that may be."""
    if one.target.startswith(GPUS):
        return "a GPU"
    if one.target.startswith("socket:"):
        return "a socket"
    if not one.target.startswith("/"):
        return "a channel"  # a pipe, an event loop's poll, an inotify
    if one.target.startswith(HARMLESS) or one.appends:
        return ""
    return "a file"  # processes that share a descriptor share the place at which they read, and SQLite its locks


def _children() -> str:
    found = own_children()
    return f"started a process: {', '.join(str(child.pid) for child in found)}" if found else ""


def _generators() -> str:
    own = getattr(sys.modules["random"], "_inst", None)  # Python seeds this one again in a forked child
    objects = gc.get_objects()
    # In one go: there are a hundred thousand of them or more, and a worker's first job waits.
    # Not isinstance: that asks a lazy proxy for its class, and may run anything.
    # By the ids of their classes: a class of a strange metaclass cannot be hashed.
    kinds = {id(kind) for kind in _kinds(Random) if not issubclass(kind, DIFFERS_AFTER_FORK)}
    for one in compress(objects, map(kinds.__contains__, map(id, map(type, objects)))):
        if one is not own:
            return f"holds a random generator{_place_of(one)}, which would give every slot the same numbers"
    numpy_random = sys.modules.get("numpy.random")
    numpy_kinds = tuple(
        getattr(numpy_random, name) for name in ("Generator", "RandomState") if hasattr(numpy_random, name)
    )
    shared = getattr(getattr(numpy_random, "mtrand", None), "_rand", None)  # `reseed_after_fork` takes care of it
    for where, value in _globals() if numpy_kinds else ():
        if issubclass(type(value), numpy_kinds) and value is not shared:
            return f"holds a random generator in {where}, which would give every slot the same numbers"
    return ""


def _kinds(kind: type[Random]) -> Iterator[type[Random]]:
    yield kind
    for below in type.__subclasses__(kind):
        yield from _kinds(below)


def _globals() -> Iterator[tuple[str, object]]:
    for module in list(sys.modules.values()):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            yield f"{getattr(module, '__name__', '?')}.{name}", value


def _place_of(one: object) -> str:
    return next((f" in {where}" for where, value in _globals() if value is one), "")
