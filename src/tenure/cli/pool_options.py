"""The options by which a node takes part in gossip: the same for managers and workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from tenure.nodes.pooling import PoolSettings

_OPTIONS = (
    click.option("--gossip", default="", metavar="HOST:PORT", help="Gossip here, with port 0 on a free one."),
    click.option("--join", multiple=True, metavar="HOST:PORT", help="Members of the pool to join. Repeatable."),
    click.option("--gossip-advertise", default="", metavar="HOST:PORT", help="Where members reach it, if elsewhere."),
    click.option(
        "--gossip-key-file",
        type=click.Path(exists=True, dir_okay=False),
        envvar="TENURE_GOSSIP_KEY_FILE",
        help="Keys of the pool in base64, one a line; the first encrypts.",
    ),
)


def gossip_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds them; the command gets one `pool` in their place."""

    def command(
        *, gossip: str, join: tuple[str, ...], gossip_advertise: str, gossip_key_file: str | None, **rest: Any
    ) -> Any:
        if join and not gossip:
            raise click.UsageError("--join needs --gossip: say where this node listens, as --gossip 127.0.0.1:0")
        return function(pool=PoolSettings(gossip, join, gossip_advertise, gossip_key_file or ""), **rest)

    command.__doc__ = function.__doc__
    command.__dict__.update(function.__dict__)
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
