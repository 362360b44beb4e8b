"""Earned leases and hang detection for tasks that stay in Celery.

    app = Celery("shop", broker="redis://…")
    watch_tasks(app)

    @app.task(acks_late=True, reject_on_worker_lost=True, stall_s=120)
    def encode(path):
        for frame in frames(path):
            ...
            beat()

A task with `stall_s` has to call `beat()` at least that often. One that does not ends its worker process, with the stacks of all threads in
the log, also when it hangs inside C; Celery then delivers it again. On a Redis broker, each beat moves the message's `visibility_timeout`
on, so that this may be minutes and no longer than a crash may cost: long tasks are not delivered twice any more.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from celery.signals import task_postrun, task_prerun

from tenure.beat.heartbeat import Heartbeat
from tenure.beat.lease import LeaseExtender, LeaseExtenderConfig
from tenure.beat.watchdog import Watchdog
from tenure.clock import Clock, SystemClock
from tenure.errors import LimitError, ReceiptHandleExpiredError

_logger = logging.getLogger(__name__)
_running = threading.local()


def beat(progress: float | None = None, note: str | None = None) -> None:
    """Proves that the task which runs here advances. Does nothing outside of a watched task, so that its function can be called directly."""
    found: Heartbeat | None = getattr(_running, "heartbeat", None)
    if found is not None:
        found.beat(progress=progress, note=note)


@contextmanager
def silence(max_s: float, why: str) -> Iterator[None]:
    """Declares a quiet spell of the task, such as a long query: neither the stall nor the lease is judged within `max_s`."""
    found: Heartbeat | None = getattr(_running, "heartbeat", None)
    with found.silence(max_s, why) if found is not None else contextlib.nullcontext():
        yield


def watch_tasks(app: Any, *, clock: Clock | None = None) -> TaskWatch:
    """Watches the tasks of an app that declare `stall_s`. Call it once, where the app is made."""
    watch = TaskWatch(app, clock or SystemClock())
    task_prerun.connect(watch.begin, weak=False)
    task_postrun.connect(watch.end, weak=False)
    return watch


class RedisDelivery:
    """A delivery that kombu keeps in Redis: its place in a sorted set, by the time from which `visibility_timeout` counts."""

    def __init__(self, channel: Any, tag: str, clock: Clock) -> None:
        self._channel, self.id, self._clock = channel, tag, clock
        self.lease_s = float(channel.visibility_timeout)
        self._lease_until = clock.boottime() + self.lease_s

    def lease_left(self, now: float) -> float:
        return self._lease_until - now

    def extend_visibility(self, seconds: float) -> None:
        """Moves the delivery to where it is restored `seconds` from now. Raises when it was restored already."""
        asked_at, index = self._clock.boottime(), self._channel.unacked_index_key
        until = self._clock.wall() - self.lease_s + seconds
        # XX: a delivery that was restored meanwhile must not come back into the index. CH: whether it was still there.
        moved = self._channel.client.zadd(index, {self.id: until}, xx=True, ch=True)
        if not moved and self._channel.client.zscore(index, self.id) is None:
            raise ReceiptHandleExpiredError(self.id, "the broker gave it to another worker")
        self._lease_until = asked_at + seconds


class TaskWatch:
    """Watches one app's tasks in this process. A process that Celery forks begins with a watch of its own."""

    def __init__(self, app: Any, clock: Clock) -> None:
        self._app, self._clock = app, clock
        self._pid = 0
        self._watchdogs: dict[float, Watchdog] = {}
        self._open: dict[str, ExitStack] = {}
        self._channel: Any = None
        self._told: set[str] = set()

    def begin(self, task_id: str = "", task: Any = None, **_: Any) -> None:
        """Celery's signal before a task runs, in the thread that runs it."""
        stall_s = getattr(task, "stall_s", None)
        if task is None or task.app is not self._app or stall_s is None:
            return
        if not stall_s > 0:
            raise LimitError(f"stall_s of {task.name}", stall_s, "above 0 seconds")
        self._after_fork()
        self._warn(task)
        heartbeat = Heartbeat(name=task.name, clock=self._clock)
        watchdog = self._watchdog(float(stall_s))
        with ExitStack() as stack:
            watchdog.watch(task_id, heartbeat)
            stack.callback(watchdog.unwatch, task_id)
            delivery = self._delivery(task)
            if delivery is not None:
                config = LeaseExtenderConfig().for_lease(delivery.lease_s)
                stack.enter_context(
                    LeaseExtender(config, kind="celery").attach(delivery, heartbeat, lease_s=delivery.lease_s)
                )
            heartbeat.beat()
            _running.heartbeat = heartbeat
            self._open[task_id] = stack.pop_all()

    def end(self, task_id: str = "", **_: Any) -> None:
        """Celery's signal after a task, whatever became of it."""
        found = self._open.pop(task_id, None)
        if found is not None:
            _running.heartbeat = None
            found.close()

    def _after_fork(self) -> None:
        if self._pid != os.getpid():
            # Threads and connections of the parent are not ours.
            self._pid, self._watchdogs, self._open, self._channel = os.getpid(), {}, {}, None

    def _watchdog(self, stall_s: float) -> Watchdog:
        if stall_s not in self._watchdogs:
            self._watchdogs[stall_s] = Watchdog({}, stall_s, min(60.0, stall_s / 4), clock=self._clock)
            self._watchdogs[stall_s].start()
        return self._watchdogs[stall_s]

    def _delivery(self, task: Any) -> RedisDelivery | None:
        """Returns the lease of the task's message; None where it has none: acknowledged before it runs, called directly, another broker."""
        tag = (task.request.properties or {}).get("delivery_tag")
        if not tag or not task.acks_late:
            return None
        if self._channel is None:
            connection = self._app.connection_for_read()
            if connection.transport.driver_type != "redis":
                return None
            self._channel = connection.default_channel
        return RedisDelivery(self._channel, str(tag), self._clock)

    def _warn(self, task: Any) -> None:
        if task.name in self._told or (task.acks_late and task.reject_on_worker_lost):
            return
        self._told.add(task.name)
        _logger.warning(
            "Task %s has stall_s, and Celery does not deliver it again when it was ended: set acks_late=True and reject_on_worker_lost=True",
            task.name,
        )
