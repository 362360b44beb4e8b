from __future__ import annotations

import os
from pathlib import Path

import pytest

from tenure.agent import Prompt, Resources, Session, ToolCall, ToolExecutionContext, ToolExecutor
from tenure.agent.toolbox import Filesystem, list_files, read_file, search_files, write_file
from tenure.beat.heartbeat import Heartbeat
from tenure.errors import AgentError, LimitError, PathEscapeError


@pytest.fixture
def files(tmp_path: Path) -> Filesystem:
    root = tmp_path / "root"
    (root / "src").mkdir(parents=True)
    (root / "src" / "a.py").write_text("one\ntwo\nthree\n")
    (tmp_path / "secret").write_text("secret")
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "folder-link").symlink_to(tmp_path)
    return Filesystem(root, max_bytes=1_000)


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "src/../../secret", "link", "folder-link/secret"])
def test_nothing_outside_of_the_root_is_read_or_written(files: Filesystem, path: str) -> None:
    with pytest.raises(PathEscapeError):
        files.read(path)
    with pytest.raises(PathEscapeError):
        files.write(path, "changed")
    assert (files.root.parent / "secret").read_text() == "secret"


def test_a_link_that_replaces_a_folder_after_a_check_gains_nothing(
    files: Filesystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    really_open = os.open

    def swapping(path: str, flags: int, *args: int, dir_fd: int | None = None) -> int:
        if path == "src":  # the moment before it is opened
            (files.root / "src").rename(files.root / "moved")
            (files.root / "src").symlink_to(files.root.parent)
        return really_open(path, flags, *args, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", swapping)
    with pytest.raises(PathEscapeError):
        files.read("src/secret")


def test_a_file_is_written_as_one_step_with_its_folders(files: Filesystem) -> None:
    assert files.write("new/deep/file.txt", "ü") == 2
    assert files.read("new/deep/file.txt") == "ü"
    assert files.list("new/deep") == ["file.txt"], "no draft is left"


def test_links_are_not_listed_and_walks_stay_inside(files: Filesystem) -> None:
    assert files.list() == ["src/"]
    assert list(files.walk()) == ["src/a.py"]


def test_what_is_too_large_or_no_file_is_refused(files: Filesystem) -> None:
    (files.root / "big").write_bytes(b"x" * 1_001)
    os.mkfifo(files.root / "pipe")
    with pytest.raises(LimitError, match=r"'big' is 1001"):
        files.read("big")
    with pytest.raises(LimitError):
        files.write("x", "y" * 1_001)
    for path in ("pipe", "src", "gone", "src/a.py/x", "."):
        with pytest.raises(AgentError):
            files.read(path)


def test_one_that_may_only_be_read_is_not_written(files: Filesystem) -> None:
    with pytest.raises(AgentError, match="may only be read"):
        Filesystem(files.root, writable=False).write("a", "b")


def test_the_tools_work_through_the_executor_and_beat(files: Filesystem) -> None:
    heartbeat = Heartbeat()
    context = ToolExecutionContext(
        Prompt[str]("p", "x"), Session(), heartbeat=heartbeat, resources=Resources({Filesystem: files})
    )
    executor = ToolExecutor([read_file, write_file, list_files, search_files])

    def run(name: str, arguments: str) -> str:
        return executor.execute(ToolCall("c", name, arguments), context=context).text()

    assert run("read_file", '{"path":"src/a.py","first_line":2,"lines":1}') == "    2  two"
    assert run("list_files", "{}") == '["src/"]'
    assert run("write_file", '{"path":"b.txt","content":"three"}') == "wrote 5 bytes to b.txt"
    assert run("search_files", '{"pattern":"thr.e"}') == '["b.txt:1: three","src/a.py:3: three"]'
    assert run("search_files", '{"pattern":"("}').startswith("Error: '(' is no regular expression")
    assert run("read_file", '{"path":"../secret"}').startswith("Error: PathEscapeError: '../secret' is outside")
    assert heartbeat.count > 12
