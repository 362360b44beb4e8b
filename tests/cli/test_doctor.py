from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tenure.cli.doctor import deployment
from tenure.cli.root import tenure
from tenure.engines import MemoryEngine
from tenure.engines.contracts import Finding, Level, Refusal


def doctor(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(tenure, ["doctor", *arguments])
    return result.exit_code, result.output


def test_a_healthy_engine_gets_a_table_and_code_0() -> None:
    code, output = doctor("--engine", "memory://")
    assert code == 0
    assert "it opens, and answers" in output
    assert "0 errors" in output


def test_errors_make_code_1_and_show_their_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [Finding(Level.ERROR, "the disk is full", "make room"), Finding(Level.WARNING, "old", "upgrade")]
    monkeypatch.setattr(MemoryEngine, "check", lambda self: found)
    monkeypatch.setattr(MemoryEngine, "refusals", (Refusal("eternal life", "memory ends with its process"),))
    code, output = doctor("--engine", "memory://")
    assert code == 1
    for text in ("the disk is full", "make room", "upgrade", " 1 errors, ", "not promised: eternal life"):
        assert text in output


def test_warnings_alone_make_code_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryEngine, "check", lambda self: [Finding(Level.WARNING, "old", "upgrade")])
    assert doctor("--engine", "memory://")[0] == 0


def test_an_engine_that_cannot_be_opened_is_an_error_with_a_remedy_and_no_password() -> None:
    code, output = doctor("--engine", "nowhere://u:s3cret@h")
    assert code == 1
    assert "no engine for nowhere://" in output
    assert "Use memory://" in output
    assert "s3cret" not in output


def test_machine_clock_and_ladder_are_looked_at_without_an_engine_too() -> None:
    code, output = doctor()
    for text in (
        "this machine",
        "Python 3.",
        "shared memory for beats",
        "a silent workflow is stopped after (stall): 300 s",
    ):
        assert text in output
    assert code == 0
    assert "this machine's clock is" in doctor("--engine", "memory://")[1]


def test_a_ladder_that_does_not_stand_is_an_error_that_names_the_rung() -> None:
    code, output = doctor("--stall", "3000", "--timeout", "3600")
    assert code == 1
    assert "a job may take (timeout): 3600 s, and that is not longer than" in output
    code, output = doctor("--lease", "0.5")
    assert code == 1
    assert "9 x tick < visibility_timeout is broken" in output
    assert doctor("--grace", "90")[0] == 0  # the lease is held through the grace


def test_it_speaks_json() -> None:
    result = CliRunner().invoke(tenure, ["doctor", "--json", "--engine", "memory://"])
    found = json.loads(result.stdout)
    assert (found["errors"], set(found["parts"])) == (0, {"this machine", "memory://", "the ladder of timeouts"})


def test_it_is_listed_in_the_help() -> None:
    assert "doctor" in CliRunner().invoke(tenure, ["--help"]).output


def test_a_container_with_too_little_memory_for_its_slots_is_an_error(tmp_path: Path) -> None:
    limit = tmp_path / "memory.max"
    limit.write_text(f"{256 << 20}\n")
    assert deployment("", 2, limit)[1].level is Level.OK
    small = deployment("", 4, limit)[1]
    assert small.level is Level.ERROR
    assert "256 MB" in small.what
    assert "320 MB" in small.remedy
    limit.write_text("max\n")
    assert deployment("", 400, limit)[1] == Finding(Level.OK, "no limit of memory for this container")


def test_a_file_of_tokens_that_everybody_may_read_is_a_warning_with_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text("")
    tokens.chmod(0o644)
    monkeypatch.setenv("TENURE_TOKENS", str(tokens))
    assert Finding(Level.WARNING, f"{tokens} has the mode 0644", f"chmod 640 {tokens}") in deployment("", 1)
    tokens.chmod(0o640)
    assert Finding(Level.OK, f"{tokens} has the mode 0640") in deployment("", 1)
    tokens.unlink()
    assert any(one.level is Level.ERROR and str(tokens) in one.what for one in deployment("", 1))


def test_the_surroundings_of_a_deployment_are_shown_on_request_only(tmp_path: Path) -> None:
    assert "this deployment" not in doctor("--engine", "memory://")[1]
    code, output = doctor("--deploy", "--engine", f"sqlite:///{tmp_path}/x.db", "--json")
    found = json.loads(output)["parts"]["this deployment"]
    assert code in (0, 1)
    assert "SQLite serves one machine" in [one["what"] for one in found]
