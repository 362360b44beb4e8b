"""The `tenure` command."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tenure import machine

if TYPE_CHECKING:
    from tenure.work.slots.interpreters import BegunServer

__all__ = ["main"]


def main() -> None:
    """Runs the `tenure` command. The console script calls it; the module of a command is imported only when it is called."""
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


_PASSWORD = re.compile(r"://[^/@\s]*?:([^/@\s]+)@")
_OPTION = "--token"


def hide_secrets(arguments: Sequence[str]) -> None:
    """Writes over tokens and passwords of URLs in the command line, where the system allows it: `ps` shows every user of the machine what a node was
    started with. They were seen until now: the environment or a file never shows them."""
    for secret in secrets_in(arguments):
        machine.here.hide_argument(secret)


def secrets_in(arguments: Sequence[str]) -> Iterator[str]:
    for before, argument in zip(("", *arguments), arguments, strict=False):
        name, equals, value = argument.partition("=")
        if before == _OPTION and argument:
            yield argument
        elif name == _OPTION and equals and value:
            yield value
        yield from _PASSWORD.findall(argument)
