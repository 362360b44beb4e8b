"""Ask a member for all that it knows, without becoming one: a push/pull in which we push nothing."""

from __future__ import annotations

from tenure.errors import JoinError, WireError
from tenure.gossip.addresses import format_address, resolve
from tenure.gossip.keyring import Keyring
from tenure.gossip.messages import Address, PushPull
from tenure.gossip.packet import PacketCodec
from tenure.gossip.settings import GossipSettings
from tenure.gossip.stream import StreamInbox, seal_stream
from tenure.gossip.transport import stream_exchange
from tenure.gossip.wire import encode_push_pull


async def ask_members(address: Address, *, settings: GossipSettings, keyring: Keyring | None = None) -> PushPull:
    """What the member at this address believes of everybody. `JoinError` says why it did not tell."""
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
