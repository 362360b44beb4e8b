"""Plain numbers that the state machine and the shell count; `metrics` shows them."""

from __future__ import annotations

from msgspec import Struct


class Counters(Struct):
    """All only grow."""

    probes: int = 0
    probes_failed: int = 0
    probes_indirect: int = 0
    probes_by_stream: int = 0
    suspicions: int = 0  # members that became suspects, whoever accused them
    accusations: int = 0  # of these and of confirmations, those that this node made itself
    refutations: int = 0  # of ourselves
    false_alarms: int = 0  # suspects that turned out to live
    failures: int = 0
    late_returns: int = 0  # members declared dead that turned out to live: the false positives
    joins: int = 0
    leaves: int = 0
    nacks_sent: int = 0
    nacks_received: int = 0
    relays: int = 0  # pings sent for others
    relays_answered: int = 0
    relays_refused: int = 0
    packets_sent: int = 0
    packets_received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    streams_opened: int = 0
    streams_accepted: int = 0
    streams_failed: int = 0
    stream_bytes_sent: int = 0
    stream_bytes_received: int = 0
    malformed: int = 0
    misdirected: int = 0  # pings for somebody else at our address
    send_errors: int = 0
    lags: int = 0
    lag_seconds: float = 0.0
    health_received: int = 0
    health_refused: int = 0
