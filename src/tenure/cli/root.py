"""The root of the command line: one table of commands. The module of a command is imported only when it is called."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from types import ModuleType

import click
from click.shell_completion import get_completion_class

from tenure import __version__

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Start": {
        "demo": ("dev", "A job on this machine with a crash in the middle, in ten seconds"),
        "dev": ("dev", "A datacenter for your module on this machine, reloaded as your code changes"),
        "worker": ("worker", "Serve the workflows of a module, each in a process that can be killed alone"),
        "manager": ("leaders", "Take part in leading a datacenter: one leads, the others stand by"),
        "gate": ("leaders", "One address for several datacenters: place jobs, follow them, decide on their time"),
    },
    "Jobs": {
        "run": ("write_jobs", "Run a workflow now: a bar while it runs, then what it returned, or why not"),
        "submit": ("write_jobs", "Have a workflow run once, by whichever worker is free"),
        "ps": ("read_jobs", "The jobs of a datacenter and their progress, or one of them"),
        "why": ("read_jobs", "The chain of decisions that brought a job to where it is"),
        "watch": ("read_jobs", "Follow a job, or everything, as it is decided"),
        "evidence": ("read_jobs", "What was found of an attempt that failed, was killed or died"),
        "output": ("read_jobs", "What a job's workflow emits while it runs"),
        "logs": ("read_jobs", "What a job's workflow logged"),
        "result": ("read_jobs", "What a job returned"),
        "cancel": ("write_jobs", "End a job now"),
        "retry": ("write_jobs", "Run an ended job once more"),
        "signal": ("steer_jobs", "Send a signal to a job that waits, or will wait, for it"),
        "pause": ("steer_jobs", "Pause a job: what runs ends with its checkpoint, and no clock runs"),
        "resume": ("steer_jobs", "Let a paused job go on"),
        "extend": ("steer_jobs", "Give a job more time"),
        "retime": ("steer_jobs", "Give a job another deadline, or none"),
        "move": ("steer_jobs", "Have what runs go on from its checkpoint on another worker"),
        "schedule": ("schedule", "Jobs that come again: by cron, or every so often"),
    },
    "Operate": {
        "status": ("operate", "How the datacenter is, and what is wrong"),
        "dashboard": ("operate", "The page that shows a datacenter: print its address, open it"),
        "top": ("top", "What this machine's workers run now: progress, last proof, time left on every grant"),
        "nodes": ("operate", "Managers and workers, and how they are"),
        "drain": ("operate", "Give a worker no more work, or let it take work again"),
        "workflows": ("workflows", "The workflows that workers serve: arguments, settings, versions"),
        "thresholds": ("workflows", "The stall thresholds of workflows: set, learned, and which holds"),
        "hold": ("operate", "Say that something that work waits for is down, or back"),
        "queue": ("operate", "What each queue holds, its limits; pause and resume"),
        "dlq": ("dead_letters", "Messages that were given up: look, replay, discard"),
        "journal": ("journal", "Look at what was decided, entry by entry; find and mend damage"),
        "token": ("token", "Create, list and revoke tokens: who may do what, where, how much and until when"),
        "doctor": ("doctor", "Check machine, engine, clocks and timeouts, and say what to do"),
        "gossip": ("gossip", "Who is in a pool, what happens in it, and keys for it"),
        "completion": ("root", "What your shell needs to complete these commands"),
    },
}
"""Maps each section of `tenure --help` to its commands, and each command to its module in this folder and its line of help.

The module has a function of the command's name.
"""
COMMANDS = {name: found for section in SECTIONS.values() for name, found in section.items()}


def _module_of(command: str) -> ModuleType:
    name = f"tenure.cli.{COMMANDS[command][0]}"
    try:
        return import_module(name)
    except ModuleNotFoundError:
        from tenure.errors import ConfigurationError
        from tenure.machine import posix_module

        try:
            # This says where the command would work, and raises the error of another missing module again.
            return posix_module(name, f"tenure {command}")
        except ConfigurationError as error:
            raise click.ClickException(str(error)) from error


class LazyGroup(click.Group):
    """Lists commands from a table, so that `tenure --help` does not import their modules."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        found: click.Command = getattr(_module_of(cmd_name), cmd_name)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = get_close_matches(args[0], COMMANDS, n=2)
            if not near:
                raise
            raise click.UsageError(f"{error.message} Did you mean {' or '.join(near)}?", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, line) for name, (_, line) in commands.items()])


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


@click.command("root")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for SHELL.

    \b
    Examples:
      eval "$(tenure completion bash)"                              # in ~/.bashrc
      eval "$(tenure completion zsh)"                               # in ~/.zshrc
      tenure completion fish > ~/.config/fish/completions/tenure.fish
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise click.ClickException(f"click knows no completion for {shell}")
    click.echo(kind(tenure, {}, "tenure", "_TENURE_COMPLETE").source())
