"""The root of the command line. Each command lives in a module of its own, imported only when it is called."""

from __future__ import annotations

from importlib import import_module

import click

from tenure import __version__

# name: (module, what `tenure --help` says of it). The module's `command` is the click command.
COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("tenure.cli.demo", "A job on this machine with a crash in the middle, in ten seconds"),
    "dev": ("tenure.cli.dev", "A datacenter for your module on this machine, reloaded as your code changes"),
    "worker": ("tenure.cli.worker", "Serve the workflows of a module, each in a process that can be killed alone"),
    "manager": ("tenure.cli.manager", "Take part in leading a datacenter: one leads, the others stand by"),
    "gate": ("tenure.cli.gate", "One address for several datacenters: place jobs, follow them, decide on their time"),
    "run": ("tenure.cli.run", "Run a workflow now: a bar while it runs, then what it returned, or why not"),
    "submit": ("tenure.cli.submit", "Have a workflow run once, by whichever worker is free"),
    "ps": ("tenure.cli.ps", "The jobs of a datacenter and their progress, or one of them"),
    "why": ("tenure.cli.why", "The chain of decisions that brought a job to where it is"),
    "watch": ("tenure.cli.watch", "Follow a job, or everything, as it is decided"),
    "logs": ("tenure.cli.logs", "What a job's workflow logged"),
    "result": ("tenure.cli.result", "What a job returned"),
    "cancel": ("tenure.cli.cancel", "End a job now"),
    "retry": ("tenure.cli.retry", "Run an ended job once more"),
    "schedule": ("tenure.cli.schedule", "Jobs that come again: by cron, or every so often"),
    "dashboard": ("tenure.cli.dashboard", "The page that shows a datacenter: print its address, open it"),
    "top": ("tenure.cli.top", "What this machine's workers run now: progress, last proof, time left on every grant"),
    "nodes": ("tenure.cli.nodes", "Managers and workers, and how they are"),
    "drain": ("tenure.cli.drain", "Give a worker no more work, or let it take work again"),
    "queue": ("tenure.cli.queue", "What each queue holds, its limits; pause and resume"),
    "dlq": ("tenure.cli.dlq", "Messages that were given up: look, replay, discard"),
    "token": ("tenure.cli.token", "Make a token for a client, a worker, a node or an operator"),
    "doctor": ("tenure.cli.doctor", "Check machine, engine, clocks and timeouts, and say what to do"),
    "gossip": ("tenure.cli.gossip", "Who is in a pool, what happens in it, and keys for it"),
    "completion": ("tenure.cli.completion", "What your shell needs to complete these commands"),
}

SECTIONS = {
    "Start": ("demo", "dev", "worker", "manager", "gate"),
    "Jobs": ("run", "submit", "ps", "why", "watch", "logs", "result", "cancel", "retry", "schedule"),
    "Operate": ("dashboard", "top", "nodes", "drain", "queue", "dlq", "token", "doctor", "gossip", "completion"),
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
        named = {name for names in SECTIONS.values() for name in names}
        rest = tuple(name for name in COMMANDS if name not in named)
        for title, names in {**SECTIONS, "More": rest}.items():
            found = [(name, COMMANDS[name][1]) for name in names if name in COMMANDS]
            if found:
                with formatter.section(title):
                    formatter.write_dl(found)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tenure")
def tenure() -> None:
    """Run long jobs that keep their time only while they prove that they advance.

    \b
    The first two minutes:
      tenure dev app.py                     a datacenter for your module, in one terminal
      tenure run encode path=a.mov          run a workflow of it, in another
      tenure ps; tenure why JOB             what there is, and why it is so

    Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 no manager answered, 4 a job ended without a result, 130 Ctrl-C.
    Everything that shows something takes --json.
    """
