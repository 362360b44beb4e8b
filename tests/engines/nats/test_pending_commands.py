"""Standing claims on a real server: what is handed over is confirmed, and nobody who left is handed anything for long."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.contract.case import Background
from tests.patience import wait_until

from tenure.clock import SystemClock
from tenure.engines.nats import NatsEngine
from tools.servers import FaultProxy

pytestmark = pytest.mark.slow
Opened = Callable[..., NatsEngine]
BOOT = SystemClock()


def stands(engine: NatsEngine, count: int = 1) -> bool:
    """Whether so many wait on `work`, as this engine sees it."""
    return len(engine.log.ledger.box("work").stands.keep(engine.log.ledger.now)) == count


def test_what_is_handed_over_gets_its_whole_lease(opened: Opened) -> None:
    engine, other = opened(), opened()
    waiting = Background(lambda: engine.mailbox("work").receive(1, 600, 60))
    wait_until(lambda: stands(other))
    other.mailbox("work").send("x")
    (message,) = waiting.result()
    assert message.lease_until <= BOOT.boottime() + 600
    wait_until(lambda: message.lease_until > BOOT.boottime() + 500)
    assert (message.delivery_count, message.forgiven) == (1, 0)
    message.acknowledge()


def test_one_that_was_cut_off_while_it_waited_delays_a_message_and_does_not_keep_it(
    through: NatsEngine, opened: Opened, proxy: FaultProxy
) -> None:
    other = opened()
    Background(lambda: through.mailbox("work").receive(1, 600, 60))
    wait_until(lambda: stands(other))
    proxy.refuse()
    other.mailbox("work").send("x")
    (message,) = other.mailbox("work").receive(1, 600, 60)
    assert message.delivery_count - message.forgiven == 1
    message.acknowledge()


def test_who_closes_or_is_woken_is_handed_nothing(opened: Opened) -> None:
    leaving, woken, other = opened(), opened(), opened()
    polls = [Background(lambda e=e: e.mailbox("work").receive(1, 600, 60)) for e in (leaving,)]
    mailbox = woken.mailbox("work")
    polls.append(Background(lambda: mailbox.receive(1, 600, 60)))
    wait_until(lambda: stands(other, 2))
    leaving.close()
    mailbox.wake()
    assert [poll.result() for poll in polls] == [[], []]
    wait_until(lambda: stands(other, 0))
    other.mailbox("work").send("x")
    (message,) = other.mailbox("work").receive(1, 600, 60)
    assert (message.delivery_count, message.forgiven) == (1, 0)


def test_what_comes_while_the_handle_is_woken_goes_to_somebody_else(opened: Opened) -> None:
    engine, other = opened(), opened()
    for number in range(20):
        mailbox = engine.mailbox("work")
        waiting = Background(lambda mailbox=mailbox: mailbox.receive(1, 600, 60))
        wait_until(lambda: stands(other))
        sending = Background(lambda number=number: other.mailbox("work").send(number))
        mailbox.wake()
        found = waiting.result() or other.mailbox("work").receive(1, 600, 60)
        sending.result()
        assert [message.body for message in found] == [number]
        found[0].acknowledge()
        wait_until(lambda: stands(other, 0))
