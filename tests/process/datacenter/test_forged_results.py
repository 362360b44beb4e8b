"""Signed results with real processes: somebody who can write to the engine forges results, and a worker without the key settles work (issue 24)."""

from __future__ import annotations

from pathlib import Path

import msgspec
from tests.process.datacenter.conftest import Datacenter, wait_until

from tenure.engines import Engine
from tenure.jobs import JobState
from tenure.nodes.manager.ledger import RESULTS
from tenure.work.delivery import WorkItem, WorkResult
from tenure.work.result_signatures import ClaimedAttempt, ResultSigner, parse_result_keys


def forged(job_id: str, fence: tuple[int, int], worker: str) -> WorkResult:
    return WorkResult(
        job_id=job_id,
        workflow_id="beat_until",
        workflow="beat_until",
        attempt=1,
        fence=fence,
        worker=worker,
        result=msgspec.Raw(b'"forged"'),
    )


def test_a_forger_who_writes_to_the_engine_completes_no_job_and_the_true_result_counts(
    on_every_engine: Datacenter, tmp_path: Path
) -> None:
    datacenter = on_every_engine
    keys, wrong = tmp_path / "keys", tmp_path / "wrong"
    keys.write_text("k" * 40)
    wrong.write_text("x" * 40)
    datacenter.manager("m-1", "--result-key-file", str(keys))
    datacenter.until_led()
    datacenter.worker("--name", "honest", "--slots", "1", "--result-key-file", str(keys))
    told, log = tmp_path / "told", tmp_path / "log"
    datacenter.client.submit("beat_until", told=str(told), log=str(log), job_id="j-forged")
    wait_until(lambda: log.exists() and bool(log.read_text()), why=datacenter.autopsy)
    with Engine.open(datacenter.url) as engine:
        results = engine.mailbox(RESULTS, WorkResult, WorkItem)
        signer = ResultSigner(parse_result_keys(wrong.read_text()), "honest")
        for fence, worker in [((1, 1), "honest"), ((1, 2), "honest"), ((1, 1), "evil"), ((1, 2), "evil")]:
            one = forged("j-forged", fence, worker)
            results.send(one)
            results.send(signer.signed(one, ClaimedAttempt.told_by(one)))
        # Each forged result is taken from the mailbox after the leader has decided on it.
        wait_until(lambda: not results.approximate_count(), why=datacenter.autopsy)
    # The leader hears of the start with the worker's next report, which may come after the forged results.
    wait_until(lambda: datacenter.client.job("j-forged").state is not JobState.PENDING, why=datacenter.autopsy)
    assert datacenter.client.job("j-forged").state is JobState.RUNNING
    told.touch()
    assert datacenter.client.wait("j-forged", 180).state is JobState.COMPLETED
    view = datacenter.client.job("j-forged")
    assert view.workflows[0].attempt == 1
    assert view.workflows[0].result != "forged"
    assert "was refused" in datacenter.client.why("j-forged").text


def test_work_that_a_worker_without_the_key_settled_runs_again_where_the_key_is(
    datacenter: Datacenter, tmp_path: Path
) -> None:
    """The leader changes in between: what is to be followed up is in the journal."""
    keys, log = tmp_path / "keys", tmp_path / "log"
    keys.write_text("k" * 40)
    for name in ("m-1", "m-2"):
        datacenter.manager(name, "--result-key-file", str(keys))
    first = datacenter.until_led()
    keyless = datacenter.worker("--name", "keyless", "--slots", "1")
    datacenter.client.submit("step", n=7, log=str(log), job_id="j-keyless")
    wait_until(lambda: "was refused" in datacenter.client.why("j-keyless").text, why=datacenter.autopsy)
    keyless.kill()
    datacenter.managers[first].kill()
    datacenter.worker("--name", "honest", "--slots", "1", "--result-key-file", str(keys))
    assert datacenter.client.wait("j-keyless", 180).state is JobState.COMPLETED
    view = datacenter.client.job("j-keyless")
    assert view.workflows[0].attempt > 1
