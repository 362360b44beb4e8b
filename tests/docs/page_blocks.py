"""Finds the code on the pages of the documentation, and says how each block of it is proved.

A comment directly above a block, which readers of the site do not see, says where it is run when not here:

    <!-- run by tests/process/test_readme.py -->      that test takes the block from the page
    <!-- not run: it needs a cluster -->              it is compiled, and its names are resolved

A block whose title begins with `before:` is a peer's code: it is compiled. Every other Python block runs in `test_snippets.py`, all blocks of a
page in one namespace, in their order.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), *DOCS.glob("moving/*.md"), *DOCS.glob("engines/*.md"), ROOT / "README.md"])
_BLOCK = re.compile(r"(?:<!-- ([^\n]*) -->\n)?^```(\w*)(?: title=\"([^\"]*)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^(?:\$ )?((?:tenure|python -m tenure\.sim) .*)$", re.MULTILINE)
_INDENTED = re.compile(r"^ {4}((?:tenure|python -m tenure\.sim) .*)$", re.MULTILINE)
_INLINE = re.compile(r"`(tenure [a-z][^`]*)`")


@dataclass(frozen=True)
class CodeBlock:
    """One fenced block: its page, the line of its first code, the mark above it, its language, title and code."""

    page: Path
    line: int
    mark: str
    language: str
    title: str
    code: str

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def run_by(self) -> str:
        """The test file that runs this block, or nothing."""
        found = re.match(r"run by (\S+?\.py)(?:: .+)?$", self.mark)
        return found[1] if found else ""

    @property
    def left_out(self) -> str:
        """The reason why nothing runs this block, or nothing."""
        found = re.match(r"not run: (.+)$", self.mark)
        return found[1] if found else ""

    @property
    def of_a_peer(self) -> bool:
        return "before: " in self.title

    @property
    def runs_here(self) -> bool:
        return self.language == "python" and not (self.run_by or self.left_out or self.of_a_peer)

    def tree(self) -> ast.Module:
        return ast.parse(self.code, self.where)


def blocks_of(page: Path) -> list[CodeBlock]:
    text = page.read_text()
    return [
        CodeBlock(page, text[: found.start(4)].count("\n") + 1, found[1] or "", found[2], found[3] or "", found[4])
        for found in _BLOCK.finditer(text)
    ]


def python_blocks() -> list[CodeBlock]:
    return [block for page in PAGES for block in blocks_of(page) if block.language == "python"]


def block_titled(page: str, title: str) -> str:
    """Returns the code of the block that has this title on this page."""
    (found,) = [block.code for block in blocks_of(ROOT / page) if block.title == title]
    return found


def our_imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yields each module of Tenure that the code imports, with each name that it takes from it ("" for the module alone)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((one.name, "") for one in node.names if one.name.split(".")[0] == "tenure")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "tenure":
            yield from ((node.module or "", one.name) for one in node.names)


@dataclass(frozen=True)
class CommandLine:
    """One call of ours on a page, split as a shell splits it. One in the text (`whole` is False) may leave arguments out."""

    words: list[str]
    whole: bool


def command_lines(page: Path) -> list[CommandLine]:
    text = page.read_text()
    code = "\n".join(block.code for block in blocks_of(page) if block.language in ("", "sh", "console"))
    rest = _BLOCK.sub("", text)
    lines = [*_COMMAND.findall(code), *_INDENTED.findall(rest)]
    whole = [CommandLine(words, True) for line in lines for words in _calls(line)]
    return whole + [CommandLine(words, False) for line in _INLINE.findall(rest) for words in _calls(line)]


def _calls(line: str) -> Iterator[list[str]]:
    for call in line.partition(" # ")[0].replace("…", "...").split("; "):
        words = shlex.split(call)
        for end in ("&", ">", ">>", "|", "&&"):
            words = words[: words.index(end)] if end in words else words
        if words:
            yield words
