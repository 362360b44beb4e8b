"""`tenure doctor --engine URL`: does this engine keep its promises as it is set up here, and if not, what to change."""

from __future__ import annotations

import sys

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tenure.engines import Engine, Finding, Level
from tenure.engines.urls import redact
from tenure.errors import TenureError

_STYLES = {Level.OK: "green", Level.WARNING: "yellow", Level.ERROR: "bold red"}


def examine(url: str) -> tuple[list[Finding], list[Finding]]:
    """The findings on an engine, and the guarantees it never gives. An engine that cannot be opened is a finding."""
    try:
        with Engine.open(url) as engine:
            refusals = [Finding(Level.WARNING, one.guarantee, one.reason) for one in engine.refusals]
            return [Finding(Level.OK, "it opens, and answers"), *engine.check()], refusals
    except TenureError as error:
        return [Finding(Level.ERROR, error.fact, error.remedy)], []


@click.command("doctor")
@click.option("--engine", "url", required=True, envvar="TENURE_ENGINE", help="The engine's URL; or set TENURE_ENGINE.")
def command(url: str) -> None:
    """Check an engine: can it be reached, is it recent enough, may we write, and do its settings keep our promises?

    The exit code is 1 when an error was found, 0 otherwise; warnings do not change it.
    """
    findings, refusals = examine(url)
    # Without a terminal there is no width to fit: a log or a pipe gets each row on one line.
    console = Console(width=None if sys.stdout.isatty() else 200)
    table = Table(title=redact(url), title_justify="left", show_lines=False)
    for column in ("", "finding", "what to do"):
        table.add_column(column, overflow="fold")
    for level, what, remedy in findings:
        table.add_row(Text(level.value, style=_STYLES[level]), Text(what), Text(remedy))
    console.print(table)
    for _, guarantee, reason in refusals:
        console.print(Text(f"not promised: {guarantee}: {reason}"))
    errors = sum(level is Level.ERROR for level, _, _ in findings)
    warnings = sum(level is Level.WARNING for level, _, _ in findings)
    console.print(Text(f"{len(findings)} findings: {errors} errors, {warnings} warnings"))
    raise SystemExit(1 if errors else 0)
