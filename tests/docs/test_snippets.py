"""Every block of Python on the pages runs, and every command line of ours on them is one that the command line takes.

`page_blocks.py` says what counts as run, `stages.py` has what a page leaves to its reader.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import dis
import inspect
import re
from collections.abc import Iterator
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from types import CodeType
from typing import Any

import click
import pytest
from tests.docs.page_blocks import PAGES, ROOT, CodeBlock, blocks_of, command_lines, our_imports, python_blocks
from tests.docs.stages import STAGES

from tenure.cli.root import tenure
from tenure.testing import TestDatacenter

BLOCKS = python_blocks()
RUN = [page for page in PAGES if any(block.runs_here for block in blocks_of(page))]
PROMISED = re.compile(r"<!-- run: (\w+)\((.*)\) == (.*) -->")


def named(pages: list[Path]) -> list[str]:
    return [page.stem for page in pages]


@pytest.mark.parametrize("page", RUN, ids=named(RUN))
def test_the_code_of_a_page_runs_from_its_first_block_to_its_last(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tenure_dc: TestDatacenter
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": page.stem}
    stage = STAGES.get(page.stem)
    with stage(monkeypatch, tenure_dc, names) if stage else nullcontext():
        for block in blocks_of(page):
            if block.runs_here:
                run(block, names)
    for name, given, expected in PROMISED.findall(page.read_text()):
        assert tenure_dc.submit(names[name], arguments(given)).wait() == ast.literal_eval(expected)
    for name in [name for name in names if name.startswith("test_")]:
        names[name](*([tenure_dc] if inspect.signature(names[name]).parameters else []))


def run(block: CodeBlock, names: dict[str, Any]) -> None:
    """Runs a block; one that awaits at its top runs in an event loop. Each name that its functions would look up later is there, too."""
    code = compile(block.tree(), block.where, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(eval(code, names))
    else:
        exec(code, names)
    missing = [name for name in looked_up(code) if name not in names and not hasattr(builtins, name)]
    assert missing == [], f"{block.where}: the page leaves these names to its reader, and its stage does not have them"


def looked_up(code: CodeType) -> Iterator[str]:
    """Yields the names that functions in this code take from their module. The code of the block itself has run, so it found its own."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from (step.argval for step in dis.get_instructions(inner) if step.opname == "LOAD_GLOBAL")
            yield from looked_up(inner)


def arguments(given: str) -> dict[str, Any]:
    call = ast.parse(f"f({given})", mode="eval").body
    assert isinstance(call, ast.Call)
    return {one.arg: ast.literal_eval(one.value) for one in call.keywords if one.arg}


@pytest.mark.parametrize("block", BLOCKS, ids=[block.where for block in BLOCKS])
def test_every_block_can_be_read_and_takes_from_tenure_what_is_there(block: CodeBlock) -> None:
    for module, name in our_imports(block.tree()):
        if module.startswith("tenure.contrib"):  # it imports its framework, which is not in this environment
            assert name in defined_in(module), f"{block.where}: {module} has no {name}"
        else:
            assert not name or hasattr(import_module(module), name), f"{block.where}: {module} has no {name}"


def defined_in(module: str) -> set[str]:
    path = ROOT / "src" / Path(*module.split("."))
    text = (path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py").read_text()
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {node.name for node in ast.parse(text).body if isinstance(node, kinds)}


@pytest.mark.parametrize(
    "block", [block for block in BLOCKS if block.mark and not block.runs_here], ids=lambda one: one.where
)
def test_a_block_that_does_not_run_here_says_which_test_runs_it_or_why_none_can(block: CodeBlock) -> None:
    assert block.run_by or block.left_out, f"{block.where}: {block.mark!r} is no mark"
    if block.run_by:
        assert block.page.name in (ROOT / block.run_by).read_text(), f"{block.run_by} does not read {block.page.name}"


@pytest.mark.parametrize("page", PAGES, ids=named(PAGES))
def test_every_command_line_on_a_page_is_one_that_ours_takes(page: Path) -> None:
    for line in command_lines(page):
        if line.words[0] == "python":
            file, _, scenario = line.words[4].partition(":")
            assert not scenario or not file.startswith("tests/") or f"class {scenario}(" in (ROOT / file).read_text()
            continue
        check_command(line.words, whole=line.whole, where=f"{page.name}: {' '.join(line.words)}")


def check_command(words: list[str], *, whole: bool, where: str) -> None:
    command: click.Command = tenure
    context = click.Context(command)
    rest = words[1:]
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        found = command.get_command(context, rest[0])
        if found is None:
            break
        command, rest = found, rest[1:]
    assert command is not tenure, f"{where}: there is no such command"
    known = {name for one in command.get_params(context) for name in (*one.opts, *one.secondary_opts)}
    unknown = [word for word in rest if word.startswith("-") and word.split("=")[0] not in known]
    assert unknown == [], f"{where}: it has no {unknown}"
    if whole:  # options have their values, and no argument is too many
        command.make_parser(click.Context(command, resilient_parsing=True)).parse_args(list(rest))
