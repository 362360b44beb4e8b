"""`tenure token`: what it writes lets in whoever has what it shows."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from tenure.cli.operate import token as command
from tenure.control.messages.operations import Role
from tenure.control.port_security import Front


def test_the_entry_lets_in_who_has_the_token_and_does_not_hold_it(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    secrets = {}
    for name, role in (("ci", "client"), ("ops", "operator")):
        made = CliRunner().invoke(command, [name, "--role", role])
        assert made.exit_code == 0
        secrets[name] = made.stderr.rpartition(" ")[2].strip()
        with file.open("a") as out:
            out.write(made.stdout)
    book = Front(tokens_file=str(file)).book()
    found = {name: book.identify(secret) for name, secret in secrets.items()}
    assert {name: one and one.name for name, one in found.items()} == {"ci": "ci", "ops": "ops"}
    assert found["ops"] is not None
    assert Role.OPERATOR in found["ops"].roles
    assert not any(secret in file.read_text() for secret in secrets.values())
    assert all(len(secret) >= 43 for secret in secrets.values())


def test_a_name_that_cannot_be_one_is_refused() -> None:
    made = CliRunner().invoke(command, ['ci"\nrole = "operator'])
    assert made.exit_code == 1
    assert "a token's name is" in made.output
