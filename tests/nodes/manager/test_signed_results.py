"""A leader with keys believes results that are signed, and loses no job by those that are not (decision 0610)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.nodes.manager.harness import ManagerGroup, ask, report, run_group, runs, submission

from tenure.attempt_data import RESULTS_STORE, WaitsFor, result_key
from tenure.control.messages.jobs import AskWhy, GetJob, Submit
from tenure.jobs.alarms import AlarmKind
from tenure.jobs.states import JobState, WorkflowState
from tenure.nodes.manager.ledger import RESULTS
from tenure.nodes.manager.manager import Manager
from tenure.nodes.manager.signed_results import read_reply
from tenure.work.delivery import Cause, WorkFailure, WorkItem, WorkResult
from tenure.work.result_signatures import ClaimedAttempt, ResultSigner, digest_of, parse_result_keys

KEY, WRONG = "k" * 32, "f" * 32
KEYS = parse_result_keys(KEY)
SETUP = {"result_keys": KEYS}


def result_of(message: Any, value: Any, **more: Any) -> WorkResult:
    item = message.body
    given: dict[str, Any] = {
        "job_id": item.job_id,
        "workflow_id": item.workflow_id,
        "workflow": item.workflow,
        "attempt": item.attempt,
        "fence": tuple(message.fence),
        "worker": "w-1",
        "result": msgspec.Raw(msgspec.json.encode(value)),
    }
    return WorkResult(**{**given, **more})


def signed(result: WorkResult, key: str = KEY, worker: str = "w-1") -> WorkResult:
    return ResultSigner(parse_result_keys(key), worker).signed(result, ClaimedAttempt.told_by(result))


def forge(group: ManagerGroup, *results: WorkResult) -> None:
    """Writes results into the engine, as anybody can who may write there."""
    mailbox = group.engine.mailbox(RESULTS, WorkResult, WorkItem)
    for one in results:
        mailbox.send(one)


async def led(group: ManagerGroup, name: str = "m-1", **setup: Any) -> Manager:
    manager, _ = group.open(name, setup={**SETUP, **setup})
    await group.until(lambda: manager.leads)
    return manager


async def job(manager: Manager, job_id: str = "j-1") -> Any:
    return await ask(manager, GetJob(job_id=job_id))


async def taken(group: ManagerGroup) -> None:
    await group.until(lambda: not group.engine.mailbox(RESULTS).approximate_count())


@pytest.mark.parametrize("reported", [True, False], ids=["reported", "unreported"])
def test_a_forged_result_with_the_right_fence_is_refused_and_the_true_one_counts(reported: bool) -> None:
    """Before signatures, the next delivery that no worker had reported counted from anybody."""

    async def story(group: ManagerGroup) -> None:
        manager = await led(group)
        await ask(manager, Submit(submission=submission()))
        message = await group.claimed()
        if reported:
            await ask(manager, report(runs()))
        forge(
            group,
            result_of(message, "forged"),
            signed(result_of(message, "forged"), WRONG),
            msgspec.structs.replace(signed(result_of(message, "true")), result=msgspec.Raw(b'"forged"')),
        )
        await taken(group)
        assert (await job(manager)).state is not JobState.COMPLETED
        message.settle(signed(result_of(message, "true")))
        await group.until(lambda: manager.jobs.has_ended("j-1"))
        view = await job(manager)
        assert (view.state, view.workflows[0].result, view.workflows[0].attempt) == (JobState.COMPLETED, "true", 1)
        assert "from w-1 was refused" in (await ask(manager, AskWhy(job_id="j-1"))).text
        await group.until(lambda: AlarmKind.UNSIGNED in [alarm.kind for alarm in manager.observer.alarms])

    run_group(story)


def test_what_is_told_of_a_refusal_can_be_no_secret_and_the_alarm_ends() -> None:
    async def story(group: ManagerGroup) -> None:
        manager = await led(group)
        await ask(manager, Submit(submission=submission()))
        message = await group.claimed()
        forge(group, result_of(message, "forged"))
        await group.until(lambda: AlarmKind.UNSIGNED in [alarm.kind for alarm in manager.observer.alarms])
        [alarm] = [one for one in manager.observer.alarms if one.kind is AlarmKind.UNSIGNED]
        assert "--result-key-file" in alarm.remedy
        assert KEY not in str(alarm)
        message.settle(signed(result_of(message, 1)))
        await group.until(lambda: manager.jobs.has_ended("j-1"))
        group.clock.advance(3_700)
        await group.until(lambda: AlarmKind.UNSIGNED not in [one.kind for one in manager.observer.alarms])

    run_group(story)


@pytest.mark.parametrize("reported", [True, False], ids=["reported", "unreported"])
def test_work_that_a_worker_without_the_key_settled_is_tried_again(reported: bool) -> None:
    async def story(group: ManagerGroup) -> None:
        manager = await led(group)
        await ask(manager, Submit(submission=submission()))
        message = await group.claimed()
        if reported:
            await ask(manager, report(runs()))
        message.settle(result_of(message, "of nobody knows whom"))
        again = await group.claimed()
        assert again.body.attempt == 2
        view = await job(manager)
        assert "not signed" in view.workflows[0].error
        # The one that ran it is known by its reports. A name that stands in a forged result excludes nobody.
        assert again.body.excluded == (("w-1",) if reported else ())
        again.settle(signed(result_of(again, "true")))
        await group.until(lambda: manager.jobs.has_ended("j-1"))
        view = await job(manager)
        assert (view.state, view.workflows[0].result) == (JobState.COMPLETED, "true")

    run_group(story)


def test_a_fleet_without_keys_fails_the_job_with_that_reason_and_tries_no_more_than_allowed() -> None:
    async def story(group: ManagerGroup) -> None:
        manager = await led(group)
        await ask(manager, Submit(submission=submission()))
        for _ in range(2):
            message = await group.claimed()
            message.settle(result_of(message, 1))
        await group.until(lambda: manager.jobs.has_ended("j-1"))
        view = await job(manager)
        assert view.state is JobState.FAILED
        assert "not signed" in view.workflows[0].error

    run_group(story)


@pytest.mark.parametrize("keyed", [True, False], ids=["keys", "no keys"])
def test_the_next_leader_follows_up_what_the_last_one_refused(keyed: bool) -> None:
    """The list of refused results was in the leader's memory: a takeover stranded the job (the lost branch of session nine)."""

    async def story(group: ManagerGroup) -> None:
        first = await led(group)
        await ask(first, Submit(submission=submission()))
        message = await group.claimed()
        forge(group, result_of(message, "forged"))
        await group.until(lambda: first.ledger.book.unsigned.noted)
        await taken(group)
        await group.kill("m-1")
        # A forger who can settle its message, too; the engine has nothing more of this attempt.
        message.acknowledge()
        second = await led(group, "m-2", **({} if keyed else {"result_keys": None}))
        again = await group.claimed()
        assert again.body.attempt == 2
        again.settle(signed(result_of(again, "true")))
        await group.until(lambda: second.jobs.has_ended("j-1"))
        assert (await job(second)).workflows[0].result == "true"

    run_group(story)


def test_a_book_that_was_saved_and_read_back_still_knows_what_to_follow_up() -> None:
    async def story(group: ManagerGroup) -> None:
        first = await led(group, snapshot_every=1, raise_format=None)
        await ask(first, Submit(submission=submission()))
        message = await group.claimed()
        forge(group, result_of(message, "forged"))
        await group.until(lambda: first.ledger.book.unsigned.noted)
        for number in range(2, 6):  # so that what is read back is a snapshot that has it
            await ask(first, Submit(submission=submission(f"j-{number}")))
        journal = group.engine.journal("jobs")
        await group.until(lambda: (saved := journal.latest_snapshot()) is not None and saved.seq >= first.ledger.seq)
        await group.kill("m-1")
        second = await led(group, "m-2")
        assert ("j-1", "encode") in second.ledger.book.unsigned.noted
        message.settle(signed(result_of(message, "true")))
        await group.until(lambda: second.jobs.has_ended("j-1"))
        assert (await job(second)).workflows[0].attempt == 1

    run_group(story)


def test_work_that_nobody_has_claimed_is_sent_again_after_a_forged_result_and_no_attempt_is_charged() -> None:
    async def story(group: ManagerGroup) -> None:
        manager = await led(group)
        await ask(manager, Submit(submission=submission()))
        await group.until(lambda: group.work.approximate_count() == 1)
        item = WorkItem(workflow="encode", job_id="j-1", workflow_id="encode", attempt=1)
        forge(group, result_of(type("Forged", (), {"body": item, "fence": (1, 1)}), "forged"))
        await taken(group)
        await group.until(lambda: not manager.ledger.book.unsigned.noted)
        message = await group.claimed()
        assert (message.body.attempt, message.generation) == (1, 2)
        message.settle(signed(result_of(message, "true")))
        await group.until(lambda: manager.jobs.has_ended("j-1"))
        view = await job(manager)
        assert (view.workflows[0].result, view.workflows[0].attempt) == ("true", 1)

    run_group(story)


def test_a_successor_says_that_a_worker_died_and_nothing_else_of_it() -> None:
    async def story(group: ManagerGroup) -> None:
        manager = await led(group)
        await ask(manager, Submit(submission=submission()))
        message = await group.claimed()
        await ask(manager, report(runs()))
        forge(group, signed(result_of(message, "mine"), worker="w-2"))
        await taken(group)
        assert (await job(manager)).state is JobState.RUNNING
        died = WorkFailure(cause=Cause.WORKER_DIED, reason="its worker died while it ran")
        message.settle(signed(result_of(message, None, failure=died), worker="w-2"))
        again = await group.claimed()
        assert (again.body.attempt, again.body.excluded) == (2, ("w-1",))
        assert "not signed" not in (await job(manager)).workflows[0].error

    run_group(story)


def test_a_large_result_is_believed_only_with_the_bytes_that_were_signed() -> None:
    async def story(group: ManagerGroup) -> None:
        manager = await led(group)
        large, forged = msgspec.json.encode("l" * 300_000), msgspec.json.encode("f" * 300_000)
        store = group.engine.store(RESULTS_STORE)
        for job_id, stored, state in (("j-1", large, JobState.COMPLETED), ("j-2", forged, JobState.FAILED)):
            await ask(manager, Submit(submission=submission(job_id)))
            for _ in range(2):
                if manager.jobs.has_ended(job_id):
                    break
                message = await group.claimed()
                store.put(result_key(job_id, "encode", message.body.attempt), stored)
                reply = result_of(message, None, stored=True, digest=digest_of(large))
                message.settle(signed(reply))
                await taken(group)
            await group.until(lambda one=job_id: manager.jobs.has_ended(one))  # type: ignore[misc]
            assert (await job(manager, job_id)).state is state
        assert (
            "the result in the store is not the one that was signed" in (await ask(manager, AskWhy(job_id="j-2"))).text
        )

    run_group(story)


def test_a_dead_letter_is_believed_only_when_the_message_is_gone() -> None:
    """Nobody signs them: the engine writes them. So the engine is asked."""

    async def story(group: ManagerGroup) -> None:
        manager = await led(group)
        await ask(manager, Submit(submission=submission()))
        message = await group.claimed()
        await ask(manager, report(runs()))
        # A key names a message of one mailbox, so anybody can have the engine say this.
        evil = group.engine.mailbox("evil")
        evil.send({}, key="j-1/encode", generation=1, reply_to=RESULTS)
        evil.receive(1, 30)[0].dead_letter("made up")
        await taken(group)
        assert (await job(manager)).state is JobState.RUNNING
        assert "still has it" in (await ask(manager, AskWhy(job_id="j-1"))).text
        message.dead_letter("it cannot be done")
        await group.until(lambda: manager.jobs.has_ended("j-1"))
        assert "it cannot be done" in (await job(manager)).workflows[0].error

    run_group(story)


def test_a_leader_without_keys_believes_what_is_signed_and_what_is_not() -> None:
    """Keys come to the workers first, and to the managers after that."""

    async def story(group: ManagerGroup) -> None:
        manager = await led(group, result_keys=None)
        for job_id, key in (("j-1", KEY), ("j-2", WRONG), ("j-3", "")):
            await ask(manager, Submit(submission=submission(job_id)))
            message = await group.claimed()
            reply = result_of(message, job_id)
            message.settle(signed(reply, key) if key else reply)
            await group.until(lambda one=job_id: manager.jobs.has_ended(one))  # type: ignore[misc]
            assert (await job(manager, job_id)).workflows[0].result == job_id

    run_group(story)


def test_what_is_no_result_becomes_a_dead_letter_and_holds_up_no_other() -> None:
    async def story(group: ManagerGroup) -> None:
        manager = await led(group)
        await ask(manager, Submit(submission=submission()))
        message = await group.claimed()
        garbage = group.engine.mailbox(RESULTS)
        for body in ({}, [1], "text", {"job_id": "j-1", "signature": 7}):
            garbage.send(body)
        message.settle(signed(result_of(message, "true")))
        await group.until(lambda: manager.jobs.has_ended("j-1"))
        await taken(group)
        assert garbage.dead_letters.count() == 4

    run_group(story)


def test_a_reply_that_nests_too_deep_is_told_as_no_reply_and_ends_no_loop() -> None:
    """The engine, in a thread of its own, reads a few levels more than the leader can. It ended the loop that takes results, as often as it came."""
    deep = 100_000  # since Python 3.12 compiled code has a limit of its own, which is higher than `sys.getrecursionlimit()`
    read = read_reply(b'{"job_id":"j","more":' + b"[" * deep + b"]" * deep + b"}")
    assert isinstance(read, str)
    assert "recursion" in read


def test_a_signed_word_of_an_earlier_dispatch_is_not_believed_again() -> None:
    """A suspension has its attempt's number, as the outcome has: the generation in its fence tells them apart."""

    async def story(group: ManagerGroup) -> None:
        manager = await led(group)
        await ask(manager, Submit(submission=submission()))
        message = await group.claimed()
        asleep = signed(result_of(message, None, suspended=WaitsFor(after_s=5.0, step="nap")))
        message.settle(asleep)
        await taken(group)
        assert (await job(manager)).workflows[0].state is WorkflowState.SUSPENDED
        group.clock.advance(6.0)
        again = await group.claimed()
        assert (again.body.attempt, again.generation) == (1, 2)
        for reported in (False, True):
            if reported:
                await ask(manager, report(runs()))
            forge(group, asleep)
            await taken(group)
            assert (await job(manager)).workflows[0].state is not WorkflowState.SUSPENDED
        again.settle(signed(result_of(again, "true")))
        await group.until(lambda: manager.jobs.has_ended("j-1"))
        assert (await job(manager)).workflows[0].result == "true"

    run_group(story)
