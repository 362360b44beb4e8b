"""The limits that every engine keeps, so that what works on one works on all."""

from __future__ import annotations

MAX_VISIBILITY_S = 43_200
"""Twelve hours: leases, delays and nack delays are between 0 and this."""
MAX_WAIT_S = 43_200
MAX_MESSAGES = 1_000
"""The most messages that one receive asks for or one send_many brings."""
MAX_BODY_BYTES = 524_288
"""The most bytes of one encoded body or reply, and of one checkpoint. Larger values belong into the store."""
MAX_APPEND_BYTES = 524_288
"""The most bytes of all events of one append together."""
MAX_SNAPSHOT_BYTES = 67_108_864
MAX_STORE_BYTES = 8_388_608
MAX_KEY_CHARS = 512
MAX_TTL_S = 31_622_400
"""A year: of a stored value, and of a term."""
KEY_MEMORY_S = 86_400
"""A key is remembered for at least this long after its message ended, so that a late resend is refused."""
