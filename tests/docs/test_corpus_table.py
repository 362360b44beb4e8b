"""The table of the hang corpus is what the runs wrote, in the page and in the README."""

from __future__ import annotations

import json

import pytest
from corpus.table import BEGIN, DOCS, END, README, page, with_table

KNOWN = json.loads((DOCS / "corpus.json").read_text())
PEERS = ("arq", "celery", "dbos", "dramatiq", "procrastinate", "rq", "saq", "taskiq", "temporal")


def test_page_and_readme_say_what_the_runs_found() -> None:
    assert (DOCS / "corpus.md").read_text() == page(KNOWN)
    readme = README.read_text()
    assert readme == with_table(readme, KNOWN)
    assert readme.count(BEGIN) == readme.count(END) == 1


@pytest.mark.parametrize("name", PEERS)
def test_every_peer_has_a_row_for_its_defaults_and_for_its_best_settings(name: str) -> None:
    for mode in ("defaults", "best"):
        row = KNOWN[f"{name}:{mode}"]
        assert (row["total"]["hangs"], row["total"]["healthy"]) == (20, 20)
        assert row["settings"]
        assert row["version"]


def test_tenure_is_measured_on_every_case_and_holds_its_bar() -> None:
    total = KNOWN["tenure"]["total"]
    assert total["hangs"] >= 60
    assert total["healthy"] >= 60
    assert total["found in time and named"] * 60 >= 55 * total["hangs"]
    assert total["killed"] == 0
