"""The connection of one engine, and the event loop on which it lives.

The client library is asyncio, and engines are called from any thread. So one background thread per process runs one loop, which all NATS engines
of the process share; the last one that closes ends it. After a fork the child has its own.

`NatsConnection` asks JetStream, publishes with an answer, and knows when the connection was lost. What may be asked twice is asked again, with jittered
pauses, until the time that the URL allows is over: a cluster that elects a new leader answers `no responders` for a moment, and that is not
an error.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from typing import Any, Generic, TypeVar

import nats
import nats.errors
from nats.aio.client import Client, Server
from nats.aio.msg import Msg

from tenure.backoff import Backoff
from tenure.clock import Clock
from tenure.engines.nats import address as faults
from tenure.engines.nats.address import ApiError, NatsSettings, tls_context
from tenure.engines.nats.write_errors import write_error
from tenure.engines.urls import certificate_refused
from tenure.errors import EngineClosedError, EngineUnavailableError, TenureError
from tenure.randomness import Random

T = TypeVar("T")
_LOOK_S = 5.0


async def end(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel them until they end.

    Once is not enough: the client library waits with `wait_for`, which in Python 3.11 drops a cancellation that comes in the moment in
    which what it waits for is there, or fails.
    """
    while left := [task for task in tasks if not task.done()]:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=0.05)


class _Call(Generic[T]):
    """One coroutine that a thread waits for. Half the cost of `run_coroutine_threadsafe`, which chains two futures."""

    __slots__ = ("answers", "coroutine", "done", "loop", "task")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.coroutine: Coroutine[Any, Any, T]
        self.done = threading.Lock()
        self.done.acquire()
        self.task: asyncio.Task[T]
        self.answers: list[T] = []

    def start(self) -> None:
        self.task = self.loop.create_task(self.coroutine)
        self.task.add_done_callback(self._finish)

    def cancel(self) -> None:
        self.task.cancel()

    def answer(self, value: T) -> None:
        """Wake the thread with this, now: two turns of the loop sooner than by returning it. What the coroutine ends with is nobody's any more."""
        if not self.answers and not self.task.done():
            self.answers.append(value)
            self.done.release()

    def _finish(self, task: asyncio.Task[T]) -> None:
        if not self.answers:
            self.done.release()
        elif not task.cancelled():
            task.exception()

    def result(self) -> T:
        return self.answers[0] if self.answers else self.task.result()


class Background:
    """The loop and its thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.pid = os.getpid()
        self.users = 0
        self.thread = threading.Thread(target=self._run, name="tenure-nats", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it there, and wait for what it gives."""
        call: _Call[T] = _Call(self.loop)
        call.coroutine = coroutine
        return self._wait(call)

    def run_answering(self, work: Callable[[Callable[[T], None]], Coroutine[Any, Any, T]]) -> T:
        """Runs a coroutine that gets a function with which it answers before it ends, and returns that answer."""
        call: _Call[T] = _Call(self.loop)
        call.coroutine = work(call.answer)
        return self._wait(call)

    def _wait(self, call: _Call[T]) -> T:
        self.loop.call_soon_threadsafe(call.start)
        try:
            while not call.done.acquire(timeout=_LOOK_S):
                if self.loop.is_closed():
                    raise asyncio.CancelledError
        except KeyboardInterrupt:
            self.loop.call_soon_threadsafe(call.cancel)  # an interrupt in this thread: nobody waits for it any more
            raise
        return call.result()

    def soon(self, call: Callable[[], object]) -> None:
        self.loop.call_soon_threadsafe(call)

    def stop(self) -> None:
        """End the loop, and what still runs on it: whoever waits for that is told so."""
        self.run(self._cancel_all())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    async def _cancel_all(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=2.0)


_lock = threading.Lock()
_shared: Background | None = None


def enter() -> Background:
    """The process's loop, started if need be. Give it back with `leave`."""
    global _shared
    with _lock:
        if _shared is None or _shared.pid != os.getpid():
            _shared = Background()
        _shared.users += 1
        return _shared


def leave(background: Background) -> None:
    global _shared
    with _lock:
        background.users -= 1
        if background.users or background.pid != os.getpid():
            return
        if _shared is background:
            _shared = None
    background.stop()


def _forget_after_fork() -> None:
    # The lock may have been held by a thread that the child does not have.
    global _lock, _shared
    _lock, _shared = threading.Lock(), None


os.register_at_fork(after_in_child=_forget_after_fork)


log = logging.getLogger("tenure.engines.nats")

_ATTEMPT_S = 1.0
_PING_S = 5.0
_GOODBYE_S = 1.0
"""The seconds that the client may take to close a connection that it has given up."""
_CLOGGED_BYTES = 1_048_576


class DirectClient(Client):
    """Gives plain messages of some subscriptions to their taker while they are parsed, without the queue and the task of a subscription.

    Every process reads every command of the log, mostly one at a time, and that task wakes the loop once more for each. Messages with headers (heartbeats,
    flow control) go the usual way. So do all, to the callback of their subscription, where another version of the library parses otherwise.
    """

    def __init__(self) -> None:
        super().__init__()
        self.takers: dict[int, Callable[[str, bytes], None]] = {}
        """By the number of a subscription: is given the reply subject and the data. It must not be slow."""

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        taker = self.takers.get(sid)
        if taker is None or headers:
            await super()._process_msg(sid, subject, reply, data, headers)
            return
        try:
            taker(reply.decode(), data)
        except Exception as error:  # as a subscription does: it must not end the reading
            await self._error_cb(error)


class NatsConnection:
    """One connection. `watchers` are called, on the loop, after it was lost (False) and when it is back (True)."""

    def __init__(self, settings: NatsSettings, clock: Clock, random: Random) -> None:
        self.settings, self.clock, self.random = settings, clock, random
        self.client = DirectClient()
        self.watchers: list[Callable[[bool], None]] = []
        self._backoff = Backoff(random, first_s=0.02, most_s=1.0)
        self._turn = 0
        self.last_error: BaseException | None = None
        self._refused = asyncio.Event()
        self._up = False
        """By what the client has told us, which is later than the truth."""
        self._closing_since: float | None = None
        """Our clock when the client was first seen to be closing a connection that it has given up."""

    async def open(self) -> None:
        try:
            await _within(self.settings.timeout_s, self.client.connect(**self._options()), self._refused)
            self._up = True
        except (TimeoutError, OSError, nats.errors.Error) as error:
            reason = self.last_error if isinstance(error, TimeoutError) and self.last_error else error
            await self.close()
            raise self.told(reason, f"opening {self.settings.shown}") from error

    def _options(self) -> dict[str, Any]:
        return {
            "servers": self.settings.servers,
            "name": f"tenure-{os.getpid()}",
            "allow_reconnect": True,
            "max_reconnect_attempts": -1,
            "reconnect_time_wait": 0.05,  # of the first connect; `_next_server` paces the later ones
            "connect_timeout": self.settings.timeout_s,
            # A server that leaves three pings unanswered is silent. Calls have given up by then; this finds another connection.
            "ping_interval": min(_PING_S, self.settings.timeout_s),
            "max_outstanding_pings": 2,
            "flush_timeout": _ATTEMPT_S,  # without it, a call waits for as long as the server takes nothing
            "error_cb": self._on_error,
            "disconnected_cb": self._on_lost,
            "reconnected_cb": self._on_back,
            "reconnect_to_server_handler": self._next_server,
            **self.settings.login,
            **tls_context(self.settings),
        }

    async def close(self) -> None:
        try:
            await _within(2.0, self.client.close(), asyncio.Event())
        except Exception as error:  # closing is best effort: the server drops what it no longer hears of
            log.debug("closing %s: %r", self.settings.shown, error)

    def told(self, error: BaseException, where: str) -> TenureError:
        return faults.translate(error, where, self.settings.secrets)

    def no_answer(self, where: str) -> EngineUnavailableError:
        state = "connected" if self.client.is_connected else "not connected"
        return EngineUnavailableError(f"{where}: no answer within {self.settings.timeout_s:g} s ({state})")

    @property
    def max_payload(self) -> int:
        return self.client.max_payload

    @property
    def clogged(self) -> bool:
        """True while the server takes nothing: what is sent only waits in our memory."""
        return self.client.pending_data_size > _CLOGGED_BYTES

    # What the client tells us

    async def _on_error(self, error: Exception) -> None:
        if self._refused.is_set() and not self.client.is_connected:
            return  # the client goes on trying, and what it meets then (a reset, say) is not the reason
        self.last_error = error
        if "authorization" in str(error).lower() or certificate_refused(str(error)):
            self._refused.set()
        log.debug("%s: %r", self.settings.shown, error)

    async def _on_lost(self) -> None:
        self._up = False
        if not self.client.is_closed:
            log.warning("%s: the connection was lost", self.settings.shown)
        for watcher in list(self.watchers):
            watcher(False)

    async def _on_back(self) -> None:
        self._up = True
        self._backoff.reset()
        log.warning("%s: connected again", self.settings.shown)  # as loud as the loss: it ends it
        for watcher in list(self.watchers):
            watcher(True)

    def _next_server(self, servers: list[Server], _info: dict[str, Any]) -> tuple[Server | None, float]:
        """One after the other; a round without success makes the next one slower."""
        self._abort()  # the attempt before this one was not answered, and the client would leave it open
        self._turn += 1
        delay = self._backoff.next() if self._turn % len(servers) == 0 else 0.01 * self.random.random()
        return servers[self._turn % len(servers)], delay

    def end_stuck_goodbye(self) -> None:
        """Resets a connection whose closing does not end. Followers call it again and again while they hear nothing.

        The client connects anew once the old connection is closed, and that waits until the rest of its buffer was sent. A peer that
        takes nothing, or is gone without a word, would keep it for the quarter of an hour after which TCP gives up.
        """
        if not (self._up and self.client.is_reconnecting):
            self._closing_since = None
            return
        now = self.clock.monotonic()
        self._closing_since = self._closing_since or now
        if now - self._closing_since >= _GOODBYE_S:
            self._abort()

    def _abort(self) -> None:
        """End the client's present connection without a goodbye. The client has no public way to it."""
        transport = getattr(self.client, "_transport", None)
        for name in ("_io_writer", "_bare_io_writer"):  # the same one, unless it was upgraded to TLS
            if (writer := getattr(transport, name, None)) is not None:
                writer.transport.abort()

    # Asking

    async def attempts(self, where: str) -> AsyncIterator[float]:
        """Yields the seconds of each attempt until the time is over, then raises the last error as `unavailable`."""
        clock, pause = self.clock, Backoff(self.random, first_s=0.05, most_s=0.5)
        end = clock.monotonic() + self.settings.timeout_s
        while (left := end - clock.monotonic()) > 0:
            if self.client.is_closed:
                raise EngineClosedError(f"the engine {self.settings.shown} was closed", remedy="Open it again")
            yield min(left, _ATTEMPT_S, self.settings.timeout_s / 2)  # time is left to ask why a write is not answered
            await asyncio.sleep(min(pause.next(), max(0.0, end - clock.monotonic())))
        raise self.no_answer(where)

    async def ask(self, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """A request to JetStream's API that may be repeated. Raises `ApiError` for an answered refusal."""
        payload = json.dumps(body).encode() if body else b""
        doing = f"asking {self.settings.shown}"
        return await self._answer(f"$JS.API.{subject}", payload, None, doing, f"{doing} ({subject.split('.')[0]})")

    async def request(self, subject: str, payload: bytes, within: float, headers: dict[str, str] | None = None) -> Msg:
        return await self.client.request(subject, payload, timeout=within, headers=headers)

    async def write(self, stream: str, subject: str, payload: bytes, headers: dict[str, str]) -> int:
        """Publish into a stream; its sequence there. `Nats-Msg-Id` makes a repeated sending harmless."""
        assert "Nats-Msg-Id" in headers
        doing = f"writing to {self.settings.shown}"
        return int((await self._answer(subject, payload, headers, doing, doing, stream))["seq"])

    async def _answer(
        self, subject: str, payload: bytes, headers: dict[str, str] | None, doing: str, trying: str, stream: str = ""
    ) -> dict[str, Any]:
        """Asks until the server answers: a lost request and a refusal that passes by itself are repeated. `trying` names it when time runs out, `stream` what it writes to."""
        connects = self.client.stats["reconnects"]
        async for within in self.attempts(trying):
            try:
                answer: dict[str, Any] = json.loads((await self.request(subject, payload, within, headers)).data)
            except Exception as error:
                if not faults.is_lost(error):
                    raise self.told(error, doing) from error
                # Only on one connection all along: otherwise it may have been written, and its answer lost.
                if stream and self.client.stats["reconnects"] == connects and (full := await write_error(self, stream)):
                    raise full from error
                continue
            if "error" in answer:
                refused = ApiError(answer["error"])
                if refused.number in faults.PASSING:
                    continue
                raise refused
            return answer
        raise AssertionError("attempts ends by raising")


async def _within(seconds: float, work: Coroutine[Any, Any, None], enough: asyncio.Event) -> None:
    """Raises `TimeoutError` when it takes longer, or when it is `enough`.

    Not asyncio.timeout: it cancels once, and the client then may try for ever (see `end`).
    """
    task = asyncio.get_running_loop().create_task(work)
    watch = asyncio.get_running_loop().create_task(enough.wait())
    try:
        await asyncio.wait({task, watch}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise TimeoutError(f"not within {seconds:g} s")
    finally:
        watch.cancel()
        await end([task])
