"""What each page leaves to its reader: a model, a shop, a datacenter that runs somewhere. A page's code runs with these names.

A stage is real where it can be (`TestDatacenter` is a `Client` with its datacenter inside, on a manual clock), and ends by asking whether the page's code
did what the page says.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

import tenure
from tenure import Permanent, workflow
from tenure.agent import MainLoopResult
from tenure.beat.heartbeat import Heartbeat
from tenure.clock import ManualClock, SystemClock
from tenure.engines import Engine
from tenure.gossip import GossipNode, GossipSettings
from tenure.nodes.manager.hooks import signature
from tenure.testing import TestDatacenter
from tenure.testing.model_server import ModelServer
from tenure.work import LoopGroup

Names = dict[str, Any]
Stage = Callable[[pytest.MonkeyPatch, TestDatacenter, Names], AbstractContextManager[None]]
SECRET = b"a secret of 32 bytes, or longer.."


def run_one_round(self: LoopGroup) -> None:
    """Takes the place of `LoopGroup.run`, which ends with its process: each loop takes what waits for it, and returns."""
    for loop in self.loops:
        loop.run(max_iterations=1, wait_time_seconds=1)


@contextmanager
def agents(monkeypatch: pytest.MonkeyPatch, datacenter: TestDatacenter, names: Names) -> Iterator[None]:
    monkeypatch.setattr(LoopGroup, "run", run_one_round)
    names["database"] = SimpleNamespace(pages=lambda customer: [["tea"], ["cake"]])
    with ModelServer(["It is on its way.", "Looks fine."]) as server, Engine.open("sqlite:///work.db") as engine:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        answers = engine.mailbox("answers", MainLoopResult[str])
        engine.mailbox("support").send({"request": {"text": "Where is it?"}, "request_id": "r1"}, reply_to=answers)
        yield
        [answer] = answers.receive()
        assert answer.body.output == "It is on its way."
        assert [tool["function"]["name"] for tool in server.requests[0]["tools"]] == ["orders"]
        names["engine"].close()
        with TestDatacenter(clock=ManualClock(wall=SystemClock().wall())) as today:  # SDKs ask the real time
            found = today.submit(names["review"], text="a change").wait()
        assert found.output == "Looks fine.", found


@contextmanager
def beats(monkeypatch: pytest.MonkeyPatch, datacenter: TestDatacenter, names: Names) -> Iterator[None]:
    done: list[str] = []
    monkeypatch.setattr(LoopGroup, "run", run_one_round)
    names |= {"load": list, "work": done.append, "heartbeat": Heartbeat(), "model": str.upper, "prompt": "a plan"}
    with Engine.open("sqlite:///work.db") as engine:
        engine.mailbox("encode").send("film")
        yield
        assert done == list("film")
        assert names["answer"] == "A PLAN"
        assert engine.mailbox("encode").approximate_count() == 0
    names["engine"].close()


@contextmanager
def clients(monkeypatch: pytest.MonkeyPatch, datacenter: TestDatacenter, names: Names) -> Iterator[None]:
    monkeypatch.setattr(tenure, "Client", lambda addresses: datacenter)
    monkeypatch.setattr(TestDatacenter, "close", lambda self: None)  # the page closes its client, and goes on with it
    names["client"] = datacenter
    yield
    assert names["job"].wait() == 45


@contextmanager
def flows(monkeypatch: pytest.MonkeyPatch, datacenter: TestDatacenter, names: Names) -> Iterator[None]:
    def charge(customer: str) -> Any:
        return SimpleNamespace(status=200, receipt=f"receipt of {customer}")

    names |= {"shop": SimpleNamespace(charge=charge), "download": lambda url: ["a", "bc"], "client": datacenter}
    yield
    datacenter.serve(names["fetch"], names["report"])
    found = datacenter.get("nightly").wait()
    assert found == {"fetch": [1, 2], "report": "2 rows"}, found


@contextmanager
def jobs(monkeypatch: pytest.MonkeyPatch, datacenter: TestDatacenter, names: Names) -> Iterator[None]:
    with Engine.open("memory://") as engine:
        names |= {"journal": engine.journal("jobs"), "mailbox": engine.mailbox("work"), "now": 1_700_000_000.0}
        yield
        assert names["mailbox"].approximate_count() == 1


@contextmanager
def outages(monkeypatch: pytest.MonkeyPatch, datacenter: TestDatacenter, names: Names) -> Iterator[None]:
    async def model(prompt: str) -> str:
        return prompt.upper()

    names |= {"model": model, "upload": print}
    yield


@contextmanager
def waiting(monkeypatch: pytest.MonkeyPatch, datacenter: TestDatacenter, names: Names) -> Iterator[None]:
    yield

    @workflow
    def asks(ctx: Any) -> str:
        ctx.emit("asked")
        ctx.step("fetch", str, "a")
        ctx.step("convert", str, "b")
        who = str(ctx.wait_event("approved")["by"])
        if who == "ada":
            raise Permanent("the code is wrong")
        return who

    job = datacenter.submit(asks)
    names["approve"](datacenter, job.id)
    names["approve"](datacenter, job.id)
    with pytest.raises(tenure.JobFailed):
        job.wait()
    names["show"](datacenter, job.id)
    again = names["again"](datacenter, job.id)
    datacenter.signal(again, "approved", {"by": "bob"})
    assert datacenter.get(again).wait() == "bob"


@contextmanager
def gossip(monkeypatch: pytest.MonkeyPatch, datacenter: TestDatacenter, names: Names) -> Iterator[None]:
    """A member on this machine takes the place of the seeds, and of the address that the page binds to."""
    seed: list[str] = []
    there, over = threading.Event(), threading.Event()

    async def live() -> None:
        async with GossipNode("seed", bind=("127.0.0.1", 0), settings=GossipSettings.lan()) as node:
            seed.append("{}:{}".format(*node.address))
            there.set()
            await asyncio.to_thread(over.wait)

    class Here(GossipNode):
        def __init__(self, name: str, *, bind: Any, **given: Any) -> None:
            super().__init__(name, bind=("127.0.0.1", 0), **given)

        async def join(self, seeds: Any) -> Any:
            assert seeds
            return await super().join(seed)

    monkeypatch.setattr("tenure.gossip.GossipNode", Here)
    thread = threading.Thread(target=asyncio.run, args=(live(),))
    thread.start()
    try:
        assert there.wait(180)
        names["keyring"] = None
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def datacenter(monkeypatch: pytest.MonkeyPatch, _: TestDatacenter, names: Names) -> Iterator[None]:
    yield
    now = int(SystemClock().wall())
    assert names["is_ours"](signature(SECRET, now, b"{}"), b"{}", SECRET)
    assert not names["is_ours"](signature(SECRET, now, b"{}"), b"[]", SECRET)
    assert not names["is_ours"](signature(SECRET, now - 400, b"{}"), b"{}", SECRET)


@contextmanager
def celery(monkeypatch: pytest.MonkeyPatch, datacenter: TestDatacenter, names: Names) -> Iterator[None]:
    monkeypatch.setattr(tenure, "Client", lambda addresses: datacenter)
    names["paths"] = ["a", "b", "c"]
    yield
    assert names["job"].wait() == 3


STAGES: dict[str, Stage] = {
    stage.__name__: stage
    for stage in (agents, beats, celery, clients, datacenter, flows, gossip, jobs, outages, waiting)
}
"""Maps the name of a page to its stage. A page without one leaves nothing to its reader."""
