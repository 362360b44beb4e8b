"""Local time of a place: the only file that knows time zones."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

from tenure.errors import ConfigurationError


@lru_cache(maxsize=256)
def zone(name: str) -> Callable[[float], int]:
    """Returns the seconds by which local clocks are ahead of UTC at a Unix time. Raises `ConfigurationError` for an unknown place."""
    if name == "UTC":
        return lambda instant: 0
    try:
        place = ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ConfigurationError(
            f"zone {name!r} is not known on this machine",
            remedy="Write a name as Europe/Berlin or UTC; where the system has no zones, install the tzdata package",
        ) from error

    def ahead(instant: float) -> int:
        offset = datetime.fromtimestamp(instant, UTC).astimezone(place).utcoffset()
        return int(offset.total_seconds()) if offset else 0

    return ahead
