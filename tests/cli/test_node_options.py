"""The help of the long-running commands shows each option once, under a heading."""

from __future__ import annotations

import re

import click
import pytest
from click.testing import CliRunner

from tenure.cli.leaders import gate, manager
from tenure.cli.worker import worker


@pytest.mark.parametrize("command", [worker, manager, gate])
def test_each_option_is_shown_once_and_only_the_help_stands_under_no_heading(command: click.Command) -> None:
    text = CliRunner().invoke(command, ["--help"]).output
    _, first, *headings = re.split(r"^(?=\S.*:$)", text[text.index("Options:") :], flags=re.MULTILINE)
    assert re.findall(r"^  -.*", first, re.MULTILINE) == re.findall(r"^  .*--help.*", first, re.MULTILINE)
    assert len(headings) >= 4
    shown = re.findall(r"^  (--[\w-]+)", "".join(headings), re.MULTILINE)
    known = [one.opts[0] for one in command.params if isinstance(one, click.Option)]
    assert sorted(shown) == sorted(known)
