"""One node that a test tells things, the health that a node says of itself, and every kind of codec."""

from __future__ import annotations

import itertools
from random import Random

from tenure.gossip.messages import Alive
from tenure.gossip.sealing import Keyring, PacketCodec
from tenure.gossip.settings import GossipSettings
from tenure.gossip.state import Complaint, Effects, MemberChange, MemberEvent, PoolWarning
from tenure.gossip.swim import Swim
from tenure.gossip.wire import decode
from tenure.health.node_states import HealthPiggyback

KEY = bytes(range(16))


nonces = (number.to_bytes(12, "big") for number in itertools.count())


def entropy(count: int) -> bytes:
    return next(nonces)[-count:]


CODECS = [
    PacketCodec(label=label, keyring=Keyring([KEY], entropy=entropy) if keyed else None, compression=compression)
    for label in ("", "tenure")
    for keyed in (False, True)
    for compression in (False, True)
]


ME = ("10.0.0.1", 7946)


def there(number: int) -> tuple[str, int]:
    return (f"10.0.0.{number}", 7946)


def node(**changes: object) -> Swim:
    swim = Swim("me", ME, GossipSettings.lan(**changes), now=0.0, incarnation=50, start_id="life-1", random=Random(1))
    swim.forget_rumours()
    return swim


def with_peers(count: int = 5, **changes: object) -> Swim:
    swim = node(**changes)
    for number in range(2, count + 2):
        tell(swim, Alive(10, f"p{number}", there(number)))
    swim.forget_rumours()
    return swim


def tell(swim: Swim, message: object, now: float = 0.0) -> Effects:
    return swim.receive(now, there(99), message)


def happened(outcome: Effects) -> list[MemberChange]:
    return [event.change for event in outcome.events if isinstance(event, MemberEvent)]


def warned(outcome: Effects) -> list[Complaint]:
    return [event.complaint for event in outcome.events if isinstance(event, PoolWarning)]


def passed_on(swim: Swim) -> list:
    """What the next packets carry."""
    return [decode(part) for part in swim._pool.rumours()]


def health(**changes: object) -> HealthPiggyback:
    fields = {
        "node_id": "worker-1",
        "node_type": "worker",
        "accepting_work": True,
        "capacity": 8,
        "throughput": 3,
        "expected_throughput": 4,
        "overload_state": "healthy",
    }
    return HealthPiggyback(**{**fields, **changes})
