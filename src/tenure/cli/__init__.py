"""The `tenure` command."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """The console script's way in; the commands are imported when they are needed."""
    from tenure.cli.root import tenure

    tenure()
