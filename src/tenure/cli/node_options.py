"""Options that the commands which start nodes share: the port and its protection, gossip, the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from tenure.control.admission import HttpLimits
from tenure.logs import LogForm
from tenure.nodes.gossip_pool import PoolSettings

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def front_options(function: FunctionT) -> FunctionT:
    """Adds the options of a port: where it listens, its tokens and its certificates."""
    for option in (
        click.option(
            "--tls-client-ca", default="", metavar="FILE", help="Let in only who shows a certificate of this CA."
        ),
        click.option(
            "--tls-key", default="", metavar="FILE", help="The certificate's key, if it is in a file of its own."
        ),
        click.option("--tls-cert", default="", metavar="FILE", help="Serve TLS with this certificate (PEM)."),
        click.option(
            "--tokens",
            default="",
            envvar="TENURE_TOKENS",
            metavar="FILE",
            help="Tokens with names and roles, as TOML or JSON; read anew on SIGHUP. Or TENURE_TOKENS.",
        ),
        click.option(
            "--token", default="", envvar="TENURE_TOKEN", help="One token that may do everything; or TENURE_TOKEN."
        ),
        click.option(
            "--rate-limit",
            default=HttpLimits().requests_per_s,
            show_default=True,
            help="Requests a second that one caller may send on average, and twice as many at once.",
        ),
        click.option(
            "--host",
            default="127.0.0.1",
            show_default=True,
            help="Where to listen; beyond loopback needs tokens or client certificates.",
        ),
    ):
        function = option(function)
    return function


_GOSSIP_OPTIONS = (
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
    """Adds the options of gossip. The command gets one `pool` in their place."""

    def command(
        *, gossip: str, join: tuple[str, ...], gossip_advertise: str, gossip_key_file: str | None, **rest: Any
    ) -> Any:
        if join and not gossip:
            raise click.UsageError("--join needs --gossip: say where this node listens, as --gossip 127.0.0.1:0")
        return function(pool=PoolSettings(gossip, join, gossip_advertise, gossip_key_file or ""), **rest)

    command.__doc__ = function.__doc__
    command.__dict__.update(function.__dict__)
    for option in reversed(_GOSSIP_OPTIONS):
        command = option(command)
    return command


log_format_option = click.option(
    "--log-format",
    type=click.Choice([form.value for form in LogForm]),
    default=LogForm.TEXT.value,
    show_default=True,
    envvar="TENURE_LOG_FORMAT",
    help="Lines for people, or JSON for machines; or TENURE_LOG_FORMAT.",
)
