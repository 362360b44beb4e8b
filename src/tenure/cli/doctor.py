"""`tenure doctor`: checks that this machine, this engine and these timeouts can keep Tenure's promises, and says what to change."""

from __future__ import annotations

import click
from rich.table import Table
from rich.text import Text

from tenure.cli import doctor_checks
from tenure.cli.datacenter_options import console, print_json, show
from tenure.client.client import Client
from tenure.engines import Finding, Level
from tenure.engines.urls import redact

_STYLES = {Level.OK: "green", Level.WARNING: "yellow", Level.ERROR: "bold red"}


@click.command("doctor")
@click.option("--engine", "url", default="", envvar="TENURE_ENGINE", help="The engine's URL; or set TENURE_ENGINE.")
@click.option("--address", default="", envvar="TENURE_ADDRESS", help="host:port of managers, to look at the nodes too.")
@click.option("--token", default="", envvar="TENURE_TOKEN", help="The datacenter's token; or TENURE_TOKEN.")
@click.option("--lease", default=60.0, show_default=True, help="As you give it to workers.")
@click.option(
    "--stall", default=300.0, show_default=True, help="As you give it to workers, or the longest of your workflows'."
)
@click.option("--grace", default=5.0, show_default=True, help="As you give it to workers.")
@click.option("--timeout", default=3600.0, show_default=True, help="As you give it to jobs.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(
    url: str, address: str, token: str, lease: float, stall: float, grace: float, timeout: float, as_json: bool
) -> None:
    """Check this machine, an engine, the clocks, the ladder of timeouts and the nodes; each finding says what to do.

    \b
    Examples:
      tenure doctor
      tenure doctor --engine sqlite:///tenure.db
      tenure doctor --engine "$TENURE_ENGINE" --address 127.0.0.1:8470 --stall 600

    The exit code is 1 when an error was found, 0 otherwise; warnings do not change it.
    """
    parts: dict[str, list[Finding]] = {"this machine": doctor_checks.machine()}
    refusals: list[Finding] = []
    if url:
        parts[redact(url)], refusals = doctor_checks.engine(url)
    parts["the ladder of timeouts"] = doctor_checks.ladder(lease, stall, grace, timeout)
    if address:
        with Client(address, token=token, patience_s=5.0) as client:
            parts["nodes"] = doctor_checks.nodes(client)
    errors = sum(one.level is Level.ERROR for found in parts.values() for one in found)
    warnings = sum(one.level is Level.WARNING for found in parts.values() for one in found)
    if as_json:
        listed = {title: [one._asdict() for one in found] for title, found in parts.items()}
        print_json({"parts": listed, "not_promised": [one._asdict() for one in refusals], "errors": errors})
    else:
        _show(parts, refusals, f"{sum(map(len, parts.values()))} findings: {errors} errors, {warnings} warnings")
    raise SystemExit(1 if errors else 0)


def _show(parts: dict[str, list[Finding]], refusals: list[Finding], summary: str) -> None:
    screen = console()
    for title, found in parts.items():
        table = Table(title=title, title_justify="left", show_lines=False)
        for column in ("", "finding", "what to do"):
            table.add_column(column, overflow="fold")
        for level, what, remedy in found:
            table.add_row(Text(level.value, style=_STYLES[level]), Text(what), Text(remedy))
        show(table)
    for _, guarantee, reason in refusals:
        screen.print(Text(f"not promised: {guarantee}: {reason}"))
    screen.print(Text(summary))
