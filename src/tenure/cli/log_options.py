"""How a node's command is told to write its log."""

from __future__ import annotations

import click

from tenure.logs import LogForm

log_format_option = click.option(
    "--log-format",
    type=click.Choice([form.value for form in LogForm]),
    default=LogForm.TEXT.value,
    show_default=True,
    envvar="TENURE_LOG_FORMAT",
    help="Lines for people, or JSON for machines; or TENURE_LOG_FORMAT.",
)
