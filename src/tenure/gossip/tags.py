"""A node's tags, as Serf keeps them in the metadata: 0xff and a msgpack map. Ours and the user's share the 512 bytes.

Two names are ours: `start`, which names one start of a node, and `health`, the slow copy of its health.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

from tenure.errors import ConfigurationError, LimitError, PiggybackError, WireError
from tenure.gossip.messages import MAX_META_BYTES
from tenure.gossip.msgpack import pack, unpack
from tenure.health.piggyback import HealthPiggyback

START = "start"
HEALTH = "health"
RESERVED = (START, HEALTH)

_MAGIC = 0xFF


def encode_tags(tags: Mapping[str, str]) -> bytes:
    """The metadata of a node."""
    meta = bytes((_MAGIC,)) + pack(dict(tags))
    if len(meta) > MAX_META_BYTES:
        raise LimitError("tags", f"{len(meta)} bytes", f"at most {MAX_META_BYTES} bytes together")
    return meta


def decode_tags(meta: bytes) -> dict[str, str]:
    """What `encode_tags` or Serf wrote. Metadata of another form is the tag `role`, as Serf shows it."""
    if not meta:
        return {}
    if meta[0] != _MAGIC:
        return {"role": meta.decode(errors="replace")}
    try:
        pairs, _ = unpack(meta, 1)
    except WireError:
        return {}
    if not isinstance(pairs, dict):
        return {}
    return {
        key.decode(errors="replace"): value.decode(errors="replace")
        for key, value in pairs.items()
        if isinstance(key, bytes) and isinstance(value, bytes)
    }


def check_user_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """The user's tags, if they are text and leave our names alone."""
    for name, value in tags.items():
        if not isinstance(name, str) or not isinstance(value, str) or not name:
            raise ConfigurationError(f"tag {name!r} is {value!r}; names and values of tags are text")
        if name in RESERVED:
            raise ConfigurationError(f"the tag {name!r} is Tenure's own", remedy="Give it another name")
    return dict(tags)


def health_tag(health: HealthPiggyback) -> str:
    """Health as text that fits a tag, and that `serf members` can print."""
    return base64.b64encode(health.encode()).decode()


def health_from_tag(text: str) -> HealthPiggyback | None:
    """None where it is no health that we can read."""
    try:
        return HealthPiggyback.decode(base64.b64decode(text, validate=True))
    except (binascii.Error, PiggybackError, ValueError):
        return None
