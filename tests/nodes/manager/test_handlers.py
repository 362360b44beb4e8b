"""What operators and clients ask beyond one job: many at once, results, retries, logs, queues, nodes, dead letters. Through Manager.answer."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from tests.nodes.manager.harness import ManagerGroup, ask, submission
from tests.nodes.manager.harness import run_group as run

from tenure.control.claims import Scope, showing
from tenure.control.messages.events import GetEvents
from tenure.control.messages.job_output import EvidenceView, GetEvidence, GetLogs, LogPage
from tenure.control.messages.jobs import (
    AwaitJobs,
    Cancel,
    Done,
    GetJob,
    GetResult,
    ManySubmitted,
    ResultView,
    RetryJob,
    Submit,
    SubmitMany,
)
from tenure.control.messages.nodes import DrainNode, ListNodes, NodeList, UndrainNode
from tenure.control.messages.queues import (
    ChangeQueue,
    DeadLetterList,
    DeadLetterView,
    DiscardDeadLetter,
    GetDeadLetter,
    LetterDone,
    ListDeadLetters,
    ListQueues,
    PauseQueue,
    QueueList,
    ReplayDeadLetter,
    ResumeQueue,
)
from tenure.control.messages.tokens import CallerBounds
from tenure.control.messages.wire import AskLeader, Problem, ProblemKind, Redirect
from tenure.control.messages.workers import AttemptReport, WorkerReport
from tenure.engines.aio import calls_for
from tenure.engines.contracts import Fence
from tenure.health.signals import RoutingDecision
from tenure.jobs import JobSubmission, Outcome
from tenure.jobs.model import WorkflowSpec
from tenure.jobs.states import JobState
from tenure.jobs.unique_jobs import RETRY_OF, next_id
from tenure.nodes.manager.job_handlers import EVIDENCE, LOGS, cut
from tenure.nodes.manager.ledger import JOURNAL
from tenure.nodes.manager.manager import Manager
from tenure.nodes.manager.operator_handlers import Presence


async def led(group: ManagerGroup, name: str = "m-1") -> Manager:
    manager, _ = group.open(name)
    await group.until(lambda: manager.leads)
    return manager


async def completed(group: ManagerGroup, manager: Manager, job_id: str, value: Any = 1) -> None:
    await ask(manager, Submit(submission=submission(job_id)))
    await group.until(lambda: group.work.depth().ready)
    group.answer(group.claim(), value)
    await group.until(lambda: manager.jobs.has_ended(job_id))


def test_many_submissions_are_few_appends_and_each_has_its_own_outcome() -> None:
    async def story(group: ManagerGroup) -> None:
        manager = await led(group)
        await ask(manager, Submit(submission=submission("old")))
        journal = group.engine.journal(JOURNAL)
        before = journal.head().seq
        given = [submission(f"j-{n}") for n in range(50)]
        given += [submission("old"), submission("old", timeout_seconds=9), JobSubmission(job_id="empty", workflows=())]
        given += [submission("j-3")]
        reply = await ask(manager, SubmitMany(submissions=tuple(given)))
        assert isinstance(reply, ManySubmitted)
        assert [one.outcome for one in reply.jobs[:50]] == [Outcome.ACCEPTED] * 50
        assert [one.outcome for one in reply.jobs[50:]] == ["already", "refused", "refused", "already"]
        assert [one.problem for one in reply.jobs[51:53]] == [ProblemKind.CONFLICT, ProblemKind.INVALID]
        submitted = [e for e in journal.read(before) if any(b'"JobSubmitted"' in event for event in e.events)]
        assert len(submitted) == 1
        again = await ask(manager, SubmitMany(submissions=tuple(given[:50])))
        assert {one.outcome for one in again.jobs} == {Outcome.ALREADY}

    run(story)


def test_one_of_many_that_cannot_be_begun_leaves_each_other_outcome_in_its_place() -> None:
    """Refusals were kept by id: an id that was named twice moved all the outcomes behind it by one."""

    async def story(group: ManagerGroup) -> None:
        manager = await led(group)
        broken = submission("twice", retry_of="gone", retry_from="a step")
        given = (submission("twice"), broken, JobSubmission(job_id="empty", workflows=()), submission("last"))
        reply = await ask(manager, SubmitMany(submissions=given))
        assert [one.outcome for one in reply.jobs] == ["accepted", "refused", "refused", "accepted"]

    run(story)


def test_many_submissions_go_to_the_leader_and_are_bounded() -> None:
    async def story(group: ManagerGroup) -> None:
        manager = await led(group)
        standby, _ = group.open("m-2")
        await group.until(lambda: standby.ledger.book.epoch == 1)
        assert isinstance(await ask(standby, SubmitMany(submissions=(submission("a"),))), Redirect)
        for count in (0, 1_001):
            reply = await ask(manager, SubmitMany(submissions=tuple(submission(f"j-{n}") for n in range(count))))
            assert isinstance(reply, Problem)
            assert "submissions" in reply.fact

    run(story)


def test_a_result_is_ready_when_its_workflow_completed() -> None:
    async def story(group: ManagerGroup) -> None:
        manager = await led(group)
        await ask(manager, Submit(submission=submission("j")))
        early = await ask(manager, GetResult(job_id="j"))
        assert isinstance(early, ResultView)
        assert (early.ready, early.state) == (False, JobState.PENDING)
        waiting = asyncio.create_task(ask(manager, GetResult(job_id="j", wait_s=30)))
        await group.until(lambda: group.work.depth().ready)
        group.answer(group.claim(), {"frames": 7})
        await group.until(waiting.done)
        assert (waiting.result().ready, waiting.result().result) == (True, {"frames": 7})
        await ask(manager, Submit(submission=submission("k")))
        await ask(manager, Cancel(job_id="k", reason="enough"))
        ended = await ask(manager, GetResult(job_id="k", wait_s=1))
        assert (ended.ready, ended.state) == (False, JobState.CANCELLED)
        assert "enough" in ended.error
        assert (await ask(manager, GetResult(job_id="nobody"))).kind is ProblemKind.UNKNOWN

    run(story)


def test_a_job_of_several_workflows_wants_to_know_which() -> None:
    async def story(group: ManagerGroup) -> None:
        manager = await led(group)
        several = JobSubmission(job_id="j", workflows=(WorkflowSpec(name="a"), WorkflowSpec(name="b")))
        await ask(manager, Submit(submission=several))
        for request in (GetResult(job_id="j"), GetLogs(job_id="j"), GetEvidence(job_id="j", workflow="../c")):
            reply = await ask(manager, request)
            assert isinstance(reply, Problem)
            assert (reply.kind, reply.remedy) == (ProblemKind.IMPOSSIBLE, "Name one of: a, b")
        assert (await ask(manager, GetResult(job_id="j", workflow="b"))).workflow == "b"

    run(story)


def test_a_retry_is_a_new_job_that_names_the_old_one_once_however_often_it_is_asked() -> None:
    async def story(group: ManagerGroup) -> None:
        manager = await led(group)
        await ask(manager, Submit(submission=submission("j", idempotency_key="once", labels={"team": "x"})))
        assert (await ask(manager, RetryJob(job_id="j"))).kind is ProblemKind.CONFLICT
        await ask(manager, Cancel(job_id="j"))
        first = await ask(manager, RetryJob(job_id="j", by="ann"))
        again = await ask(manager, RetryJob(job_id="j", by="ann"))
        assert isinstance(first, Done)
        assert (first.job_id, first.outcome, again.outcome) == ("j~2", Outcome.ACCEPTED, Outcome.ALREADY)
        view = await ask(manager, GetJob(job_id="j~2"))
        assert (view.labels, view.submitted_by) == ({"team": "x", RETRY_OF: "j"}, "ann")
        await ask(manager, Cancel(job_id="j~2"))
        assert (await ask(manager, RetryJob(job_id="j~2"))).job_id == "j~3"
        assert (await ask(manager, RetryJob(job_id="j", new_job_id="mine"))).job_id == "mine"
        assert (await ask(manager, RetryJob(job_id="nobody"))).kind is ProblemKind.UNKNOWN

    run(story)


@pytest.mark.parametrize("asked", [None, 120.0])
def test_a_retry_keeps_a_stuck_threshold_that_was_asked_for_and_derives_any_other_anew(asked: float | None) -> None:
    async def story(group: ManagerGroup) -> None:
        manager = await led(group)
        await ask(manager, Submit(submission=submission("j", stuck_threshold=asked)))
        await ask(manager, Cancel(job_id="j"))
        await ask(manager, RetryJob(job_id="j"))
        tracking = manager.ledger.book.job("j~2").timeout_tracking
        assert (tracking.stuck_threshold, tracking.stuck_chosen) == (120.0, asked is not None)

    run(story)


def test_a_retry_may_have_another_deadline() -> None:
    """A job that missed its deadline would miss it again."""

    async def story(group: ManagerGroup) -> None:
        manager = await led(group)
        await ask(manager, Submit(submission=submission("j", timeout_seconds=60.0)))
        await ask(manager, Cancel(job_id="j"))
        for name, asked in (("as-before", None), ("longer", 600.0)):
            await ask(manager, RetryJob(job_id="j", new_job_id=name, timeout_seconds=asked))
            view = await ask(manager, GetJob(job_id=name))
            assert round(view.deadline - view.submitted_at) == (asked or 60.0)

    run(story)


def test_a_job_whose_deadline_is_below_the_derived_stuck_threshold_can_be_retried() -> None:
    """Its threshold was taken for one that somebody had asked for, and the ladder refused the retry."""

    async def story(group: ManagerGroup) -> None:
        manager = await led(group)
        await ask(manager, Submit(submission=submission("j", timeout_seconds=60.0)))
        await ask(manager, Cancel(job_id="j"))
        assert (await ask(manager, RetryJob(job_id="j"))).job_id == "j~2"

    run(story)


def test_a_job_that_left_memory_can_still_be_retried_and_asked_for() -> None:
    async def story(group: ManagerGroup) -> None:
        manager, _ = group.open("m-1", archive_after=1.0)
        await group.until(lambda: manager.leads)
        await completed(group, manager, "j", 42)
        await group.until(lambda: "j" not in manager.ledger.book.jobs)
        assert (await ask(manager, GetResult(job_id="j"))).result == 42
        assert (await ask(manager, RetryJob(job_id="j"))).job_id == "j~2"

    run(story)


@pytest.mark.parametrize(
    ("old", "new"), [("a", "a~2"), ("a~2", "a~3"), ("a~b", "a~b~2"), ("a~9", "a~10"), ("~2", "~3")]
)
def test_retries_are_numbered(old: str, new: str) -> None:
    assert next_id(old) == new


def log(*texts: str) -> bytes:
    return b"".join(msgspec.json.encode({"at": 1.0, "level": "info", "text": text}) + b"\n" for text in texts)


def test_looking_for_the_ends_of_jobs_that_many_wait_for_unpacks_nothing() -> None:
    async def story(group: ManagerGroup) -> None:
        manager, _ = group.open("m-1", setup={"raise_format": True})
        await group.until(lambda: manager.leads and manager.ledger.book.pages is not None)
        names = [f"j-{number}" for number in range(100)]
        for name in names:
            await ask(manager, Submit(submission=submission(name)))
        book = manager.ledger.book
        assert book.pages is not None
        waiting = asyncio.create_task(ask(manager, AwaitJobs(job_ids=tuple(names), wait_s=30)))
        await group.until(lambda: not manager.ledger.writing and not any(book.ready.values()))
        for number in list(book.pages.sections["jobs"].members):
            book.jobs.pack(number)
        assert book.jobs.packed > 50
        before = book.jobs.unpackings, book.jobs.copies
        for _ in range(10):
            manager.jobs.look()
        assert not any(map(manager.jobs.has_ended, names))
        assert (book.jobs.unpackings, book.jobs.copies) == before
        await ask(manager, Cancel(job_id="j-7"))
        await group.until(waiting.done)
        assert [one.job_id for one in waiting.result().jobs] == ["j-7"]

    run(story)


def test_a_log_is_read_page_by_page_until_its_attempt_has_ended() -> None:
    async def story(group: ManagerGroup) -> None:
        manager = await led(group)
        await ask(manager, Submit(submission=submission("j")))
        empty = await ask(manager, GetLogs(job_id="j"))
        assert isinstance(empty, LogPage)
        assert (empty.lines, empty.next, empty.ended) == ((), 0, False)
        name = empty.workflow
        group.engine.store(LOGS).put(f"j/{name}/1", log("one", "two"), fence=Fence(1, 1))
        page = await ask(manager, GetLogs(job_id="j", limit=1))
        assert ([line.text for line in page.lines], page.more, page.ended) == (["one"], True, False)
        group.engine.store(LOGS).put(f"j/{name}/1", log("one", "two", "three"), fence=Fence(1, 1))
        rest = await ask(manager, GetLogs(job_id="j", offset=page.next))
        assert ([line.text for line in rest.lines], rest.more) == (["two", "three"], False)
        await ask(manager, Cancel(job_id="j"))
        last = await ask(manager, GetLogs(job_id="j", offset=rest.next))
        assert (last.lines, last.ended) == ((), True)

    run(story)


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (GetLogs(job_id="j", offset=-1), ProblemKind.INVALID),
        (GetLogs(job_id="j", limit=0), ProblemKind.INVALID),
        (GetLogs(job_id="j", attempt=2), ProblemKind.IMPOSSIBLE),
        (GetLogs(job_id="j", attempt=-1), ProblemKind.INVALID),
        (GetLogs(job_id="j", workflow="../../etc/passwd"), ProblemKind.IMPOSSIBLE),
        (GetEvidence(job_id="j", attempt=99), ProblemKind.IMPOSSIBLE),
    ],
)
def test_a_log_that_there_is_not_is_refused(wrong: Any, kind: ProblemKind) -> None:
    async def story(group: ManagerGroup) -> None:
        manager = await led(group)
        await ask(manager, Submit(submission=submission("j")))
        # What no log can be is out of bounds; which logs there are is only known here.
        assert (await ask(manager, wrong)).kind is kind

    run(story)


def test_nothing_of_a_log_is_lost_whatever_the_limits_are() -> None:
    data = log(*(f"line {number} " + "x" * (number % 50) for number in range(200)))
    for limit in (1, 50, 333, 100_000):
        seen, offset = [], 0
        while offset < len(data):
            lines, offset = cut(data, offset, limit)
            seen += lines
        assert [line.text.split()[1] for line in seen] == [str(number) for number in range(200)]
    assert cut(data, len(data) + 5, 10) == ((), len(data) + 5)
    assert cut(data[:-1], 0, 1 << 20)[1] < len(data)  # a line that is being written is left for the next page


def test_what_was_found_of_a_dead_attempt_is_shown() -> None:
    async def story(group: ManagerGroup) -> None:
        manager = await led(group)
        await ask(manager, Submit(submission=submission("j")))
        nothing = await ask(manager, GetEvidence(job_id="j"))
        assert isinstance(nothing, EvidenceView)
        assert nothing.found is None
        group.engine.store(EVIDENCE).put(f"j/{nothing.workflow}/1", b'{"cause":"stall","evidence":{"stack":"..."}}')
        assert (await ask(manager, GetEvidence(job_id="j"))).found["evidence"] == {"stack": "..."}

    run(story)


def test_a_paused_queue_starts_nothing_until_it_is_resumed() -> None:
    async def story(group: ManagerGroup) -> None:
        manager = await led(group)
        assert (await ask(manager, PauseQueue(queue="default", by="ann"))).outcome == "accepted"
        assert (await ask(manager, PauseQueue(queue="default"))).outcome == "already"
        await ask(manager, ChangeQueue(queue="default", max_running=5))
        await ask(manager, Submit(submission=submission("j")))
        for _ in range(100):
            await asyncio.sleep(0)
        listed = await ask(manager, ListQueues())
        assert isinstance(listed, QueueList)
        (queue,) = listed.queues
        assert (queue.name, queue.paused, queue.max_running, queue.held, queue.queued) == ("default", True, 5, 1, 0)
        await ask(manager, ResumeQueue(queue="default"))
        await group.until(lambda: manager.ledger.book.queued.get(("default", 0)))
        (queue,) = (await ask(manager, ListQueues())).queues
        assert (queue.paused, queue.max_running, queue.held, queue.queued, queue.priorities) == (False, 5, 0, 1, (0,))
        await ask(manager, ChangeQueue(queue="default", max_running=None, rate=2.5, burst=3))
        (queue,) = (await ask(manager, ListQueues())).queues
        assert (queue.max_running, queue.rate, queue.burst) == (None, 2.5, 3)
        assert (await ask(manager, ChangeQueue(queue="default", rate=-1.0))).kind is ProblemKind.INVALID
        assert (await ask(manager, PauseQueue(queue=""))).kind is ProblemKind.INVALID

    run(story)


def test_the_leader_lists_managers_and_workers_and_who_was_drained() -> None:
    async def story(group: ManagerGroup) -> None:
        manager, leadership = group.open("m-1")
        await group.until(lambda: manager.leads)
        standby, _ = group.open("m-2")
        await group.until(lambda: standby.ledger.book.epoch == 1)
        presence = Presence(
            group.engine,
            calls_for(group.engine),
            group.clock,
            node=lambda: manager.node("m-1", "m-1:8470"),
            now=manager.now,
        )
        group.tasks["presence"] = asyncio.create_task(presence.run())
        report = WorkerReport(
            worker="w-1",
            incarnation="w-1#1",
            slots=4,
            free=3,
            lanes=("default.p0",),
            version="0.1",
            attempts=(AttemptReport(job_id="j", workflow="w", attempt=1, delivery=1, steps=1),),
        )
        await ask(manager, report)
        held = asyncio.create_task(
            ask(
                manager,
                msgspec.structs.replace(report, number=1, verdict=RoutingDecision.ROUTE, attempts=(), wait_s=30),
            )
        )
        for _ in range(100):
            await asyncio.sleep(0)
        assert not held.done()
        for node in ("w-1", "elsewhere"):
            assert (await ask(manager, DrainNode(node=node, reason="new kernel", by="ann"))).outcome == "accepted"
            assert (await ask(manager, DrainNode(node=node))).outcome == "already"
        await group.until(held.done, seconds=1)
        assert (held.result().verdict, held.result().reason) == ("drain", "drained by ann: new kernel")
        await group.until(lambda: group.engine.store("nodes").list())
        listed = await ask(manager, ListNodes())
        assert isinstance(listed, NodeList)
        assert [(one.name, one.address, one.leads, one.epoch) for one in listed.managers] == [
            ("m-1", "m-1:8470", True, 1)
        ]
        by_name = {one.name: one for one in listed.workers}
        worker = by_name["w-1"]
        assert (worker.slots, worker.lanes, worker.version) == (4, ("default.p0",), "0.1")
        assert (worker.drained, worker.verdict, worker.reason) == (True, "drain", "new kernel")
        assert 0 < worker.left_s <= 30
        assert (by_name["elsewhere"].verdict, by_name["elsewhere"].reason) == ("drain", "new kernel")
        assert (await ask(manager, UndrainNode(node="w-1"))).outcome == "accepted"
        assert not next(one for one in (await ask(manager, ListNodes())).workers if one.name == "w-1").drained
        assert isinstance(await ask(standby, ListNodes()), Redirect)
        assert (await ask(manager, DrainNode(node=""))).kind is ProblemKind.INVALID
        await group.kill("presence")
        assert group.engine.store("nodes").list() == []
        assert leadership.leader is not None

    run(story)


def test_a_drain_stands_over_a_lost_leader_and_a_restart_of_the_worker() -> None:
    async def story(group: ManagerGroup) -> None:
        first = await led(group)
        second, _ = group.open("m-2")
        await ask(first, WorkerReport(worker="w-1", incarnation="w-1#1"))
        await ask(first, DrainNode(node="w-1", by="ann"))
        await group.kill("m-1")
        await group.until(lambda: second.leads)
        told = await ask(second, WorkerReport(worker="w-1", incarnation="w-1#2"))
        assert (told.verdict, told.reason) == ("drain", "drained by ann")
        await ask(second, UndrainNode(node="w-1"))
        told = await ask(second, WorkerReport(worker="w-1", incarnation="w-1#2", number=1))
        assert told.reason != "drained by ann"

    run(story)


def test_dead_letters_are_listed_shown_replayed_and_discarded() -> None:
    async def story(group: ManagerGroup) -> None:
        manager = await led(group)
        box = group.engine.mailbox("work")
        for number in range(3):
            box.send({"n": number})
            box.receive(1, 60)[0].dead_letter(f"broken {number}")
        listed = await ask(manager, ListDeadLetters())
        assert isinstance(listed, DeadLetterList)
        assert [(one.mailbox, one.cause, one.reason) for one in listed.letters] == [
            ("work", "rejected", f"broken {number}") for number in range(3)
        ]
        assert listed.count == 3
        first, second, third = (one.id for one in listed.letters)
        page = await ask(manager, ListDeadLetters(mailbox="work", limit=1, after=first))
        assert ([one.id for one in page.letters], page.count) == ([second], 3)
        shown = await ask(manager, GetDeadLetter(mailbox="work", id=second))
        assert isinstance(shown, DeadLetterView)
        assert shown.body == {"n": 1}
        done = await ask(manager, ReplayDeadLetter(mailbox="work", id=first))
        assert isinstance(done, LetterDone)
        assert (done.outcome, box.receive(1, 60)[0].body) == ("accepted", {"n": 0})
        assert (await ask(manager, ReplayDeadLetter(mailbox="work", id=first))).outcome == "nothing"
        assert (await ask(manager, DiscardDeadLetter(mailbox="work", id=second))).outcome == "accepted"
        assert [one.id for one in (await ask(manager, ListDeadLetters(mailbox="work"))).letters] == [third]
        assert (await ask(manager, GetDeadLetter(mailbox="work", id=second))).kind is ProblemKind.UNKNOWN
        for wrong in (ListDeadLetters(limit=0), ListDeadLetters(mailbox="a b")):
            assert (await ask(manager, wrong)).kind is ProblemKind.INVALID
        assert (await ask(manager, ListDeadLetters(after="x"))).kind is ProblemKind.IMPOSSIBLE

    run(story)


def test_a_dead_letter_whose_key_has_a_newer_message_is_not_replayed() -> None:
    async def story(group: ManagerGroup) -> None:
        manager = await led(group)
        box = group.engine.mailbox("work")
        box.send("old", key="k", generation=1)
        box.receive(1, 60)[0].dead_letter("broken")
        box.send("new", key="k", generation=2)
        (letter,) = (await ask(manager, ListDeadLetters(mailbox="work"))).letters
        reply = await ask(manager, ReplayDeadLetter(mailbox="work", id=letter.id))
        assert (reply.kind, letter.key) == (ProblemKind.CONFLICT, "k")

    run(story)


def test_a_dead_letter_whose_body_is_no_text_is_shown_all_the_same() -> None:
    async def story(group: ManagerGroup) -> None:
        manager, _ = group.open("m-1")
        await group.until(lambda: manager.leads)
        box = group.engine.mailbox("work", Any, Any)
        box.send(msgspec.Raw(b'{"n":"\xff"}'))
        assert box.receive(1, 60) == []  # it cannot be read, so it is a dead letter at once
        (letter,) = box.dead_letters.list()
        shown = await ask(manager, GetDeadLetter(mailbox="work", id=letter.id))
        assert "\ufffd" in shown.text

    run(story)


def test_a_listener_that_missed_events_begins_from_a_state_within_its_bounds() -> None:
    async def story(group: ManagerGroup) -> None:
        manager, _ = group.open("m-1")
        await group.until(lambda: manager.leads)
        await ask(manager, Submit(submission=submission("theirs", queue="theirs")))
        await ask(manager, Submit(submission=submission("mine", queue="mine")))
        bound = Scope((CallerBounds(queues=("mine",)),))
        for name, seen in (("mine", True), ("theirs", False), ("nobodys", False)):
            with showing(AskLeader(), "", bound):
                _, state = await manager.jobs.state_for(GetEvents(job_id=name))
            assert (state is not None) == seen, name
        with showing(AskLeader(), "", bound):
            _, state = await manager.jobs.state_for(GetEvents())
        assert [one.job_id for one in state.jobs] == ["mine"]  # type: ignore[union-attr]
        _, everything = await manager.jobs.state_for(GetEvents())
        assert len(everything.jobs) == 2  # type: ignore[union-attr]

    run(story)
