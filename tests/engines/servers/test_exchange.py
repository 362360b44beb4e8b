"""An exchange whose answer was lost is made again: nothing is stranded, nothing is done twice, and what was done does not look like a lost lease."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.engines.servers.conftest import Kind

from tenure.engines import Engine
from tenure.engines.contracts import Consumer, Message, Settlement
from tenure.errors import MailboxConnectionError
from tools.servers import FaultProxy

pytestmark = pytest.mark.slow
Opened = Callable[..., Engine]


def started(engine: Engine) -> tuple[Consumer[Any, Any], Message[Any, Any]]:
    """A consumer that holds one message, and has two more before it."""
    consumer = engine.consumer()
    consumer.cover([["work"], ["more"]])
    engine.mailbox("work").send("first", reply_to="replies")
    (first,) = consumer.exchange(visibility_timeout=60).messages
    engine.mailbox("more").send("third", reply_to="replies")
    engine.mailbox("work").send("second", reply_to="replies")
    return consumer, first


@pytest.mark.parametrize("cut", ["cut_answer", "cut_request", "cut_mid_request"])
def test_settlements_and_claims_of_a_lost_exchange_come_with_its_repetition(
    kind: Kind, through: Engine, proxy: FaultProxy, cut: str
) -> None:
    consumer, first = started(through)
    getattr(proxy, cut)(kind.token(first))
    with pytest.raises(MailboxConnectionError):
        consumer.exchange([Settlement(first, "done")], max_messages=2, visibility_timeout=300, claim_id="c1")
    assert proxy.fired == 1
    again = consumer.exchange([Settlement(first, "done")], max_messages=2, visibility_timeout=300, claim_id="c1")
    assert again.lost == []
    assert sorted(message.body for message in again.messages) == ["second", "third"]
    assert {message.delivery_count for message in again.messages} == {1}
    assert [reply.body for reply in through.mailbox("replies").receive(5)] == ["done"]
    group = [Settlement(message, message.body) for message in again.messages]
    assert consumer.exchange(group, max_messages=0).lost == []
    assert [through.mailbox(name).depth() for name in ("work", "more")] == [(0, 0, 0), (0, 0, 0)]


def test_claims_of_a_lost_exchange_that_is_not_repeated_go_back_uncounted(
    kind: Kind, through: Engine, proxy: FaultProxy
) -> None:
    consumer, first = started(through)
    proxy.cut_answer(kind.token(first))
    with pytest.raises(MailboxConnectionError):
        consumer.exchange([Settlement(first)], max_messages=2, visibility_timeout=300, claim_id="c1")
    found = consumer.exchange(max_messages=2, visibility_timeout=300, claim_id="c2").messages
    assert [(message.body, message.delivery_count) for message in found] == [("second", 1), ("third", 1)]


def test_a_settlement_in_doubt_is_lost_when_somebody_else_has_the_message(
    kind: Kind, through: Engine, proxy: FaultProxy, opened: Opened
) -> None:
    consumer = through.consumer()
    consumer.cover([["work"]])
    through.mailbox("work").send("x", key="k")
    (mine,) = consumer.exchange(visibility_timeout=0.3).messages
    proxy.cut_request(kind.token(mine))
    with pytest.raises(MailboxConnectionError):
        consumer.exchange([Settlement(mine)], max_messages=0)
    (theirs,) = opened().mailbox("work").receive(1, 60, 60)
    assert consumer.exchange([Settlement(mine)], max_messages=0).lost == [mine]
    theirs.acknowledge()
    assert consumer.exchange([Settlement(mine)], max_messages=0).lost == [mine]
