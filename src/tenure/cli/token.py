"""`tenure token NAME`: make a token for one client, worker, node or operator."""

from __future__ import annotations

import base64
import hashlib

import click

from tenure.errors import TenureError
from tenure.ids import secret_bytes
from tenure.nodes.messages.operations import Role
from tenure.web.tokens import Token, TokenBook


@click.command("token")
@click.argument("name")
@click.option("--role", type=click.Choice([role.value for role in Role]), default="client", show_default=True)
def command(name: str, role: str) -> None:
    """Make a token for NAME. Its entry for a file of tokens goes to standard output, the token itself is shown once.

    \b
    Example:
      tenure token ci --role client >> tokens.toml
      tenure token worker-7 --role worker >> tokens.toml
      tenure manager --tokens tokens.toml --engine sqlite:///tenure.db
      kill -HUP PID                                  # a manager that runs reads the file anew

    The file holds only the SHA-256: whoever reads it is not let in by it.
    """
    secret = base64.urlsafe_b64encode(secret_bytes(32)).decode().rstrip("=")
    entry = Token(name=name, role=Role(role), sha256=hashlib.sha256(secret.encode()).hexdigest())
    try:
        TokenBook([entry])
    except TenureError as error:
        raise click.ClickException(str(error)) from error
    click.echo(f'[[tokens]]\nname = "{entry.name}"\nrole = "{entry.role.value}"\nsha256 = "{entry.sha256}"\n')
    click.echo(f"The token of {name}, shown once: {secret}", err=True)
