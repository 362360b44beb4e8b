"""Which files `tenure dev` begins anew for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenure.local.dev import Sources, module_files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text("import helper\nfrom parts import encode\ndef f():\n    import late\n")
    (tmp_path / "helper.py").write_text("")
    (tmp_path / "late.py").write_text("")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "__init__.py").write_text("from . import deep\n")
    (tmp_path / "parts" / "encode.py").write_text("from .. import nothing\n")
    (tmp_path / "parts" / "deep.py").write_text("")
    return tmp_path


def test_a_file_that_nothing_imports_does_not_matter(folder: Path) -> None:
    sources = Sources(folder, [folder / "app.py"])
    (folder / "notes.py").write_text("x = 1")
    (folder / "parts" / "other.py").write_text("x = 1")
    assert sources.changed() == []


@pytest.mark.parametrize(
    "name", ["app.py", "helper.py", "late.py", "parts/__init__.py", "parts/encode.py", "parts/deep.py"]
)
def test_what_is_imported_matters_also_from_a_function_and_from_a_package(folder: Path, name: str) -> None:
    sources = Sources(folder, [folder / "app.py"])
    (folder / name).write_text((folder / name).read_text() + "\nchanged = 1\n")
    assert sources.changed() == [folder / name]
    assert sources.changed() == []


def test_a_file_that_comes_to_be_imported_matters_and_a_broken_one_is_still_watched(folder: Path) -> None:
    sources = Sources(folder, [folder / "app.py"])
    (folder / "app.py").write_text("import fresh\n")
    assert folder / "app.py" in sources.changed()
    (folder / "fresh.py").write_text("x = 1\n")
    assert sources.changed() == [folder / "fresh.py"]
    (folder / "fresh.py").write_text("x = (\n")
    assert sources.changed() == [folder / "fresh.py"]
    (folder / "fresh.py").write_text("x = (1)\n")
    assert sources.changed() == [folder / "fresh.py"]


def test_the_files_of_a_dotted_name_are_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert folder / "parts" / "encode.py" in module_files(["parts.encode"])
