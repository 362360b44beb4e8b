"""What is accepted can be served: submissions are generated from the types themselves, and each is played to its end on every engine.

A submission comes in as bytes through the door of a manager, is journaled and dispatched by its leader, claimed from the engine by a consumer that plays
the worker, shown as a view, in the list and in `why`, and answered with its result. Every reply is encoded as it would be sent.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from tests.contract.case import EngineCase, ServerCase
from tests.patience import PATIENCE_S, wait_until
from tests.soak import sized
from tests.typed_strategies import fields, values

from tenure.clock import SystemClock
from tenure.control.messages.jobs import (
    AskWhy,
    Done,
    GetJob,
    GetResult,
    JobView,
    ListJobs,
    ResultView,
    Submit,
    WhyReply,
)
from tenure.control.messages.operations import BY_NAME, decode_reply
from tenure.control.messages.wire import Reply, Request
from tenure.control.request_decoding import read_body
from tenure.engines import Engine
from tenure.engines.aio import calling
from tenure.errors import ConfigurationError
from tenure.jobs.mailbox_names import mailbox_name
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.jobs.settings import LIMITS
from tenure.jobs.submission import validate
from tenure.nodes.manager.manager import Manager, ManagerSetup
from tenure.nodes.process import Environment
from tenure.randomness import fresh_random, new_id
from tenure.work.delivery import WorkItem, WorkResult

UNPLAYED = (
    *("job_id", "workflows", "timeout_seconds", "stuck_threshold", "delay", "gate_addr", "result_ttl"),
    *("retry_from", "undo_of"),
)
"""A job that waits for a year, or has a millisecond, would end otherwise, and so would a result that is kept for one. A step to begin from and a job whose
compensations are to be run are those of a job that ended before; without it the submission is refused. So is a place of arguments that no leader gave."""


@st.composite
def submissions(draw: st.DrawFn) -> JobSubmission:
    """Any that the types allow, with the fields that contradict each other set right."""
    made = draw(fields(JobSubmission, *UNPLAYED))
    specs = draw(
        st.lists(
            fields(WorkflowSpec, "after", "stall", "retry", "arguments_at"),
            min_size=1,
            max_size=3,
            unique_by=lambda found: found["name"],
        )
    )
    workflows = tuple(
        WorkflowSpec(**found, after=tuple(earlier["name"] for earlier in specs[:place]))
        for place, found in enumerate(specs)
    )
    job_id = draw(values(msgspec.structs.fields(JobSubmission)[0].type))
    found = JobSubmission(job_id=job_id, workflows=workflows, **made)
    try:
        validate(found, LIMITS)
    except ConfigurationError:
        assume(False)  # together too large
    return found


class Played:
    """A manager on an engine, in a thread of its own."""

    def __init__(self, engine: Engine, other: Engine) -> None:
        self._engine, self.consumer = engine, other
        self._manager: Manager | None = None
        self._loop = asyncio.new_event_loop()
        self._life: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),), daemon=True)
        self.died: BaseException | None = None

    async def _run(self) -> None:
        async with calling(self._engine) as calls:
            environment = Environment(self._engine, calls, SystemClock(), fresh_random(), new_id)
            self._manager = Manager("m-1", "127.0.0.1:1", environment, ManagerSetup(term_s=30.0))
            self._life = asyncio.create_task(self._manager.run())
            try:
                await self._life
            except asyncio.CancelledError:
                pass
            except BaseException as error:
                self.died = error

    def __enter__(self) -> Played:
        self._thread.start()
        self.until(lambda: self._manager is not None and self._manager.leads)
        return self

    def __exit__(self, *error: object) -> None:
        if self._life is not None:
            self._loop.call_soon_threadsafe(self._life.cancel)
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        self._loop.close()

    def until(self, true: Callable[[], Any]) -> Any:
        def found() -> Any:
            assert self.died is None, f"the manager ended: {self.died!r}"
            return true()

        return wait_until(found)

    def ask(self, request: Request) -> Reply:
        """Through the bytes and the door, as over HTTP."""
        asked = read_body(BY_NAME[str(request.__struct_config__.tag)], msgspec.json.encode(request))
        assert self._manager is not None
        answer = asyncio.run_coroutine_threadsafe(self._manager.answer("test", asked), self._loop).result(PATIENCE_S)
        return decode_reply(msgspec.json.encode(answer))

    def work(self, submission: JobSubmission) -> list[WorkItem]:
        """Claim each workflow of a job and answer it with its own name."""
        mailbox = self.consumer.mailbox(
            mailbox_name(submission.queue or "default", submission.priority or 0), body=WorkItem, reply=WorkResult
        )
        done: list[WorkItem] = []
        for _ in submission.workflows:
            (message,) = self.until(lambda: mailbox.receive(1, 60, 1.0))
            item = message.body
            assert item.job_id == submission.job_id
            message.settle(
                WorkResult(
                    job_id=item.job_id,
                    workflow_id=item.workflow_id,
                    workflow=item.workflow,
                    attempt=item.attempt,
                    fence=(message.generation, message.delivery_count),
                    worker="w-1",
                    result=msgspec.Raw(msgspec.json.encode([item.workflow_id, item.args])),
                )
            )
            done.append(item)
        return done


@contextmanager
def played(case: EngineCase) -> Iterator[Played]:
    with Played(case.live(), case.live()) as found:
        yield found


def unlike_any_other(submission: JobSubmission) -> JobSubmission:
    """Under an id and keys that no other example has, as long as they were."""
    new = new_id()[:12]
    unique = submission.unique and msgspec.structs.replace(
        submission.unique, key=new + submission.unique.key[len(new) :]
    )
    job_id, key = (new + text[len(new) :] for text in (submission.job_id, submission.idempotency_key))
    return msgspec.structs.replace(submission, job_id=job_id, idempotency_key=key, unique=unique)


def play(datacenter: Played, submission: JobSubmission) -> None:
    submission = unlike_any_other(submission)
    job_id = submission.job_id
    done = datacenter.ask(Submit(submission=submission))
    assert isinstance(done, Done), done
    assert done.job_id == job_id
    items = datacenter.work(submission)
    assert [(one.workflow_id, one.workflow) for one in items] == [
        (one.name, one.called) for one in submission.workflows
    ]
    view = datacenter.ask(GetJob(job_id=job_id, wait_s=30.0))
    assert isinstance(view, JobView), view
    assert (view.state, view.queue, view.labels) == ("completed", submission.queue or "default", submission.labels)
    why = datacenter.ask(AskWhy(job_id=job_id))
    assert isinstance(why, WhyReply)
    assert why.text
    listed = datacenter.ask(ListJobs(name=job_id, limit=1))
    assert [row.job_id for row in listed.jobs] == [job_id]  # type: ignore[attr-defined]
    for item in items:
        result = datacenter.ask(GetResult(job_id=job_id, workflow=item.workflow_id))
        assert isinstance(result, ResultView)
        assert (result.ready, result.result[0]) == (True, item.workflow_id)


@pytest.mark.threads
@pytest.mark.timeout(600)
def test_what_is_accepted_is_journaled_dispatched_shown_and_answered(case: EngineCase) -> None:
    examples = 60 if case.name == "memory" else 5 if isinstance(case, ServerCase) else 12
    examples *= sized("times as many submissions to each engine", short=1, long=10)

    with played(case) as datacenter:

        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            # A failing example is played on a manager that may be gone: it is not made smaller.
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(submissions())
        def all_of_them(submission: JobSubmission) -> None:
            play(datacenter, submission)

        all_of_them()
