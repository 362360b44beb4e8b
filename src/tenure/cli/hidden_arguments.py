"""Takes secrets out of the command line that other processes see: `ps` shows every user of the machine what a node was started with."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tenure import machine

_PASSWORD = re.compile(r"://[^/@\s]*?:([^/@\s]+)@")
_OPTION = "--token"


def hide_secrets(arguments: Sequence[str]) -> None:
    """Writes over tokens and passwords of URLs, where the system allows it. They were seen until now: the environment or a file never shows them."""
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
