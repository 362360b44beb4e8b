"""CONTRIBUTING's map of the tree is true: every folder is on it, and every path that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "tenure"
TEXT = (ROOT / "CONTRIBUTING.md").read_text()


def test_every_folder_of_the_source_is_on_the_map() -> None:
    folders = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    on_the_map = set(re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE))
    assert on_the_map == folders


def test_every_path_that_is_named_exists() -> None:
    named = set(re.findall(r"`([\w./*-]+(?:/[\w.*-]*|\.py|\.md))`", TEXT))
    missing = [
        name
        for name in named
        if not list(ROOT.glob(name)) and not list(SOURCE.glob(name)) and not list(SOURCE.glob(f"*/{name}"))
    ]
    assert len(named) > 15
    assert missing == []
