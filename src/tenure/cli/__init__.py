"""The `tenure` command."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Runs the `tenure` command. The console script calls it; the module of a command is imported only when it is called."""
    from tenure.cli.hidden_arguments import hide_secrets
    from tenure.cli.root import tenure

    hide_secrets(sys.argv)
    tenure()
