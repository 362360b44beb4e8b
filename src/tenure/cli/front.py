"""The options that protect the port of a node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from tenure.web.limits import HttpLimits

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def front_options(function: FunctionT) -> FunctionT:
    """Where to listen, and who is let in."""
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
