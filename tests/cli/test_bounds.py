"""The command line says what is out of bounds before it asks anybody: no node is needed for it."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from tenure.cli.root import tenure

NOBODY = ["--address", "127.0.0.1:1", "--patience", "0"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["submit", "echo", "value=1", "--queue", "my queue"],
            "submission.queue is 'my queue', and must be 1 to 115 letters",
        ),
        (["submit", "echo", "--id", "a\u202eb"], r"submission.job_id is 'a\u202eb'"),
        (["queue", "default", "--rate", "5e-324"], "rate is 5e-324, and must be between 1e-09 and 1,000,000"),
        (["queue", "my queue", "--pause"], "queue is 'my queue'"),
        (["schedule", "add", "nightly", "echo", "--every", "60", "--queue", "ä"], "schedule.job.queue is 'ä'"),
        (["schedule", "add", "night ly", "echo", "--every", "60"], "schedule.name is 'night ly'"),
        (["cancel", "x" * 201], "job_id is "),
    ],
)
def test_what_is_out_of_bounds_is_said_at_once(words: list[str], said: str) -> None:
    found = CliRunner().invoke(tenure, [*words, *NOBODY])
    assert found.exit_code == 1, found.output
    assert said in found.output
    assert "docs/limits.md" in found.output
