"""The commands that the dashboard and the overview tell people to type are commands that there are."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

import tenure.control
import tenure.nodes.manager.overview
from tenure.cli.root import tenure as root

PAGE = Path(tenure.control.__file__).parent / "dashboard" / "js"


def named() -> list[str]:
    found = set()
    for path in PAGE.rglob("*.js"):
        found |= set(re.findall(r'text="(tenure [^"$]+)"', path.read_text()))
        found |= {
            text.replace("${id()}", "j-1") for text in re.findall(r"<code>(tenure [^<]+)</code>", path.read_text())
        }
    source = Path(tenure.nodes.manager.overview.__file__).read_text()
    found |= {re.sub(r"\{[^}]*\}", "x", text) for text in re.findall(r'"(?:[^"]*: )?(tenure [a-z][^"`]+)"', source)}
    return sorted(found)


def test_some_commands_are_named() -> None:
    assert len(named()) >= 10, named()


@pytest.mark.parametrize("text", named())
def test_a_command_that_people_are_told_to_type_is_one(text: str) -> None:
    words = shlex.split(text)[1:]
    command: click.Command = root
    context = click.Context(root)
    while isinstance(command, click.Group):
        name = words.pop(0)
        found = command.get_command(context, name)
        assert found is not None, f"there is no {name!r} in {text!r}"
        command = found
    files = [word for word in words if word.endswith(".py")]
    try:
        command.make_context(command.name, words, resilient_parsing=False)
    except click.BadParameter:
        assert files, text  # the file of the example is not here
