"""`LoopGroup(isolation="process")`: a loop that hangs, even inside C, is killed alone, and the others lose nothing."""

from __future__ import annotations

import collections
import itertools
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.process.stillness import Stillness

from tenure.backoff import Retry
from tenure.engines import Engine
from tenure.engines.contracts import Message
from tenure.errors import LoopDiedError, LoopProcessError
from tenure.work import FunctionLoop, LoopGroup

LONG = {"visibility_timeout": 60, "wait_time_seconds": 0.2, "watchdog_threshold": 30, "watchdog_interval": 0.2}
STRICT_S = 2.5
STRICT = {"visibility_timeout": 5, "wait_time_seconds": 0.2, "watchdog_threshold": STRICT_S, "watchdog_interval": 0.2}


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine.open(f"sqlite:///{tmp_path}/t.db") as engine:
        yield engine


def hang_once(message: Message[Any, Any], heartbeat: Any) -> list[Any]:
    if message.delivery_count == 1:
        collections.deque(itertools.repeat(0), maxlen=0)
    return [os.getpid(), message.body]


def tell_pid(message: Message[Any, Any], heartbeat: Any) -> list[Any]:
    heartbeat.beat(progress=0.5)
    return [os.getpid(), message.body]


def raise_it(message: Message[Any, Any], heartbeat: Any) -> None:
    raise SystemExit("this loop gives up")


def answers(engine: Engine, count: int, seconds: float = 180.0) -> list[Any]:
    mailbox, found = engine.mailbox("answers"), []
    until = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < until:
        for message in mailbox.receive(1, 60, 1):
            found.append(message.body)
            message.acknowledge()
    return found


def test_each_loop_has_a_process_of_its_own_and_the_probe_sees_its_beats(engine: Engine) -> None:
    loops = [FunctionLoop(engine.mailbox(name), tell_pid, name=name) for name in ("a", "b")]
    with LoopGroup(loops, isolation="process", **LONG) as group:  # type: ignore[arg-type]
        for name in ("a", "b"):
            engine.mailbox(name).send(name, reply_to="answers")
        found = {body: pid for pid, body in answers(engine, 2)}
        assert set(found) == {"a", "b"}
        assert len({*found.values(), os.getpid()}) == 3
        until = time.monotonic() + 180
        while not (group.readiness().ready and loops[0].heartbeat.count > 1) and time.monotonic() < until:
            time.sleep(0.05)
        assert group.readiness().ready, group.readiness()
        assert loops[0].heartbeat.count > 1
    for pid in found.values():
        assert not Path(f"/proc/{pid}").exists()


def test_a_loop_that_hangs_inside_c_is_killed_alone_and_started_again(engine: Engine) -> None:
    bad = FunctionLoop(engine.mailbox("bad"), hang_once, name="bad")
    good = FunctionLoop(engine.mailbox("good"), tell_pid, name="good")
    options: dict[str, Any] = {**STRICT, "on_loop_death": "restart", "restart": Retry(delay=0.05)}
    with LoopGroup([bad, good], isolation="process", **options):
        with Stillness() as machine:
            engine.mailbox("good").send("before", reply_to="answers")
            [(first, _)] = answers(engine, 1)
            engine.mailbox("bad").send("x", reply_to="answers")
            [(_, body)] = answers(engine, 1)
            engine.mailbox("good").send("after", reply_to="answers")
            [(after, _)] = answers(engine, 1)
        assert body == "x"  # hung at its first delivery, and was done at a later one
        assert after == first or machine.excuses(STRICT_S / 2), "the good loop lost its process"


def test_a_loop_whose_process_dies_ends_the_group_with_the_reason(engine: Engine) -> None:
    loop = FunctionLoop(engine.mailbox("a"), raise_it, name="a")
    group = LoopGroup([loop], isolation="process", **LONG)  # type: ignore[arg-type]
    engine.mailbox("a").send("x")
    with pytest.raises(LoopDiedError) as caught:
        group.run()
    assert isinstance(caught.value.error, LoopProcessError)
    assert "this loop gives up" in str(caught.value)


def test_a_process_that_somebody_kills_is_noticed(engine: Engine) -> None:
    loop = FunctionLoop(engine.mailbox("a"), tell_pid, name="a")
    group = LoopGroup([loop], isolation="process", **LONG)  # type: ignore[arg-type]
    died: list[BaseException] = []

    def run() -> None:
        try:
            group.run()
        except LoopDiedError as error:
            died.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    engine.mailbox("a").send("x", reply_to="answers")
    [(pid, _)] = answers(engine, 1)
    os.kill(pid, signal.SIGKILL)
    thread.join(180)
    assert "was ended by signal 9" in str(died[0])
