"""Tells others of alarms and of ends of jobs: by a signed request to a configured address, or by a configured command (decision 0451).

A leader only puts a notice into the queue of each hook, which is bounded and never waited for. A loop of its own delivers them in their order, tries
again with pauses, and gives a notice up after `MOST_TRIES`. Notices are best effort: the journal is what is durable. A notice is delivered in a thread
of `HookDelivery`, because neither an address nor a command may hold a node up.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import subprocess
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from enum import StrEnum
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from tenure import bounds as b
from tenure.backoff import Backoff
from tenure.bound_checks import check
from tenure.clock import Clock
from tenure.errors import ConfigurationError, NodeUnavailableError, UnknownJobError
from tenure.jobs import Decision
from tenure.jobs.alarms import Alarm
from tenure.jobs.endings import JobEnded
from tenure.jobs.why import why
from tenure.logs import NodeLog
from tenure.nodes.loop_keeper import Loop
from tenure.nodes.manager.leader_parts import LeaderPart
from tenure.nodes.process import Environment
from tenure.randomness import Random

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook
    from tenure.nodes.manager.leader import DatacenterLeader

MOST_WAITING = 1_000
"""Notices that wait for one hook. The oldest makes way for the newest: whoever was away wants to know what is wrong now."""
MOST_TRIES = 8
FIRST_PAUSE_S, MOST_PAUSE_S = 1.0, 60.0
LEAST_SECRET_BYTES = 16
SIGNATURE = "X-Tenure-Signature"


class HookEvent(StrEnum):
    """Names the things that a hook may be told of."""

    ALARM = "alarm"
    ALARM_OVER = "alarm_over"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"


BAD_NEWS = (HookEvent.ALARM, HookEvent.ALARM_OVER, HookEvent.FAILED, HookEvent.TIMED_OUT)


class HookSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of the file of hooks: an address, or a command."""

    url: b.AnyNameOrNone = ""
    command: Annotated[tuple[str, ...], b.items(0, 100)] = ()
    """The program and its arguments, without a shell. It gets the notice as JSON on its standard input."""
    secret_file: str = ""
    """Holds the key with which requests are signed. An address needs one."""
    on: Annotated[tuple[HookEvent, ...], b.items(1, 10)] = BAD_NEWS
    queues: Annotated[tuple[b.QueueName, ...], b.items(0, 100)] = ()
    """Jobs of these queues only; alarms are told in any case."""
    timeout_s: b.PositiveSeconds = 10.0

    @property
    def goal(self) -> str:
        return self.url or self.command[0]


class HookFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    hooks: Annotated[tuple[HookSettings, ...], b.items(0, 20)] = ()


class HookNotice(NamedTuple):
    """One thing to tell. `content` makes the rest of it when it is first sent, so that the leader need not."""

    id: str
    """Names the thing, whoever tells it: receivers drop an id that they know."""
    event: HookEvent
    at: float
    content: Callable[[], Mapping[str, Any]]
    queue: str | None = None
    """The queue of the job; None for an alarm."""


Deliver = Callable[[HookSettings, bytes, Mapping[str, str]], Awaitable[None]]
"""Delivers one notice. Raises `NodeUnavailableError`."""


def read_hooks(path: str) -> tuple[HookSettings, ...]:
    """Returns the hooks of a file, TOML or JSON. Raises `ConfigurationError` for one that cannot work."""
    try:
        data = Path(path).read_bytes()
        decode = msgspec.json.decode if path.endswith(".json") else msgspec.toml.decode
        found = decode(data, type=HookFile)
        check(found)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"the file of hooks {path!r} cannot be read: {error}", remedy='Write [[hooks]] with url="https://..."'
        ) from error
    for one in found.hooks:
        check_hook(one)
    return found.hooks


def check_hook(hook: HookSettings) -> None:
    if bool(hook.url) == bool(hook.command):
        raise ConfigurationError("a hook has either a url or a command", remedy="Give one of the two")
    if hook.command:
        return
    parts = urlsplit(hook.url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        raise ConfigurationError(
            f"the hook's url {hook.url!r} is no address of http or https", remedy="Write https://HOST/PATH"
        )
    if not hook.secret_file:
        raise ConfigurationError(
            f"the hook {hook.url!r} has no secret_file", remedy="Its receiver could not tell our notices from others"
        )
    secret_of(hook)


def secret_of(hook: HookSettings) -> bytes:
    """Returns the key of a hook; empty for a command. Read for each notice, so that a new key counts at once."""
    if not hook.secret_file:
        return b""
    try:
        secret = Path(hook.secret_file).read_bytes().strip()
    except OSError as error:
        raise ConfigurationError(f"the hook's secret_file cannot be read: {error}") from error
    if len(secret) < LEAST_SECRET_BYTES:
        raise ConfigurationError(
            f"the key in {hook.secret_file!r} has {len(secret)} bytes",
            remedy=f"At least {LEAST_SECRET_BYTES}: openssl rand -hex 32 > {hook.secret_file}",
        )
    return secret


def signature(secret: bytes, at: int, body: bytes) -> str:
    """Returns the value of `X-Tenure-Signature`: the time and the HMAC-SHA256 of `TIME.BODY`, so that an old notice cannot be sent again."""
    return f"t={at},v1={hmac.new(secret, b'%d.' % at + body, hashlib.sha256).hexdigest()}"


class HookSender:
    """The queue of one hook, and the loop that empties it."""

    def __init__(self, hook: HookSettings, deliver: Deliver, *, clock: Clock, random: Random, log: NodeLog) -> None:
        self._hook, self._deliver, self._clock, self._log = hook, deliver, clock, log
        self._backoff = Backoff(random, first_s=FIRST_PAUSE_S, most_s=MOST_PAUSE_S)
        self._waiting: deque[HookNotice] = deque(maxlen=MOST_WAITING)
        self._came = asyncio.Event()
        self.dropped = 0
        """Notices that were given up, or made way for newer ones."""

    def offer(self, notice: HookNotice) -> None:
        """Takes a notice that this hook wants. It costs an append, and never waits."""
        wanted = notice.event in self._hook.on
        if not wanted or (notice.queue is not None and self._hook.queues and notice.queue not in self._hook.queues):
            return
        self.dropped += len(self._waiting) == MOST_WAITING
        self._waiting.append(notice)
        self._came.set()

    async def run(self) -> None:
        """Delivers until cancelled."""
        while True:
            if not self._waiting:
                self._came.clear()
                await self._came.wait()
            await self._send(self._waiting.popleft())

    async def _send(self, notice: HookNotice) -> None:
        body = msgspec.json.encode({"id": notice.id, "event": notice.event, "at": notice.at, **notice.content()})
        for tries in range(1, MOST_TRIES + 1):
            try:
                await self._deliver(self._hook, body, self._headers(notice, body))
                self._backoff.reset()
                return
            except (NodeUnavailableError, ConfigurationError) as error:
                if tries == MOST_TRIES:
                    self.dropped += 1
                    self._log.warning(f"the hook {self._hook.goal} was not told of {notice.id}: {error}")
                    return
            await self._clock.async_sleep(self._backoff.next())

    def _headers(self, notice: HookNotice, body: bytes) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "X-Tenure-Event": notice.event, "X-Tenure-Id": notice.id}
        if secret := secret_of(self._hook):
            headers[SIGNATURE] = signature(secret, int(self._clock.wall()), body)
        return headers


class Hooks:
    """All hooks of one node."""

    def __init__(self, senders: Sequence[HookSender]) -> None:
        self.senders = senders

    def tell(self, notice: HookNotice) -> None:
        for sender in self.senders:
            sender.offer(notice)

    def loops(self) -> dict[str, Loop]:
        return {f"hook {number}": sender.run for number, sender in enumerate(self.senders)}


MOST_THREADS = 4
MOST_ANSWER_BYTES = 4_096


class HookDelivery:
    """Calls go through a few threads. A hook has at most one call at a time, so a slow one holds up no more than a thread."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="tenure-hook")

    async def __call__(self, hook: HookSettings, body: bytes, headers: Mapping[str, str]) -> None:
        call = post if hook.url else run_command
        await asyncio.get_running_loop().run_in_executor(self._threads, call, hook, body, dict(headers))

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


@asynccontextmanager
async def hooked(settings: Sequence[HookSettings], environment: Environment) -> AsyncIterator[Hooks]:
    """Yields the hooks of a node. Their threads end with it."""
    delivery = HookDelivery()
    clock, random, log = environment.clock, environment.random, environment.log
    try:
        yield Hooks([HookSender(one, delivery, clock=clock, random=random, log=log) for one in settings])
    finally:
        delivery.close()


def post(hook: HookSettings, body: bytes, headers: dict[str, str]) -> None:
    """Sends one request. Redirects are not followed: notices go to the configured address only."""
    parts = urlsplit(hook.url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=hook.timeout_s)
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", target, body, headers)
        answer = connection.getresponse()
        answer.read(MOST_ANSWER_BYTES)
    except (OSError, HTTPException) as error:
        raise NodeUnavailableError(f"{hook.url} did not answer: {error}") from error
    finally:
        connection.close()
    if not 200 <= answer.status < 300:
        raise NodeUnavailableError(f"{hook.url} answered {answer.status}")


def run_command(hook: HookSettings, body: bytes, headers: dict[str, str]) -> None:
    """Runs the command once, without a shell, with the notice on its standard input. It is killed after `timeout_s`."""
    try:
        done = subprocess.run(  # noqa: S603 - only commands of the file that the operator gave
            hook.command, input=body, timeout=hook.timeout_s, capture_output=True, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NodeUnavailableError(f"{hook.goal} was not run: {error}") from error
    if done.returncode:
        raise NodeUnavailableError(
            f"{hook.goal} exited with {done.returncode}: {done.stderr[-300:].decode(errors='replace')}"
        )


LOOK_BACK_S = 300.0
"""A new leader tells again of jobs that ended so shortly before its term: the last leader may have died with its queue."""
MOST_LOOKED_BACK = 1_000


class HookNotices:
    """Part of a manager: `alarm` is called by its observer, and `lead` makes the part of each term."""

    def __init__(self, hooks: Hooks, datacenter: str, manager: str) -> None:
        self._hooks, self._datacenter, self._manager = hooks, datacenter, manager

    @property
    def wanted(self) -> bool:
        return bool(self._hooks.senders)

    def alarm(self, alarm: Alarm, since: float, over: bool) -> None:
        event = HookEvent.ALARM_OVER if over else HookEvent.ALARM
        content: dict[str, Any] = {
            "datacenter": self._datacenter,
            "manager": self._manager,
            "kind": alarm.kind.value,
            "subject": alarm.subject,
            "reason": alarm.reason,
            "next_step": alarm.remedy,
            "since": since,
        }
        name = f"{self._datacenter}/{event}/{alarm.kind}/{alarm.subject}/{since:.3f}"
        self._hooks.tell(HookNotice(name, event, since, lambda: content))

    def lead(self, leader: DatacenterLeader) -> LeaderPart:
        return EndNotices(leader, self._hooks, self._datacenter)


class EndNotices(LeaderPart):
    """Tells of each end of a job, once it is durable."""

    heeds = frozenset({JobEnded})

    def __init__(self, leader: DatacenterLeader, hooks: Hooks, datacenter: str) -> None:
        self._leader, self._hooks, self._datacenter = leader, hooks, datacenter

    async def run(self) -> None:
        book = self._leader.book
        since = book.state.elected_at - LOOK_BACK_S
        for job_id in list(islice(reversed(book.ended), MOST_LOOKED_BACK)):
            info = book.jobs.get(job_id)
            if info is not None and since <= info.ended_at <= book.state.elected_at:
                self._tell(job_id, info.ended_at)

    def note(self, decision: Decision, job_ids: Iterable[str]) -> None:
        for event in decision.events:
            if isinstance(event, JobEnded):
                self._tell(event.job_id, event.at)

    def _tell(self, job_id: str, at: float) -> None:
        book = self._leader.book
        info = book.jobs.get(job_id)
        if info is None:
            return
        event, queue = HookEvent(info.state.value), info.job.submission.queue
        name = f"{self._datacenter}/{job_id}/{event}"
        self._hooks.tell(HookNotice(name, event, at, lambda: end_content(book, job_id, self._datacenter, event), queue))


def end_content(book: JobBook, job_id: str, datacenter: str, state: HookEvent) -> dict[str, Any]:
    """Returns what is told of a job that ended: the first sentence of `why`, and the next step. Arguments and results are not told."""
    about: dict[str, Any] = {"datacenter": datacenter, "job_id": job_id, "state": state.value}
    try:
        told = why(book, job_id)
    except UnknownJobError:
        return about  # it has left memory since
    submission = book.job(job_id).job.submission
    return {
        **about,
        "name": submission.name,
        "queue": submission.queue,
        "labels": submission.labels,
        "reason": told.answer,
        "next_step": told.next_step,
        "submitted_at": told.submitted_at,
    }
