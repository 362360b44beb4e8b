"""boto3 against moto's server: a real HTTP endpoint that keeps visibility timeouts as SQS does."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.contrib.conftest import PATHS

boto3 = pytest.importorskip("boto3", reason="boto3 is not installed here: make frameworks")
moto_server = pytest.importorskip("moto.server", reason="moto is not installed here: make frameworks")

from tenure.beat.heartbeat import Heartbeat  # noqa: E402  after the lines that skip
from tenure.clock import SystemClock  # noqa: E402
from tenure.contrib.sqs import SqsConsumer, SqsMessage, receive  # noqa: E402
from tenure.errors import LimitError, ReceiptHandleExpiredError  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]
KEYS = {"region_name": "eu-west-1", "aws_access_key_id": "x", "aws_secret_access_key": "y"}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def sqs(endpoint: str) -> Any:
    return boto3.client("sqs", endpoint_url=endpoint, **KEYS)


@pytest.fixture
def queue(sqs: Any, request: pytest.FixtureRequest) -> str:
    return str(sqs.create_queue(QueueName=f"q{abs(hash(request.node.name))}")["QueueUrl"])


def deliveries(sqs: Any, queue: str) -> int:
    return len(sqs.receive_message(QueueUrl=queue, VisibilityTimeout=0).get("Messages", ()))


def test_work_that_beats_keeps_its_message_past_its_lease_and_deletes_it(sqs: Any, queue: str) -> None:
    sqs.send_message(QueueUrl=queue, MessageBody="a.mov")
    seen: list[int] = []

    def handle(message: SqsMessage, heartbeat: Heartbeat) -> None:
        until = time.monotonic() + 2.5
        while time.monotonic() < until:
            heartbeat.beat()
            time.sleep(0.1)
        seen.append(deliveries(sqs, queue))

    assert SqsConsumer(sqs, queue, handle, lease_s=1.0).take_one(wait_s=1)
    assert seen == [0], "nobody else got it, though its lease was over twice"
    assert deliveries(sqs, queue) == 0, "and it was deleted"


def test_silent_work_loses_its_message_and_is_told_so(sqs: Any, queue: str) -> None:
    sqs.send_message(QueueUrl=queue, MessageBody="a.mov")
    clock = SystemClock()
    message = receive(sqs, queue, lease_s=1.0, wait_s=1, clock=clock)
    assert message is not None
    time.sleep(1.2)
    assert message.lease_left(clock.boottime()) < 0
    again = receive(sqs, queue, lease_s=30.0, wait_s=1, clock=clock)
    assert again is not None
    assert (again.id, again.delivery_count) == (message.id, 2)
    again.delete()
    with pytest.raises(ReceiptHandleExpiredError):
        again.extend_visibility(30)


def test_work_that_raised_comes_again_after_its_rest(sqs: Any, queue: str) -> None:
    sqs.send_message(QueueUrl=queue, MessageBody="a.mov")

    def handle(message: SqsMessage, heartbeat: Heartbeat) -> None:
        raise ValueError(message.body)

    consumer = SqsConsumer(sqs, queue, handle, lease_s=60.0, retry_delay_s=0.0)
    assert consumer.take_one(wait_s=1)
    assert deliveries(sqs, queue) == 1
    with pytest.raises(LimitError):
        SqsConsumer(sqs, queue, handle, lease_s=100_000)


HANGS = """
import sys, time, boto3
from tenure.contrib.sqs import SqsConsumer

def handle(message, heartbeat):
    heartbeat.beat(note="hangs now")
    time.sleep(1000)

sqs = boto3.client("sqs", endpoint_url=sys.argv[1], region_name="eu-west-1", aws_access_key_id="x", aws_secret_access_key="y")
SqsConsumer(sqs, sys.argv[2], handle, lease_s=1.0, stall_s=1.0).run()
"""


def test_work_that_hangs_ends_its_process_and_the_message_comes_again(
    sqs: Any, queue: str, endpoint: str, tmp_path: Path
) -> None:
    sqs.send_message(QueueUrl=queue, MessageBody="a.mov")
    program = tmp_path / "hangs.py"
    program.write_text(HANGS)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS)}
    done = subprocess.run(
        [sys.executable, str(program), endpoint, queue],
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == -9, done.stderr
    assert "time.sleep(1000)" in done.stderr, "the log says where it hung"
    again = receive(sqs, queue, lease_s=30.0, wait_s=5, clock=SystemClock())
    assert again is not None
    assert again.delivery_count == 2
