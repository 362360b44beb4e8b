"""Earned leases and hang detection for a queue in SQS, with boto3: the queue stays, and so does what sends to it.

    consumer = SqsConsumer(boto3.client("sqs"), QUEUE_URL, encode, lease_s=60, stall_s=300)
    consumer.run()

    def encode(message: SqsMessage, heartbeat: Heartbeat) -> None:
        for frame in frames(message.body):
            ...
            heartbeat.beat()

A message stays invisible while its work beats, in short pieces, so a consumer that dies gives it back within `lease_s` and not after hours.
Work that is silent for `stall_s` ends its process, with the stacks of all threads in the log; SQS delivers the message again, and the
queue's redrive policy counts. Run the process under something that starts it anew.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Mapping
from typing import Any

from botocore.exceptions import ClientError

from tenure.beat.heartbeat import Heartbeat
from tenure.beat.lease import LeaseExtender, LeaseExtenderConfig
from tenure.beat.watchdog import StallReport, Watchdog, kill_this_process
from tenure.clock import Clock, SystemClock
from tenure.errors import LimitError, ReceiptHandleExpiredError

MAX_LEASE_S = 43_200
"""SQS keeps a message invisible for twelve hours in all, however often that is changed."""
LONG_POLL_S = 20
_GONE = frozenset({"ReceiptHandleIsInvalid", "MessageNotInflight", "InvalidParameterValue"})
_logger = logging.getLogger(__name__)


class SqsMessage:
    """One delivery from SQS. `LeaseExtender.attach` takes it as it takes a message of an engine."""

    def __init__(
        self, client: Any, queue_url: str, received: Mapping[str, Any], *, lease_s: float, asked_at: float, clock: Clock
    ) -> None:
        """`received` is an entry of boto3's `Messages`; `asked_at` is the boot time before the request that brought it."""
        self._client, self._queue_url, self._clock = client, queue_url, clock
        self.received = received
        self.id: str = received["MessageId"]
        self.body: str = received["Body"]
        self.receipt_handle: str = received["ReceiptHandle"]
        self.delivery_count = int(received.get("Attributes", {}).get("ApproximateReceiveCount", 1))
        # Counted from before the request: SQS may have begun to count at any moment since.
        self._lease_until = asked_at + lease_s

    def lease_left(self, now: float) -> float:
        return self._lease_until - now

    def extend_visibility(self, seconds: float) -> None:
        """Keeps it ours for `seconds` from now. Raises `ReceiptHandleExpiredError` when SQS has given it to somebody else."""
        asked_at, whole = self._clock.boottime(), min(MAX_LEASE_S, math.ceil(seconds))
        self._ask("change_message_visibility", VisibilityTimeout=whole)
        self._lease_until = asked_at + whole

    def delete(self) -> None:
        """Ends it: the work is done."""
        self._ask("delete_message")

    def release(self, delay_s: float = 0.0) -> None:
        """Gives it back, for another delivery after `delay_s`."""
        self._ask("change_message_visibility", VisibilityTimeout=math.ceil(delay_s))

    def _ask(self, what: str, **options: Any) -> None:
        try:
            getattr(self._client, what)(QueueUrl=self._queue_url, ReceiptHandle=self.receipt_handle, **options)
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", "")).rpartition(".")[2]
            if code in _GONE:
                raise ReceiptHandleExpiredError(self.id, f"SQS says {code}") from error
            raise


def receive(
    client: Any, queue_url: str, *, lease_s: float, wait_s: int = LONG_POLL_S, clock: Clock
) -> SqsMessage | None:
    """Returns one message, or None when none came in `wait_s`. One at a time: what waits here is kept from others."""
    asked_at = clock.boottime()
    answer = client.receive_message(
        QueueUrl=queue_url,
        MaxNumberOfMessages=1,
        WaitTimeSeconds=wait_s,
        VisibilityTimeout=math.ceil(lease_s),
        AttributeNames=["ApproximateReceiveCount"],
    )
    for received in answer.get("Messages", ()):
        return SqsMessage(client, queue_url, received, lease_s=lease_s, asked_at=asked_at, clock=clock)
    return None


class SqsConsumer:
    """Takes messages one by one, has `handle` work on each, and watches it. Run one for each process."""

    def __init__(
        self,
        client: Any,
        queue_url: str,
        handle: Callable[[SqsMessage, Heartbeat], object],
        *,
        lease_s: float = 60.0,
        stall_s: float = 300.0,
        retry_delay_s: float = 5.0,
        on_stall: Callable[[StallReport], object] = kill_this_process,
        clock: Clock | None = None,
    ) -> None:
        """`lease_s` is how long a message of a dead consumer is hidden; `stall_s` how long work may be silent before its process is ended."""
        if not 1 <= lease_s <= MAX_LEASE_S:
            raise LimitError("lease_s", lease_s, f"between 1 and {MAX_LEASE_S:,} seconds")
        self._client, self._queue_url, self._handle = client, queue_url, handle
        self._lease_s, self._retry_delay_s = lease_s, retry_delay_s
        self._clock = clock or SystemClock()
        self._stopping = threading.Event()
        self._watchdog = Watchdog({}, stall_s, min(60.0, stall_s / 4), on_stall=on_stall, clock=self._clock)
        self._extender = LeaseExtender(LeaseExtenderConfig().for_lease(lease_s), kind="sqs")

    def stop(self) -> None:
        """Takes nothing more. What runs goes on to its end; safe to call from a signal handler."""
        self._stopping.set()

    def run(self) -> None:
        """Consumes until `stop`."""
        self._watchdog.start()
        try:
            while not self._stopping.is_set():
                self.take_one()
        finally:
            self._watchdog.stop()

    def take_one(self, wait_s: int = LONG_POLL_S) -> bool:
        """Waits for one message and works on it. Returns False when none came."""
        message = receive(self._client, self._queue_url, lease_s=self._lease_s, wait_s=wait_s, clock=self._clock)
        if message is None:
            return False
        heartbeat = Heartbeat(name=message.id, clock=self._clock)
        self._watchdog.watch(message.id, heartbeat)
        try:
            with self._extender.attach(message, heartbeat, lease_s=self._lease_s) as lease:
                heartbeat.beat()
                self._handle(message, heartbeat)
            if lease.lost:
                _logger.warning(
                    "Message %s was done after its lease was lost (%s): it may be done again",
                    message.id,
                    lease.lost_reason,
                )
            message.delete()
        except ReceiptHandleExpiredError as error:
            _logger.warning("Message %s is no longer ours: %s", message.id, error)
        except Exception:
            _logger.exception("Message %s failed, delivery %d", message.id, message.delivery_count)
            self._give_back(message)
        finally:
            self._watchdog.unwatch(message.id)
        return True

    def _give_back(self, message: SqsMessage) -> None:
        try:
            message.release(self._retry_delay_s)
        except Exception:  # then its lease runs out
            _logger.exception("Message %s could not be given back", message.id)
