"""Asks one member of a pool for its view of all members, without joining: a push/pull that pushes nothing."""

from __future__ import annotations

from tenure.errors import JoinError, WireError
from tenure.gossip.messages import Address, PushPull
from tenure.gossip.net.transport import format_address, resolve, stream_exchange
from tenure.gossip.sealing import Keyring, PacketCodec
from tenure.gossip.settings import GossipSettings
from tenure.gossip.stream import StreamInbox, seal_stream
from tenure.gossip.wire import encode_push_pull


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
