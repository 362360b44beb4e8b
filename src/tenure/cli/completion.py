"""`tenure completion SHELL`: prints the script with which a shell completes our commands."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for SHELL.

    \b
    Examples:
      eval "$(tenure completion bash)"                              # in ~/.bashrc
      eval "$(tenure completion zsh)"                               # in ~/.zshrc
      tenure completion fish > ~/.config/fish/completions/tenure.fish
    """
    from tenure.cli.root import tenure

    kind = get_completion_class(shell)
    if kind is None:
        raise click.ClickException(f"click knows no completion for {shell}")
    click.echo(kind(tenure, {}, "tenure", "_TENURE_COMPLETE").source())
