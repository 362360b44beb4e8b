"""Options that nodes share: gossip, keys and the log; how their help shows them by topic; and how a command ends by an error or a signal.

It imports neither a client nor a node: a worker pays for what this file imports each time it starts.
"""

from __future__ import annotations

import inspect
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any

import click

from tenure.errors import TenureError
from tenure.logs import LogForm
from tenure.nodes.pool_settings import PoolSettings

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


@contextmanager
def friendly() -> Iterator[None]:
    """Ends the command with one line for an error of Tenure, instead of a traceback."""
    try:
        yield
    except TenureError as error:
        raise click.ClickException(f"{error}\n{see(error)}") from error


def see(error: TenureError) -> str:
    """Returns the last line that a command prints of an error: where to read about it."""
    return f"See {error.page}"


def stop_signals() -> tuple[signal.Signals, ...]:
    """Returns the signals by which a node ends in good order. Under `nohup`, the end of its terminal is none of them."""
    ignores_hangup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGTERM, signal.SIGINT) if ignores_hangup else (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def one_value(name: str, make: Callable[..., Any], *options: Decorator) -> Decorator:
    """Returns a decorator that adds `options` to a command. In their place the command gets one argument `name`, which `make` returns.

    `make` is called with the options that its parameters name, also those that other decorators added.
    """
    wanted = inspect.signature(make).parameters

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def called(*args: Any, **given: Any) -> Any:
            with friendly():
                value = make(**{option: given.pop(option) for option in wanted})
            return function(*args, **{name: value}, **given)

        found: Callable[..., Any] = called
        for option in reversed(options):
            found = option(found)
        return found

    return decorated


def _pool(
    gossip: str, join: tuple[str, ...], gossip_advertise: str, gossip_key_file: str | None, gossip_no_key: bool
) -> PoolSettings:
    if join and not gossip and not gossip_key_file:
        raise click.UsageError(
            "--join needs --gossip or --gossip-key-file: say where this node listens, as --gossip 127.0.0.1:0"
        )
    return PoolSettings(gossip, join, gossip_advertise, gossip_key_file or "", gossip_no_key)


gossip_options = one_value(
    "pool",
    _pool,
    click.option(
        "--gossip",
        default="",
        metavar="HOST:PORT",
        help="Gossip here, with port 0 on a free one. With a key it need not be said.",
    ),
    click.option("--join", multiple=True, metavar="HOST:PORT", help="Members elsewhere to join. Repeatable."),
    click.option("--gossip-advertise", default="", metavar="HOST:PORT", help="Where members reach it, if elsewhere."),
    click.option(
        "--gossip-key-file",
        type=click.Path(exists=True, dir_okay=False),
        envvar="TENURE_GOSSIP_KEY_FILE",
        help="Keys of the pool in base64, one a line; the first encrypts. With it the node gossips; beyond loopback it is required.",
    ),
    click.option("--gossip-no-key", is_flag=True, help="Gossip beyond loopback without a key: anybody can join."),
)
"""Adds the options of gossip. The command gets one `PoolSettings` as `pool`."""

result_key_option = click.option(
    "--result-key-file",
    default="",
    envvar="TENURE_RESULT_KEYS",
    metavar="FILE",
    help="Keys that sign results, for managers and workers: KEY or WORKER KEY on each line; the first signs. Or TENURE_RESULT_KEYS.",
)

log_format_option = click.option(
    "--log-format",
    type=click.Choice([form.value for form in LogForm]),
    default=LogForm.TEXT.value,
    show_default=True,
    envvar="TENURE_LOG_FORMAT",
    help="Lines for people, or JSON for machines; or TENURE_LOG_FORMAT.",
)


class SectionedCommand(click.Command):
    """A command whose help lists its options under headings. An option that stands under none comes first."""

    def __init__(self, *args: Any, sections: Mapping[str, str], **options: Any) -> None:
        """`sections` maps each heading to the names of its options, in the order in which they are shown."""
        super().__init__(*args, **options)
        self._sections = {heading: names.split() for heading, names in sections.items()}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        shown = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        records = {one.opts[0]: found for one in shown if (found := one.get_help_record(ctx)) is not None}
        named = {name for names in self._sections.values() for name in names}
        rest = [found for name, found in records.items() if name not in named]
        listed = {heading: [records[name] for name in names] for heading, names in self._sections.items()}
        for heading, rows in {"Options": rest, **listed}.items():
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)


GOSSIP = "--gossip --join --gossip-advertise --gossip-key-file --gossip-no-key"
