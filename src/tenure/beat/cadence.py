"""How often a lease is renewed: pure arithmetic over the lease and the gaps between beats that were seen.

A renewal happens on a beat, at most once per interval. A beat that comes just before the interval is over is skipped, so the
silence that a lease really survives is the lease less the interval. The longer the gaps that this work shows, the shorter the interval
has to be for the next gap still to fit.
"""

from __future__ import annotations

DEFAULT_INTERVAL_S = 60.0
"""Document 003's `LeaseExtenderConfig.interval`."""

# Of a gap that was seen once, the next may be this much longer.
_GAP_HEADROOM = 1.25
# How fast an old, long gap is forgotten: each later observation takes this part of the excess away.
_FORGETTING = 0.1


def derived_interval(lease_s: float) -> float:
    """The interval where none was chosen: a minute, or a third of a shorter lease, so that two renewals may fail."""
    return min(DEFAULT_INTERVAL_S, lease_s / 3)


def remembered_gap(remembered_s: float, observed_s: float) -> float:
    """The gap to expect: a longer one is taken at once, a shorter one only slowly."""
    if observed_s >= remembered_s:
        return observed_s
    return remembered_s - (remembered_s - observed_s) * _FORGETTING


def adapted_interval(interval_s: float, lease_s: float, gap_s: float) -> float:
    """The interval that lets a gap like the last ones still fit into the lease; never longer than the one that was set.

    Work whose gaps approach the lease is renewed on every beat (0): more cannot be done from here, and it is warned about.
    """
    return max(0.0, min(interval_s, lease_s - gap_s * _GAP_HEADROOM))
