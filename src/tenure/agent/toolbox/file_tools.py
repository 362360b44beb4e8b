"""Tools over a `Filesystem` resource: read, write, list, search."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tenure.agent.toolbox.filesystem import Filesystem
from tenure.agent.tools import ToolContext, ToolResult, tool
from tenure.errors import AgentError, LimitError


@dataclass(frozen=True, slots=True)
class ReadParams:
    path: str
    first_line: int = 1
    lines: int = 2_000


@dataclass(frozen=True, slots=True)
class WriteParams:
    path: str
    content: str


@dataclass(frozen=True, slots=True)
class ListParams:
    path: str = "."


@dataclass(frozen=True, slots=True)
class SearchParams:
    pattern: str
    path: str = "."
    most: int = 100


@tool
def read_file(params: ReadParams, *, context: ToolContext) -> ToolResult[str]:
    """Read a text file, or some lines of it; each line is given with its number."""
    context.beat()  # before potentially slow I/O
    lines = context.resources.get(Filesystem).read(params.path).splitlines()
    first = max(1, params.first_line)
    shown = lines[first - 1 : first - 1 + max(0, params.lines)]
    return ToolResult.ok("\n".join(f"{number:>5}  {line}" for number, line in enumerate(shown, first)))


@tool
def write_file(params: WriteParams, *, context: ToolContext) -> ToolResult[str]:
    """Create or replace a text file."""
    context.beat()
    size = context.resources.get(Filesystem).write(params.path, params.content)
    return ToolResult.ok(f"wrote {size} bytes to {params.path}")


@tool
def list_files(params: ListParams, *, context: ToolContext) -> ToolResult[list[str]]:
    """List the files and folders in a folder."""
    context.beat()
    return ToolResult.ok(context.resources.get(Filesystem).list(params.path))


@tool
def search_files(params: SearchParams, *, context: ToolContext) -> ToolResult[list[str]]:
    """Find lines that match a regular expression in all text files below a folder."""
    try:
        pattern = re.compile(params.pattern)
    except re.error as error:
        return ToolResult.error(f"{params.pattern!r} is no regular expression: {error}")
    files = context.resources.get(Filesystem)
    found: list[str] = []
    for path in files.walk(params.path):
        context.beat()
        try:
            text = files.read(path)
        except (AgentError, LimitError):
            continue  # too large, or gone since it was listed
        for number, line in enumerate(text.splitlines(), 1):
            if pattern.search(line):
                found.append(f"{path}:{number}: {line.strip()[:300]}")
                if len(found) >= params.most:
                    return ToolResult.ok(found, f"only the first {params.most}:")
    return ToolResult.ok(found)
