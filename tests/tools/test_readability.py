"""The figures of how the source reads: what is counted. The checks of `make test` hold the source to the ceilings."""

from __future__ import annotations

from pathlib import Path

from tools.readability import counted


def test_a_class_name_that_two_files_use_counts_once_and_a_private_one_does_not(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.py").write_text("class Outcome: ...\nclass _Own: ...\n")
    (tmp_path / "d.py").write_text("class Alone: ...\n")
    assert counted(tmp_path)["repeated class names"] == ["Outcome: a.py:1, b.py:1, c.py:1"]


def test_long_files_long_functions_and_hidden_subjects_are_named_with_their_place(tmp_path: Path) -> None:
    (tmp_path / "long.py").write_text("\n" * 401)
    (tmp_path / "wide.py").write_text("def wide():\n" + "    ...\n" * 41)
    (tmp_path / "mood.py").write_text('"""What is due."""\n')
    found = counted(tmp_path)
    assert found["files over 400 lines"] == ["long.py: 401"]
    assert found["functions over 40 lines"] == ["wide.py:1: wide, 41 lines"]
    assert found["docstrings that hide their subject"] == ["mood.py:1: What is due."]
