"""What an attempt logs and prints: whole lines, bounded, and never less at the end than was shown before."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tenure.clock import ManualClock
from tenure.engines import MemoryEngine
from tenure.work import base_context as context
from tenure.work.attempt_logs import (
    MAX_LINE_CHARS,
    MAX_LOG_BYTES,
    AttemptLogHandler,
    FileLines,
    LoggedStream,
    LogLines,
    MemoryLines,
    fence_of,
    keep_log,
    key_of,
    publish_log,
)


class Desk:
    """An attempt in record 3 that runs here, and what it wrote."""

    def __init__(self, folder: Path) -> None:
        self.lines_kept = FileLines(folder)
        self.news = 0
        self.handler, self.path = AttemptLogHandler(self.lines_kept, ManualClock()), self.lines_kept.path("3-1")
        self.handle = self.attempt()
        self.handler.begin(self.handle)

    def attempt(self) -> Any:
        occupant = SimpleNamespace(job="j", workflow="w", attempt=1)
        return SimpleNamespace(
            record=SimpleNamespace(index=3),
            occupant=occupant,
            trace="",
            show_output=self.show_output,
            log_place="3-1",
        )

    def show_output(self) -> None:
        self.news += 1

    def lines(self) -> list[tuple[str, str]]:
        found = self.lines_kept.read(self.handle.log_place).splitlines()
        return [(line["level"], line["text"]) for line in map(msgspec.json.decode, found)]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    running: Any = SimpleNamespace(_handle=desk.handle)
    token = context._current.set(running)
    yield desk
    context._current.reset(token)


def test_a_line_is_news_and_the_same_line_again_is_not(desk: Desk) -> None:
    desk.handler.printed("stdout", "retrying\nretrying\nretrying\nfound it\n")
    assert desk.news == 2


def test_what_is_printed_is_kept_line_by_line_and_goes_where_it_went(desk: Desk) -> None:
    terminal = io.StringIO()
    out = LoggedStream(terminal, "stdout", desk.handler)
    print("one", file=out)
    print("two", end="", file=out)
    assert desk.lines() == [("stdout", "one")]
    print(" and a half\nthree", file=out)
    out.write("unfinished")
    assert desk.lines() == [("stdout", "one"), ("stdout", "two and a half"), ("stdout", "three")]
    desk.handler.end(desk.handle)
    assert desk.lines()[-1] == ("stdout", "unfinished")
    assert terminal.getvalue() == "one\ntwo and a half\nthree\nunfinished"
    assert out.writable()


def test_what_logging_prints_is_not_heard_twice(desk: Desk) -> None:
    out: Any = LoggedStream(io.StringIO(), "stderr", desk.handler)
    logger = logging.Logger("user")
    logger.addHandler(desk.handler)
    logger.addHandler(logging.StreamHandler(out))
    logger.warning("careful")
    assert desk.lines() == [("warning", "careful")]


def test_outside_of_an_attempt_nothing_is_kept(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    print("nobody's", file=LoggedStream(io.StringIO(), "stdout", desk.handler))
    assert desk.lines() == []


def test_a_line_that_never_ends_and_text_that_is_no_text_are_kept_within_bounds(desk: Desk) -> None:
    out = LoggedStream(io.StringIO(), "stdout", desk.handler)
    out.write("x" * (3 * MAX_LINE_CHARS))
    out.write("\ud800 lone\n")
    assert len(desk.lines()[0][1]) == MAX_LINE_CHARS
    assert desk.lines()[-1] == ("stdout", "? lone")
    for _ in range(200):
        out.write("y" * 4_000 + "\n")
    assert desk.path.stat().st_size < MAX_LOG_BYTES + 20_000
    assert "the log is cut here" in desk.lines()[-1][1]


def test_the_next_attempt_begins_with_an_empty_log(desk: Desk) -> None:
    desk.handler.printed("stdout", "old\nhalf")
    desk.handle.log_place = "3-2"
    desk.handler.begin(desk.handle)
    desk.handler.printed("stdout", " new\n")
    assert desk.lines() == [("stdout", " new")]


def test_a_thread_that_outlives_its_attempt_writes_nothing_into_the_next_one(desk: Desk) -> None:
    desk.handler.end(desk.handle)
    desk.handler.begin(desk.attempt())
    desk.handler.printed("stdout", "late\n")
    assert desk.lines() == []


@pytest.mark.parametrize("kind", ["files", "memory"])
def test_files_and_memory_keep_the_same_lines(tmp_path: Path, kind: str) -> None:
    lines: LogLines = FileLines(tmp_path) if kind == "files" else MemoryLines()
    store, occupant = MemoryEngine().store("logs"), occupant_of(delivery=2)
    keep_log(store, lines, "3-1", key_of(occupant), fence_of(occupant))
    assert (lines.read("3-1"), store.get("j/w/1")) == (b"", None)
    lines.append("3-1", b"one\n")
    lines.append("3-1", b"two\n")
    assert lines.read("3-2") == b""  # another attempt in the same record
    keep_log(store, lines, "3-1", key_of(occupant), fence_of(occupant))
    assert (lines.read("3-1"), store.get("j/w/1")) == (b"", b"one\ntwo\n")


def occupant_of(delivery: int) -> Any:
    ticket = SimpleNamespace(generation=1, delivery_count=delivery)
    return SimpleNamespace(job="j", workflow="w", workflow_id="", attempt=1, ticket=ticket)


def test_what_is_shown_of_a_running_attempt_never_replaces_what_was_kept_at_its_end(tmp_path: Path) -> None:
    store, lines, key = MemoryEngine().store("logs"), FileLines(tmp_path), "j/w/1"
    path, occupant = lines.path("3-1"), occupant_of(delivery=2)
    path.write_bytes(b"one\ntwo\nhal")
    shown = publish_log(store, lines, "3-1", occupant, 0)
    assert (shown, store.get(key)) == (8, b"one\ntwo\n")
    assert publish_log(store, lines, "3-1", occupant, shown) == shown
    path.write_bytes(b"one\ntwo\nhalf\nlast\n")
    late = path.read_bytes()[:13]
    keep_log(store, lines, "3-1", key, fence_of(occupant))
    path.write_bytes(late)  # what a thread that was held up had read before
    assert publish_log(store, lines, "3-1", occupant, shown) == shown
    assert store.get(key) == b"one\ntwo\nhalf\nlast\n"
    # The next delivery of the same attempt shows its own.
    path.write_bytes(b"anew\n")
    assert publish_log(store, lines, "3-1", occupant_of(delivery=3), 0) == 5
    assert store.get(key) == b"anew\n"


def test_nothing_to_show_is_no_error(tmp_path: Path) -> None:
    assert publish_log(MemoryEngine().store("logs"), FileLines(tmp_path), "9-1", occupant_of(delivery=1), 0) == 0


def test_an_attempt_that_logs_nothing_touches_no_file(desk: Desk, tmp_path: Path) -> None:
    assert not desk.handler.end(desk.handle)
    assert list(tmp_path.iterdir()) == []
