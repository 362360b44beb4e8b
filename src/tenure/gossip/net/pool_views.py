"""Shows a pool to people: the Prometheus metrics of a gossip node, and one member's view of all members, asked for without joining.

The metrics are read when somebody asks for them, so counting costs the node nothing more. The question is a push/pull that pushes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tenure.errors import JoinError, WireError
from tenure.gossip.messages import Address, PushPull
from tenure.gossip.net.node import GossipNode
from tenure.gossip.net.transport import resolve, stream_exchange
from tenure.gossip.sealing import Keyring, PacketCodec
from tenure.gossip.settings import GossipSettings, format_address
from tenure.gossip.stream import StreamInbox, seal_stream
from tenure.gossip.wire import encode_push_pull

_COUNTERS = {
    "probes": "Members that were probed",
    "probes_failed": "Probes that nothing answered",
    "probes_indirect": "Probes that needed helpers",
    "probes_by_stream": "Probes that only a stream answered: UDP may be blocked",
    "suspicions": "Members that became suspects",
    "accusations": "Suspicions that this node began or confirmed",
    "refutations": "Accusations of this node that it refuted",
    "false_alarms": "Suspects that turned out to live",
    "failures": "Members that were declared dead",
    "late_returns": "Members declared dead that turned out to live",
    "joins": "Members that joined",
    "leaves": "Members that left",
    "relays": "Pings sent on behalf of others",
    "nacks_sent": "Pings on behalf of others that got no answer",
    "packets_sent": "Datagrams sent",
    "packets_received": "Datagrams received",
    "bytes_sent": "Bytes of datagrams sent",
    "bytes_received": "Bytes of datagrams received",
    "stream_bytes_sent": "Bytes sent on streams",
    "stream_bytes_received": "Bytes received on streams",
    "streams_failed": "Streams that broke or made no sense",
    "malformed": "Datagrams and messages that were dropped because they made no sense",
    "messages_refused": "Messages of datagrams that were dropped because too many came in a second",
    "states_refused": "States that were dropped because others waited to be merged",
    "members_refused": "New members that were refused because the pool is full",
    "send_errors": "Datagrams that this machine refused to send",
    "lags": "Times that this node's event loop was late",
    "lag_seconds": "How late this node's event loop was, together",
    "health_received": "Changes of other nodes' health that were heard",
    "health_refused": "Health of other nodes that could not be read",
}
"""Maps a field of `Counters`, which also names its metric, to the text of the metric."""


class GossipCollector(Collector):
    """Collects the metrics of one node. Register it with `registry.register(GossipCollector(node))`."""

    def __init__(self, node: GossipNode) -> None:
        self._node = node

    def collect(self) -> Iterator[Metric]:
        for field, text in _COUNTERS.items():
            yield CounterMetricFamily(f"tenure_gossip_{field}", text, value=float(getattr(self._node.counters, field)))
        states = Counter(member.state.name.lower() for member in self._node.members)
        members = GaugeMetricFamily("tenure_gossip_members", "Known members by state", labels=["state"])
        for state in ("alive", "suspect", "dead", "left"):
            members.add_metric([state], states[state])
        yield members
        yield GaugeMetricFamily(
            "tenure_gossip_awareness", "How much this node distrusts itself, from 0", value=self._node.awareness
        )
        yield GaugeMetricFamily("tenure_gossip_queued", "Rumours that wait to be passed on", value=self._node.queued)
        skew = self._node.own_skew
        if skew is not None:
            yield GaugeMetricFamily(
                "tenure_gossip_clock_skew_seconds", "This node's clock minus the middle of the pool's", value=skew
            )


async def query_members(address: Address, *, settings: GossipSettings, keyring: Keyring | None = None) -> PushPull:
    """Returns the beliefs of the member at this address. Raises a `JoinError` that says why it did not answer."""
    codec = PacketCodec(label=settings.label, keyring=keyring, compression=settings.compression)
    data = codec.stream_head + seal_stream(codec, encode_push_pull(PushPull(())))
    why = "its name is unknown"
    for found in await resolve(address):
        inbox = StreamInbox(codec, opened_by_peer=False)
        try:
            answer = await stream_exchange(found, data, inbox, timeout_s=settings.stream_timeout_s)
        except (OSError, TimeoutError, WireError) as error:
            why = str(error) or type(error).__name__
            continue
        if isinstance(answer, PushPull):
            return answer
        why = f"it answered with {type(answer).__name__}"
    raise JoinError(
        f"{format_address(address)} did not tell who its members are: {why}",
        remedy="Check the address, the label (Serf has none: --label '') and the key",
    )
