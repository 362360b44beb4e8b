"""The clock of an engine's server is set while a datacenter works: every manager says so, and no job is charged for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from tests.patience import wait_until
from tests.process.datacenter.conftest import Datacenter
from tests.process.datacenter.test_lost_engine import begins
from tools.servers.set_clock import SetClockProxy, SetPostgres, SetValkey

from tenure.backoff import Retry
from tenure.jobs import JobState, JobSubmission, WorkflowSpec
from tools.servers import Nats

STEP_S, ALLOWED_S = 3_600, 1_800
"""A step that is far beyond the deadline, which a busy machine does not reach."""
Own = Callable[[Any], Any]


@contextmanager
def on_postgres(own_server: Own) -> Iterator[tuple[str, Callable[[int], None]]]:
    server = own_server(SetPostgres())
    yield server.url, server.set_clock


@contextmanager
def on_valkey(own_server: Own) -> Iterator[tuple[str, Callable[[int], None]]]:
    server = own_server(SetValkey())
    yield server.url, server.set_clock


@contextmanager
def on_nats(own_server: Own) -> Iterator[tuple[str, Callable[[int], None]]]:
    server = own_server(Nats())
    with SetClockProxy(server.host, server.port) as proxy:
        yield server.url_of(port=proxy.port), proxy.set_clock


SERVERS = [on_postgres, on_valkey, on_nats]


def job(name: str, told: Path, log: Path, timeout_s: float, **options: Any) -> JobSubmission:
    arguments, once = {"told": str(told), "log": str(log)}, Retry(max_attempts=1)
    spec = WorkflowSpec(name="only", function="beat_until", arguments=arguments, retry=once)
    return JobSubmission(job_id=name, workflows=(spec,), timeout_seconds=timeout_s, **options)


def says(datacenter: Datacenter, way: str) -> bool:
    words = f"ALARM engine_clock_was_set: the engine's clock was set {way} by 3,"
    return all(words in node.said() for node in datacenter.managers.values())


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("opened", SERVERS)
def test_a_clock_that_is_set_forward_times_out_no_job(
    opened: Any, own_server: Own, datacenter: Datacenter, tmp_path: Path
) -> None:
    """601 s elapsed of 600 s, it once said of healthy jobs. Their leases are the engine's: the work may run a second time, which is no attempt."""
    told, log = tmp_path / "told", tmp_path / "log"
    with opened(own_server) as (datacenter.url, set_clock):
        try:
            for name in ("m-1", "m-2"):
                datacenter.manager(name)
            datacenter.worker("--slots", "2", "--lease", "6")
            datacenter.until_led()
            client = datacenter.client
            for name in ("first", "second"):
                client.submit_job(job(name, told, log, ALLOWED_S))
            wait_until(lambda: begins(log) == 2, why=datacenter.said)
            set_clock(STEP_S)
            wait_until(lambda: says(datacenter, "forward"), why=datacenter.autopsy)
            client.submit_job(job("after", told, log, ALLOWED_S))
            wait_until(lambda: begins(log) >= 3, why=datacenter.said)
            datacenter.change_leaders()  # and one that starts now tells the same time
            told.touch()
            with datacenter.new_client() as client:
                for name in ("first", "second", "after"):
                    view = client.wait(name, 180)
                    assert view.state is JobState.COMPLETED, client.why(name).text
            # The one that was started since says it, too.
            wait_until(lambda: says(datacenter, "forward"), why=datacenter.autopsy)
        finally:
            datacenter.close()  # before its server goes


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("opened", SERVERS)
def test_a_clock_that_is_set_back_holds_up_neither_deadlines_nor_work(
    opened: Any, own_server: Own, datacenter: Datacenter, tmp_path: Path
) -> None:
    told, never, log = tmp_path / "told", tmp_path / "never", tmp_path / "log"
    with opened(own_server) as (datacenter.url, set_clock):
        try:
            for name in ("m-1", "m-2"):
                datacenter.manager(name)
            datacenter.worker("--slots", "2", "--lease", "6")
            datacenter.until_led()
            client = datacenter.client
            client.submit_job(job("goes-on", told, log, ALLOWED_S))
            client.submit_job(job("too-long", never, log, 20.0, grace=0))
            wait_until(lambda: begins(log) == 2, why=datacenter.said)
            begun = monotonic()
            set_clock(-STEP_S)
            wait_until(lambda: says(datacenter, "back"), why=datacenter.autopsy)
            assert client.wait("too-long", 180).state is JobState.TIMED_OUT
            assert monotonic() - begun < STEP_S / 2
            client.submit_job(job("after", told, log, ALLOWED_S))
            wait_until(lambda: begins(log) == 3, why=datacenter.said)
            told.touch()
            for name in ("goes-on", "after"):
                view = client.wait(name, 180)
                assert view.state is JobState.COMPLETED, client.why(name).text
        finally:
            datacenter.close()  # before its server goes
