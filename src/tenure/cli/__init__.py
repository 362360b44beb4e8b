"""The `tenure` command."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Runs the `tenure` command. The console script calls it; the module of a command is imported only when it is called."""
    from tenure.cli.root import tenure

    tenure()
