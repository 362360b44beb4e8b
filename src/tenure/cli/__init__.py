"""The `tenure` command."""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # not typing's own: here and below, nothing is imported before a worker's fork server is started
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tenure.work.slots.interpreters import BegunServer

__all__ = ["main"]


def main() -> None:
    """Runs the `tenure` command. The console script calls it; the module of a command is imported only when it is called."""
    begun = _begin_early(sys.argv[1:])
    hide_secrets(sys.argv)
    from tenure.cli.root import tenure

    tenure(obj=begun)


def _begin_early(arguments: Sequence[str]) -> BegunServer | None:
    """Starts the fork server of a worker before anything else is imported, because the first job waits for it (decisions 0810, 1010).

    No option is read here. The command of the worker drops a server that its options have no use for.
    """
    if arguments[:1] != ["worker"] or "-h" in arguments or "--help" in arguments:
        return None
    from tenure.work.slots.interpreters import begin_early

    return begin_early()


_IN_URLS = r"://[^/@\s]*?:([^/@\s]+)@"
_OPTION = "--token"


def hide_secrets(arguments: Sequence[str]) -> None:
    """Writes over tokens and passwords of URLs in the command line, where the system allows it: `ps` shows every user of the machine what a node was
    started with. They were seen until now: the environment or a file never shows them."""
    from tenure import machine

    for secret in secrets_in(arguments):
        machine.here.hide_argument(secret)


def secrets_in(arguments: Sequence[str]) -> Iterator[str]:
    import re

    for before, argument in zip(("", *arguments), arguments, strict=False):
        name, equals, value = argument.partition("=")
        if before == _OPTION and argument:
            yield argument
        elif name == _OPTION and equals and value:
            yield value
        yield from re.findall(_IN_URLS, argument)
