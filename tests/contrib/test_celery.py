"""A real Celery with its prefork workers, on a real Valkey."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.contrib.conftest import PATHS, ROOT
from tests.patience import wait_until

from tools.servers import CannotStart, Valkey

celery = pytest.importorskip("celery", reason="Celery is not installed here: make frameworks")
redis = pytest.importorskip("redis")

from tenure.clock import ManualClock  # noqa: E402  after the lines that skip
from tenure.contrib.celery import RedisDelivery, beat  # noqa: E402
from tenure.errors import ReceiptHandleExpiredError  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    try:
        with Valkey() as server:
            yield server.url
    except CannotStart as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def shop(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    folder = tmp_path_factory.mktemp("shop")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), str(ROOT / "src"), *PATHS]),
        "SHOP_BROKER": broker,
        "SHOP_FOLDER": str(folder),
    }
    command = [sys.executable, "-m", "celery", "-A", "celery_app", "worker", "-c", "1", "-P", "prefork", "-l", "INFO"]
    with (folder / "worker.log").open("w") as log:
        worker = subprocess.Popen(
            [*command, "--without-gossip", "--without-mingle"], env=environment, stdout=log, stderr=log
        )
        sender = celery.Celery("sender", broker=broker, backend=broker)
        yield SimpleNamespace(folder=folder, send=sender.send_task, log=folder / "worker.log")
        worker.terminate()
        worker.wait(180)
        sender.close()


def test_a_task_that_hangs_is_ended_with_its_stack_and_runs_again(shop: SimpleNamespace) -> None:
    assert shop.send("plain", (3,)).get(timeout=180) == 3
    assert shop.send("hangs_once").get(timeout=180) == "done in the second run"
    assert "time.sleep(1000)" in shop.log.read_text(), "the log says where it hung"


def test_beats_move_the_visibility_timeout_of_a_long_task_on(shop: SimpleNamespace, broker: str) -> None:
    result = shop.send("beats")
    with redis.Redis.from_url(broker) as client:
        (tag, begun), *_ = wait_until(lambda: client.zrange("unacked_index", 0, -1, withscores=True))
        later = wait_until(lambda: (score := client.zscore("unacked_index", tag)) and score > begun and score)
        assert later > begun
        (shop.folder / "enough").touch()
        assert result.get(timeout=180) == "beaten"
        assert wait_until(lambda: client.zscore("unacked_index", tag) is None), "acknowledged"


def test_a_delivery_that_the_broker_gave_to_another_worker_is_lost(broker: str) -> None:
    with redis.Redis.from_url(broker) as client:
        client.zadd("of a test", {"tag": 1.0})
        channel = SimpleNamespace(client=client, unacked_index_key="of a test", visibility_timeout=30)
        clock = ManualClock()
        delivery = RedisDelivery(channel, "tag", clock)
        delivery.extend_visibility(30)
        assert client.zscore("of a test", "tag") == clock.wall()
        client.zrem("of a test", "tag")
        with pytest.raises(ReceiptHandleExpiredError, match="another worker"):
            delivery.extend_visibility(30)
        assert client.zscore("of a test", "tag") is None, "it does not come back into the index"


def test_a_function_that_beats_can_be_called_without_celery() -> None:
    beat(0.5, "nobody listens")
