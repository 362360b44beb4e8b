"""`tenure thresholds` asks a manager over HTTP, and shows what it answers."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from tests.nodes.served import Served

from tenure.cli.workflows import threshold_table, thresholds
from tenure.client.client import Client
from tenure.control.messages.workflows import ThresholdEntry, ThresholdExample, ThresholdList

TEXT = "would have ended it at 42 s; it went on at 51 s: wrong"
LINE = ThresholdEntry(
    name="review",
    version="3",
    attempts=812,
    set_s=300.0,
    learned_s=63.8,
    false_kills=1e-4,
    learns=True,
    holds_s=63.8,
    why="learned from 812 attempts",
    wrong=1,
    found=4,
    sooner_s=980.0,
    last_wrong=ThresholdExample(job_id="r-51", at=1.0, learned_s=42.0, silent_s=51.0, text=TEXT),
)


def test_a_manager_that_learned_nothing_says_so() -> None:
    with Served() as node:
        done = CliRunner().invoke(thresholds, ["--address", node.host])
        assert (done.exit_code, done.stderr) == (0, "Nothing was learned yet.\n"), done.output
        named = CliRunner().invoke(thresholds, ["encode", "--json", "--address", node.host])
        assert (named.exit_code, json.loads(named.stdout)["thresholds"]) == (1, [])


def test_the_table_says_which_threshold_holds_and_where_the_learned_one_was_wrong() -> None:
    table = threshold_table(ThresholdList(thresholds=(LINE,), now=2.0))
    cells = [next(iter(column.cells)) for column in table.columns]
    assert [str(cell) for cell in cells] == [
        *["review", "3", "812", "300 s", "63.8 s", "63.8 s", "learned from 812 attempts", "1", "4, by 245 s each"]
    ]


def test_the_examples_are_printed_below_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Client, "thresholds", lambda self, name="": ThresholdList(thresholds=(LINE,), now=2.0))
    done = CliRunner().invoke(thresholds, ["--address", "127.0.0.1:1"])
    assert f"review 3, job r-51: {TEXT}" in done.stdout
