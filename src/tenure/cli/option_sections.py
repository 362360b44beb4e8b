"""Shows the options of a long-running command by topic, as `tenure --help` shows the commands: a worker has thirty, and most people need five."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click


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
