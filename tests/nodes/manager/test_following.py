"""A standby that gives a browser the leader's answer: two real managers on one engine, over HTTP."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from tests.nodes.served import Served
from tests.patience import wait_until

from tenure.control.async_caller import HttpCaller
from tenure.control.messages.jobs import Cancel, ListJobs
from tenure.control.messages.wire import Problem, ProblemKind
from tenure.nodes.manager.manager import Manager
from tenure.nodes.manager.serving import Following

FOLLOW = {"X-Tenure-Follow": "leader"}
JOB = {"job_id": "j-1", "workflows": [{"name": "w", "function": "encode"}]}


def entry(name: str, role: str) -> str:
    digest = hashlib.sha256(name.encode()).hexdigest()
    return f'[[tokens]]\nname = "{name}"\nrole = "{role}"\nsha256 = "{digest}"\n'


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Served]]:
    folder: Path = tmp_path_factory.mktemp("pair")
    tokens = folder / "tokens.toml"
    tokens.write_text(entry("ann", "operator") + entry("rita", "reader") + entry("node", "node"))
    shared = {"engine_url": f"sqlite:///{folder}/t.db", "tokens_file": str(tokens), "token": "node"}
    with Served(**shared) as leader, Served(leads=False, name="m-2", **shared) as standby:
        leader.ask("/v1/submit", {"submission": JOB}, token="ann")
        wait_until(lambda: standby.ask("/v1/jobs", token="ann").body.get("known") == 1)
        yield leader, standby


def test_without_the_header_a_standby_names_the_leader_as_before(pair: tuple[Served, Served]) -> None:
    leader, standby = pair
    answer = standby.ask("/v1/nodes", token="ann")
    assert (answer.status, answer.body["address"]) == (307, leader.host)


def test_with_it_reads_and_writes_come_back_from_the_leader(pair: tuple[Served, Served]) -> None:
    leader, standby = pair
    seen = standby.ask("/v1/overview", token="ann", headers=FOLLOW)
    assert (seen.status, seen.body["leader"]) == (200, f"m-1@{leader.address}")
    assert standby.ask("/v1/leader", token="ann", headers=FOLLOW).body["leads"] is True
    done = standby.ask("/v1/pause", {"queue": "q", "by": "dashboard"}, token="ann", headers=FOLLOW)
    assert (done.status, done.body["outcome"]) == (200, "accepted")
    assert leader.audited("pause")["by"] == "ann"  # whose token it was, and not the standby's


def test_nobody_may_do_through_a_standby_what_they_may_not_do(pair: tuple[Served, Served]) -> None:
    _, standby = pair
    assert standby.ask("/v1/overview", token="rita", headers=FOLLOW).status == 200
    assert standby.ask("/v1/cancel", {"job_id": "j-1"}, token="rita", headers=FOLLOW).status == 403
    assert standby.ask("/v1/overview", token="nobody", headers=FOLLOW).status == 401
    assert standby.ask("/v1/overview", headers=FOLLOW).status == 401


class Beside:
    """A manager beside a leader that is not there any more."""

    leadership = SimpleNamespace(other_leader="127.0.0.1:1")


def test_while_the_leader_is_silent_a_standby_tells_what_it_knows_and_promises_nothing() -> None:
    async def story() -> None:
        with closing(HttpCaller()) as caller:
            following = Following(cast("Manager", Beside()), caller)
            assert await following(ListJobs(), "") is None  # it answers itself
            refused = await following(Cancel(job_id="j-1"), "")
            assert isinstance(refused, Problem)
            assert (refused.kind, refused.retryable) == (ProblemKind.UNAVAILABLE, True)

    asyncio.run(story())
