"""Alarms and ends of jobs reach a configured address, signed, or a command; tried again with pauses, bounded, and never waited for."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.nodes.manager.harness import ManagerGroup

from tenure.clock import ManualClock, SystemClock
from tenure.control.messages.jobs import Cancel, Submit
from tenure.errors import ConfigurationError, NodeUnavailableError
from tenure.jobs.alarms import Alarm, AlarmKind
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.logs import node_log
from tenure.nodes.manager.hooks import (
    MOST_TRIES,
    MOST_WAITING,
    HookDelivery,
    HookEvent,
    HookNotice,
    HookNotices,
    Hooks,
    HookSender,
    HookSettings,
    read_hooks,
    signature,
)

SECRET = b"0123456789abcdef0123456789abcdef"


def notice(name: str = "dc/j/failed", event: HookEvent = HookEvent.FAILED, queue: str | None = "gpu") -> HookNotice:
    return HookNotice(name, event, 12.0, lambda: {"job_id": "j"}, queue)


class Post:
    """Takes what is delivered, and refuses the first few."""

    def __init__(self, refuses: int = 0) -> None:
        self.refuses, self.tries = refuses, 0
        self.taken: list[tuple[dict[str, Any], Mapping[str, str]]] = []

    async def __call__(self, hook: HookSettings, body: bytes, headers: Mapping[str, str]) -> None:
        self.tries += 1
        if self.tries <= self.refuses:
            raise NodeUnavailableError("it is away")
        self.taken.append((json.loads(body), headers))


def sender(post: Any, clock: Any, **settings: Any) -> HookSender:
    hook = HookSettings(**{"command": ("true",), **settings})
    return HookSender(hook, post, clock=clock, random=Random(1), log=node_log("manager", "m-1", "text"))


async def until(true: Callable[[], object], clock: ManualClock, step_s: float = 1.0) -> None:
    for _ in range(2_000):
        if true():
            return
        await asyncio.sleep(0)
        clock.advance(step_s)
    pytest.fail("it did not happen")


def run(story: Callable[[ManualClock], Any]) -> None:
    asyncio.run(story(ManualClock()))


def test_a_notice_that_is_refused_is_tried_again_with_pauses_until_it_is_taken() -> None:
    async def story(clock: ManualClock) -> None:
        post = Post(refuses=3)
        one = sender(post, clock)
        running, begun = asyncio.create_task(one.run()), clock.monotonic()
        one.offer(notice())
        await until(lambda: post.taken, clock, 0.25)
        assert post.tries == 4
        assert clock.monotonic() - begun >= 0.5 + 1 + 2  # half of 1, 2 and 4 s at the least
        assert post.taken[0][0] == {"id": "dc/j/failed", "event": "failed", "at": 12.0, "job_id": "j"}
        running.cancel()

    run(story)


def test_it_is_given_up_after_so_many_tries_and_the_next_one_goes() -> None:
    async def story(clock: ManualClock) -> None:
        post = Post(refuses=MOST_TRIES)
        one = sender(post, clock)
        running = asyncio.create_task(one.run())
        one.offer(notice("first"))
        one.offer(notice("second"))
        await until(lambda: post.taken, clock, 10.0)
        assert [body["id"] for body, _ in post.taken] == ["second"]
        assert one.dropped == 1
        running.cancel()

    run(story)


def test_a_queue_that_is_full_drops_the_oldest_and_holds_nobody_up() -> None:
    one = sender(Post(), ManualClock())
    for number in range(MOST_WAITING + 5):
        one.offer(notice(str(number)))
    assert one.dropped == 5


def test_a_hook_hears_only_what_it_asked_for() -> None:
    async def story(clock: ManualClock) -> None:
        post = Post()
        one = sender(post, clock, on=(HookEvent.FAILED, HookEvent.ALARM), queues=("gpu",))
        running = asyncio.create_task(one.run())
        one.offer(notice("1", HookEvent.COMPLETED))
        one.offer(notice("2", queue="cpu"))
        one.offer(notice("3", HookEvent.ALARM, queue=None))
        one.offer(notice("4"))
        await until(lambda: len(post.taken) == 2, clock)
        assert [body["id"] for body, _ in post.taken] == ["3", "4"]
        running.cancel()

    run(story)


class Receiver:
    """A real HTTP server that notes what comes."""

    def __init__(self, status: int = 204) -> None:
        got = self.got = list[tuple[str, Mapping[str, str], bytes]]()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                got.append((self.path, dict(self.headers), body))
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "http://127.0.0.1:9/elsewhere")
                self.end_headers()

            def log_message(self, *words: Any) -> None: ...

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/tenure?team=ops"
        self._thread = threading.Thread(target=self.server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


def test_a_request_is_signed_with_the_time_so_that_its_receiver_knows_us(receiver: Receiver, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(SECRET + b"\n")

    async def story() -> None:
        one = sender(HookDelivery(), SystemClock(), command=(), url=receiver.url, secret_file=str(tmp_path / "key"))
        running = asyncio.create_task(one.run())
        one.offer(notice())
        while not receiver.got:
            await asyncio.sleep(0.01)
        running.cancel()

    asyncio.run(story())
    path, headers, body = receiver.got[0]
    assert path == "/tenure?team=ops"
    at, _, given = headers["X-Tenure-Signature"].partition(",v1=")
    whole = at.removeprefix("t=").encode() + b"." + body
    assert given == hmac.new(SECRET, whole, hashlib.sha256).hexdigest()
    assert headers["X-Tenure-Signature"] == signature(SECRET, int(at.removeprefix("t=")), body)


def test_a_redirect_is_not_followed_and_an_error_is_a_failure(tmp_path: Path) -> None:
    moved = Receiver(302)
    hook = HookSettings(url=moved.url)
    try:
        with pytest.raises(NodeUnavailableError, match="answered 302"):
            asyncio.run(HookDelivery()(hook, b"{}", {}))
    finally:
        moved.close()


def test_a_command_gets_the_notice_on_its_standard_input_and_its_failure_is_told(tmp_path: Path) -> None:
    out = tmp_path / "out"
    script = f"import sys; open({str(out)!r}, 'w').write(sys.stdin.read())"
    asyncio.run(HookDelivery()(HookSettings(command=(sys.executable, "-c", script)), b'{"id": "x"}', {}))
    assert out.read_text() == '{"id": "x"}'
    for command in ((sys.executable, "-c", "raise SystemExit('no')"), ("/does/not/exist",)):
        with pytest.raises(NodeUnavailableError):
            asyncio.run(HookDelivery()(HookSettings(command=command), b"{}", {}))
    slow = HookSettings(command=(sys.executable, "-c", "import time; time.sleep(60)"), timeout_s=0.2)
    with pytest.raises(NodeUnavailableError, match="was not run"):
        asyncio.run(HookDelivery()(slow, b"{}", {}))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[hooks]]\n", "either a url or a command"),
        ('[[hooks]]\nurl = "ftp://x/y"\nsecret_file = "k"\n', "no address of http or https"),
        ('[[hooks]]\nurl = "https://x/y"\n', "has no secret_file"),
        ('[[hooks]]\nurl = "https://x/y"\nsecret_file = "SHORT"\n', "has 5 bytes"),
        ('[[hooks]]\ncommand = ["x"]\non = ["lunch"]\n', "Invalid enum value"),
        ("what", "cannot be read"),
    ],
)
def test_a_file_that_cannot_work_is_refused_at_the_start(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "short").write_text("short")
    (tmp_path / "hooks.toml").write_text(text.replace("SHORT", str(tmp_path / "short")))
    with pytest.raises(ConfigurationError, match=words):
        read_hooks(str(tmp_path / "hooks.toml"))


def test_an_alarm_is_told_when_it_begins_and_when_it_is_over() -> None:
    async def story(clock: ManualClock) -> None:
        post = Post()
        one = sender(post, clock)
        running = asyncio.create_task(one.run())
        told = HookNotices(Hooks([one]), "dc-a", "m1")
        alarm = Alarm(AlarmKind.NO_LEADER, "manager", "nobody is known to lead for 40 s", "Start a manager")
        told.alarm(alarm, 100.0, False)
        told.alarm(alarm, 100.0, True)
        await until(lambda: len(post.taken) == 2, clock)
        first, second = (body for body, _ in post.taken)
        assert (first["event"], first["kind"], first["reason"]) == ("alarm", "no_leader", alarm.reason)
        assert (second["event"], second["since"]) == ("alarm_over", 100.0)
        running.cancel()

    run(story)


def test_a_manager_tells_of_ended_jobs_with_the_first_sentence_of_why_and_a_new_leader_tells_again() -> None:
    async def story() -> None:
        group, post = ManagerGroup(), Post()
        one = sender(post, group.clock, on=tuple(HookEvent))
        running = asyncio.create_task(one.run())
        try:
            manager, _ = group.open("m1", hooks=Hooks([one]))
            await group.until(lambda: manager.leads)
            spec = WorkflowSpec(name="w")
            submission = JobSubmission(job_id="j", workflows=(spec,), queue="gpu", labels={"team": "x"}, park=True)
            await manager.answer("test", Submit(submission=submission))
            await manager.answer("test", Cancel(job_id="j", reason="enough", by="ada"))
            await group.until(lambda: post.taken)
            body, _ = post.taken[0]
            assert body["event"] == "cancelled"
            assert (body["job_id"], body["queue"], body["labels"]) == ("j", "gpu", {"team": "x"})
            assert body["reason"] == "ada cancelled it: enough"
            assert body["next_step"].endswith("tenure retry j")
            await group.kill("m1")
            successor, _ = group.open("m2", hooks=Hooks([one]))
            await group.until(lambda: successor.leads and len(post.taken) == 2)
            assert post.taken[1][0]["id"] == body["id"]  # so that its receiver knows it
        finally:
            running.cancel()
            await group.end()

    asyncio.run(story())
