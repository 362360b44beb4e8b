"""The `tenure` command."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenure.work.slots.interpreters import BegunServer

__all__ = ["main"]


def main() -> None:
    """Runs the `tenure` command. The console script calls it; the module of a command is imported only when it is called."""
    from tenure.cli.hidden_arguments import hide_secrets

    hide_secrets(sys.argv)
    begun = _begin_early(sys.argv[1:])
    from tenure.cli.root import tenure

    tenure(obj=begun)


def _begin_early(arguments: Sequence[str]) -> BegunServer | None:
    """Starts the fork server of a worker before click is imported, which takes as long as a third of the server's own imports (decision 0810).

    No option is read here. The command of the worker drops a server that its options have no use for.
    """
    if arguments[:1] != ["worker"] or not {"-h", "--help"}.isdisjoint(arguments):
        return None
    from tenure.work.slots.interpreters import begin_early

    return begin_early()
