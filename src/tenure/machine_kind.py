"""Says whether this process may ask for what only Linux has. `machine` has the questions; a worker asks this one before it imports anything."""

from __future__ import annotations

import os
import sys


def is_linux() -> bool:
    """Returns False elsewhere, and with TENURE_MACHINE=portable."""
    return sys.platform == "linux" and os.environ.get("TENURE_MACHINE") != "portable"
