"""The root of the command line. Each command lives in a module of its own, imported only when it is called."""

from __future__ import annotations

from importlib import import_module

import click

from tenure import __version__

# name: (module, what `tenure --help` says of it). The module's `command` is the click command.
COMMANDS: dict[str, tuple[str, str]] = {
    "dev": ("tenure.cli.dev", "A datacenter for your module on this machine, reloaded as your code changes"),
    "worker": ("tenure.cli.worker", "Serve the workflows of a module, each in a process that can be killed alone"),
    "manager": ("tenure.cli.manager", "Take part in leading a datacenter: one leads, the others stand by"),
    "gate": ("tenure.cli.gate", "One address for several datacenters: place jobs, follow them, decide on their time"),
    "submit": ("tenure.cli.submit", "Have a workflow run once, by whichever worker is free"),
    "ps": ("tenure.cli.ps", "The jobs of a datacenter and their progress, or one of them"),
    "why": ("tenure.cli.why", "The chain of decisions that brought a job to where it is"),
    "cancel": ("tenure.cli.cancel", "End a job now"),
    "top": ("tenure.cli.top", "What this machine's workers run now: progress, last proof, time left on every grant"),
    "doctor": ("tenure.cli.doctor", "Check an engine: version, rights and settings, with remedies"),
    "gossip": ("tenure.cli.gossip", "Who is in a pool, what happens in it, and keys for it"),
}


class LazyGroup(click.Group):
    """Lists commands from a table, so that `tenure --help` does not import what it only names."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        found: click.Command = import_module(COMMANDS[cmd_name][0]).command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tenure")
def tenure() -> None:
    """Run long jobs that keep their time only while they prove that they advance."""
