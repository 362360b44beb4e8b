"""The source files of a program: which of them changed, and which workflows one of them defines, without running any."""

from __future__ import annotations

import ast
import os
from pathlib import Path
from typing import NamedTuple

SKIPPED = {"__pycache__", "node_modules", "site-packages", "venv", "build", "dist"}
MOST_FILES = 5_000


class Sources:
    """Watches the Python files below a folder by their times and sizes; hidden folders and environments are left out."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen = self._look()

    def changed(self) -> list[Path]:
        """Returns the files that were written, added or removed since the last call."""
        now = self._look()
        before, self._seen = self._seen, now
        return sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))

    def _look(self) -> dict[Path, tuple[int, int]]:
        found: dict[Path, tuple[int, int]] = {}
        folders = [self._folder]
        while folders and len(found) < MOST_FILES:
            try:
                entries = list(os.scandir(folders.pop()))
            except OSError:
                continue  # removed meanwhile, or not ours to read
            for entry in entries:
                if entry.name.startswith(".") or entry.name in SKIPPED:
                    continue
                try:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(Path(entry.path))
                    elif entry.name.endswith(".py"):
                        stat = entry.stat()
                        found[Path(entry.path)] = (stat.st_mtime_ns, stat.st_size)
                except OSError:
                    continue
        return found


class FoundWorkflow(NamedTuple):
    """A workflow as its source shows it."""

    name: str
    arguments: tuple[str, ...]

    @property
    def command(self) -> str:
        """How to try it from a shell."""
        return " ".join(["tenure run", self.name, *(f"{argument}=..." for argument in self.arguments)])


def workflows_in(path: Path) -> list[FoundWorkflow]:
    """The functions marked @workflow; empty where the file cannot be read as Python."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return []
    found = []
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            marks = [mark for mark in node.decorator_list if _last_name(mark) == "workflow"]
            if marks:
                found.append(FoundWorkflow(_given_name(marks[0]) or node.name, tuple(_required(node))))
    return found


def _last_name(mark: ast.expr) -> str:
    target = mark.func if isinstance(mark, ast.Call) else mark
    return target.attr if isinstance(target, ast.Attribute) else target.id if isinstance(target, ast.Name) else ""


def _given_name(mark: ast.expr) -> str:
    for word in mark.keywords if isinstance(mark, ast.Call) else ():
        if word.arg == "name" and isinstance(word.value, ast.Constant):
            return str(word.value.value)
    return ""


def _required(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    plain = node.args.args[1 : len(node.args.args) - len(node.args.defaults)]
    named = [one for one, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if default is None]
    return [one.arg for one in (*plain, *named)]
