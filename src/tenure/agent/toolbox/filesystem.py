"""Files below one folder, and tools over them: read, write, list, search. No way out of the folder: not by `..`, an absolute path, a link or a race.

Every path is walked one name at a time from an open folder, and no link is ever followed, so there is no moment between a check and its use.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tenure.agent.tools import ToolContext, ToolResult, tool
from tenure.errors import AgentError, LimitError, PathEscapeError
from tenure.randomness import new_id

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A pipe or a device must not hold us up when it is opened.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Filesystem:
    """Gives agents regular files below `root`, up to `max_bytes` each, to read and write."""

    def __init__(self, root: Path | str, *, writable: bool = True, max_bytes: int = 1_048_576) -> None:
        self.root = Path(root)
        if not self.root.is_dir():
            raise AgentError(f"{self.root} is no folder", remedy="Give an existing folder as the root")
        if max_bytes < 1:
            raise LimitError("max_bytes", max_bytes, "1 or more")
        self.writable, self.max_bytes = writable, max_bytes

    def read(self, path: str) -> str:
        """Returns the text of a file; what is not UTF-8 is replaced."""
        with (
            self._folder_of(path) as (folder, name),
            os.fdopen(self._open_file(name, folder, path), "rb") as file,
        ):
            found = os.fstat(file.fileno())
            if found.st_size > self.max_bytes:
                raise LimitError(f"the size of {path!r}", found.st_size, f"at most {self.max_bytes:,} bytes")
            return file.read(self.max_bytes).decode(errors="replace")

    def write(self, path: str, text: str) -> int:
        """Replace a file as one step, with its folders made where they are missing; how many bytes it has now."""
        if not self.writable:
            raise AgentError("this file system may only be read")
        data = text.encode()
        if len(data) > self.max_bytes:
            raise LimitError("the size of the text", len(data), f"at most {self.max_bytes:,} bytes")
        with self._folder_of(path, make=True) as (folder, name):
            self._refuse_link(name, folder, path)
            draft = f".{new_id()[:12]}.draft"
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=folder)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                os.replace(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                os.unlink(draft, dir_fd=folder)
                raise
        return len(data)

    def list(self, path: str = ".") -> list[str]:
        """Returns the names in a folder, folders with a slash; links are left out."""
        names = []
        with self._folder(path) as folder, os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    names.append(entry.name + "/")
                elif entry.is_file(follow_symlinks=False):
                    names.append(entry.name)
        return sorted(names)

    def walk(self, path: str = ".") -> Iterator[str]:
        """Yields the paths of all files below a folder."""
        for name in self.list(path):
            below = name if path == "." else f"{path.rstrip('/')}/{name}"
            if name.endswith("/"):
                yield from self.walk(below.rstrip("/"))
            else:
                yield below

    @contextmanager
    def _folder_of(self, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        parts = _parts(path)
        if not parts:
            raise AgentError(f"{path!r} is a folder")
        with self._walk(parts[:-1], path, make) as folder:
            yield folder, parts[-1]

    @contextmanager
    def _folder(self, path: str) -> Iterator[int]:
        with self._walk(_parts(path), path, make=False) as folder:
            yield folder

    @contextmanager
    def _walk(self, parts: tuple[str, ...], path: str, make: bool) -> Iterator[int]:
        # The root itself may be a link: its owner chose it.
        folder = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in parts:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=folder)
                below = self._open(part, _FOLDER, folder, path)
                os.close(folder)
                folder = below
            yield folder
        finally:
            os.close(folder)

    def _open_file(self, name: str, folder: int, path: str) -> int:
        descriptor = self._open(name, _FILE, folder, path)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise AgentError(f"{path!r} is no regular file")
        return descriptor

    def _open(self, name: str, flags: int, folder: int, path: str) -> int:
        try:
            return os.open(name, flags, dir_fd=folder)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                self._refuse_link(name, folder, path)
            raise AgentError(f"{path!r}: {error.strerror}") from error

    def _refuse_link(self, name: str, folder: int, path: str) -> None:
        try:
            if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                raise PathEscapeError(path)
        except FileNotFoundError:
            return


def _parts(path: str) -> tuple[str, ...]:
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or "\0" in path:
        raise PathEscapeError(path)
    return pure.parts


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
