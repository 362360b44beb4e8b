"""The codec: managers, gates and engines see nothing of arguments, results, checkpoints, steps, waits and signals; whoever holds a codec accepts nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from examples.encrypted import AesGcmCodec, codec, diagnose

from tenure import embedded, workflow
from tenure.client.client import Client
from tenure.client.job_messages import decoded, decoded_result
from tenure.codec import KEY, about_signal, is_sealed, opened_bytes, opened_value, sealed_bytes, sealed_value
from tenure.control.messages.jobs import JobView, ResultView, WorkflowView
from tenure.errors import CodecError, ConfigurationError, JobFailed
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.jobs.state_records import Schedule
from tenure.jobs.states import JobState, WorkflowState
from tenure.testing.datacenter import TestDatacenter
from tenure.work.registry import Registry

OTHER = AesGcmCodec(b"x" * 32)


@pytest.mark.parametrize("value", [None, 0, "text", {"a": [1, 2, {"b": None}]}, {}, [KEY]])
def test_a_value_comes_back_as_it_was_and_equal_values_are_encoded_alike(value: Any) -> None:
    made = sealed_value(codec, value, "result j/w")
    assert is_sealed(made)
    assert sealed_value(codec, value, "result j/w") == made
    assert sealed_value(codec, value, "result j/x") != made
    assert opened_value(codec, made, "result j/w") == value
    assert sealed_value(codec, made, "result j/w") == made  # encoded once, however often it is sent
    assert opened_value(None, value, "result j/w") == value
    assert opened_bytes(codec, sealed_bytes(codec, b"saved", "c"), "c") == b"saved"


def test_what_is_not_encoded_was_changed_or_is_about_something_else_is_refused_without_quoting_it() -> None:
    made = sealed_value(codec, "secret", "result j/w")
    changed = {KEY: made[KEY][:-6] + ("AAAAA=" if not made[KEY].endswith("AAAAA=") else "BBBBB=")}
    for one, by, about in [
        ("secret", codec, "result j/w"),  # a forged result
        (None, codec, "result j/w"),
        (made, None, "result j/w"),
        (made, OTHER, "result j/w"),
        (made, codec, "result other/w"),
        (changed, codec, "result j/w"),
        ({KEY: "no base64!"}, codec, "result j/w"),
    ]:
        with pytest.raises(CodecError) as caught:
            opened_value(by, one, about)
        assert "secret" not in str(caught.value)
    with pytest.raises(CodecError):
        opened_bytes(codec, b"plain", "checkpoint j/w")
    with pytest.raises(CodecError):
        opened_bytes(None, sealed_bytes(codec, b"saved", "c"), "c")


def test_a_client_refuses_a_result_that_somebody_wrote_into_the_engine() -> None:
    one = WorkflowView(
        name="eu/w", function="w", state=WorkflowState.COMPLETED, attempt=1, max_attempts=1, result="forged"
    )
    view = JobView(
        job_id="j",
        name="",
        state=JobState.COMPLETED,
        reason="",
        submitted_at=0.0,
        started_at=0.0,
        ended_at=0.0,
        deadline=None,
        now=0.0,
        workflows=(one,),
    )
    with pytest.raises(CodecError):
        decoded(codec, view)
    true = msgspec.structs.replace(one, result=sealed_value(codec, "true", "result j/w"))
    assert decoded(codec, msgspec.structs.replace(view, workflows=(true,))).workflows[0].result == "true"
    running = msgspec.structs.replace(one, state=WorkflowState.RUNNING, result=None)
    assert decoded(codec, msgspec.structs.replace(view, workflows=(running,))).workflows[0].result is None
    with pytest.raises(CodecError):
        decoded_result(
            codec, ResultView(job_id="j", workflow="w", state=JobState.COMPLETED, ready=True, result="forged")
        )


@workflow
def parent(ctx: Any, patient: str) -> str:
    child = ctx.submit(diagnose, patient=patient)
    return f"child says {child.wait()['finding']}"


def test_arguments_results_checkpoints_and_children_travel_encoded() -> None:
    with TestDatacenter([diagnose, parent], codec=codec) as datacenter:
        job = datacenter.submit(diagnose, patient="Ada Lovelace")
        datacenter.advance(minutes=5)
        assert job.result() == {"of": "Ada Lovelace", "finding": "healthy"}
        assert datacenter.submit(diagnose, patient="Ada Lovelace", job_id="again").id == "again"
        assert datacenter.submit(diagnose, patient="Ada Lovelace", job_id="again").id == "again"  # the same submission
        family = datacenter.submit(parent, patient="Ada Lovelace")
        datacenter.advance(minutes=10)
        assert family.result() == "child says healthy"
        book = datacenter.manager.ledger.book
        everything = book.snapshot() + str(book.jobs).encode()
        assert b"diagnose" in everything
        assert b"Ada" not in everything
        assert b"healthy" not in everything


def remember(patient: str) -> str:
    return f"{patient} was seen"


@workflow(max_attempts=1)
def consult(ctx: Any, patient: str) -> list[str]:
    seen = ctx.step("see", remember, patient)
    ctx.checkpoint({"patient": patient})
    agreed = ctx.wait_event("agreed")
    child = ctx.wait_job(ctx.submit(diagnose, patient=patient))
    return [seen, agreed["doctor"], child["finding"], ctx.events[0].payload["doctor"]]


def _written(folder: Path) -> bytes:
    """Returns all that the files of an engine hold, with what was deleted since and not yet written over."""
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_steps_waits_and_signals_travel_encoded(tmp_path: Path) -> None:
    with embedded(tmp_path, workflows=[diagnose, consult], codec=codec, slots=1, mode="threads") as tenure:
        job = tenure.submit(consult, patient="Ada Lovelace")
        job.signal("agreed", {"doctor": "Grace Hopper"})
        assert job.wait(timeout=120) == ["Ada Lovelace was seen", "Grace Hopper", "healthy", "Grace Hopper"]
        written = _written(tmp_path)
    written += _written(tmp_path)
    assert b"agreed" in written
    for secret in (b"Lovelace", b"Hopper", b"healthy"):
        assert secret not in written


def test_a_signal_that_was_forged_or_sent_to_another_job_is_refused() -> None:
    with TestDatacenter([diagnose, consult], codec=codec) as datacenter:
        first, second = (datacenter.submit(consult, patient="Ada Lovelace") for _ in range(2))
        datacenter._codec = None  # somebody without the codec
        first.signal("agreed", {"doctor": "nobody"})
        copied = sealed_value(codec, {"doctor": "Grace Hopper"}, about_signal(first.id, "agreed", "one"))
        second.signal("agreed", copied, id="one")
        datacenter.advance(minutes=1)
        for job, said in ((first, "is not encoded"), (second, "the codec refuses the signal")):
            assert said in job.status().workflows[0].error


def test_the_arguments_of_a_schedule_travel_encoded() -> None:
    with TestDatacenter([diagnose], codec=codec) as datacenter:
        spec = WorkflowSpec(name="diagnose", arguments={"patient": "Ada Lovelace"})
        job = JobSubmission(job_id="daily", workflows=(spec,), park=True)
        datacenter.set_schedule(Schedule(name="daily", job=job, every_s=3_600))
        datacenter.set_schedule(Schedule(name="daily", job=job, every_s=3_600))
        run = datacenter.get(datacenter.trigger_schedule("daily"), diagnose)
        datacenter.advance(minutes=5)
        assert run.result() == {"of": "Ada Lovelace", "finding": "healthy"}
        book = datacenter.manager.ledger.book
        assert b"Lovelace" not in book.snapshot() + str(book.jobs).encode()


def test_a_worker_without_the_codec_fails_the_job_with_the_remedy() -> None:
    with TestDatacenter([diagnose]) as datacenter:
        datacenter._codec = codec
        job = datacenter.submit(diagnose, patient="Ada Lovelace")
        datacenter.advance(minutes=5)
        with pytest.raises(JobFailed, match="encoded, and no codec is set"):
            job.result()


def test_processes_find_the_codec_in_their_module_and_no_file_of_the_engine_has_a_word_of_it(tmp_path: Path) -> None:
    with embedded(tmp_path, workflows=[diagnose], codec=codec, slots=1, mode="processes") as tenure:
        job = tenure.submit(diagnose, patient="Ada Lovelace")
        assert job.wait(timeout=120) == {"of": "Ada Lovelace", "finding": "healthy"}
        with Client([tenure.host.address]) as stranger:
            assert is_sealed(stranger.job(job.id).workflows[0].result)
            assert is_sealed(stranger.result(job.id).result)
    written = _written(tmp_path)
    assert b"diagnose" in written
    assert b"Lovelace" not in written
    assert b"healthy" not in written


def test_one_worker_has_one_codec_and_processes_must_find_it(tmp_path: Path) -> None:
    registry = Registry([], codec)
    registry.use(codec, "app")
    with pytest.raises(ConfigurationError, match="second codec"):
        registry.use(OTHER, "app")
    with pytest.raises(ConfigurationError, match="top level of the module"):
        embedded(tmp_path, workflows=[diagnose], codec=OTHER, mode="processes")


def test_a_key_is_changed_without_losing_what_was_written() -> None:
    old, new = b"o" * 32, b"n" * 32
    written = AesGcmCodec(old).encode(b"data", "about")
    both = AesGcmCodec(new, old)
    assert both.decode(written, "about") == b"data"
    assert AesGcmCodec(new).decode(both.encode(b"data", "about"), "about") == b"data"
    with pytest.raises(KeyError):
        AesGcmCodec(new).decode(written, "about")
