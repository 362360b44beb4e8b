"""What an attempt logs and prints: whole lines, bounded, and never less at the end than was shown before."""

from __future__ import annotations

import io
import logging
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tenure.clock import ManualClock
from tenure.engines import MemoryEngine
from tenure.nodes.manager.log_pages import log_page
from tenure.work import base_context as context
from tenure.work.attempt_logs import MAX_LINE_CHARS, AttemptLogHandler, LoggedStream
from tenure.work.log_lines import (
    COMPRESSED_FROM_BYTES,
    HEAD_BYTES,
    MOST_READ_BYTES,
    TAIL_BYTES,
    FileLines,
    LogLines,
    MemoryLines,
    fence_of,
    keep_log,
    key_of,
    publish_log,
    read_log,
    stored_log,
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


def test_a_long_log_keeps_its_beginning_and_its_end_and_says_how_much_was_dropped_between_them(desk: Desk) -> None:
    for number in range(2_000):
        desk.handler.printed("stdout", f"{number} " + "y" * 1_000 + "\n")
    kept = [text.split()[0] for _, text in desk.lines()]
    assert (kept[0], kept[-1]) == ("0", "1999")
    gap = next(place for place, (level, _) in enumerate(desk.lines()) if not level)
    assert kept[:gap] == [str(number) for number in range(gap)]
    assert kept[gap + 1 :] == [str(number) for number in range(2_000 - len(kept[gap + 1 :]), 2_000)]
    assert "bytes of the log were dropped here" in desk.lines()[gap][1]
    data = desk.lines_kept.read("3-1")
    assert HEAD_BYTES + TAIL_BYTES <= len(data) <= HEAD_BYTES + 2 * TAIL_BYTES + 5_000
    assert sum(path.stat().st_size for path in desk.path.parent.iterdir()) <= HEAD_BYTES + 2 * TAIL_BYTES + 5_000
    memory = MemoryLines()
    desk.handler.lines = memory
    desk.handler.begin(desk.handle)
    for number in range(2_000):
        desk.handler.printed("stdout", f"{number} " + "y" * 1_000 + "\n")
    assert memory.read("3-1") == data


def test_a_reader_that_follows_a_long_log_sees_every_line_that_is_still_there_once(desk: Desk) -> None:
    offset, seen = 0, []
    for number in range(600):
        desk.handler.printed("stdout", f"{number} " + "y" * 1_000 + "\n")
        if number % 10 == 9:
            lines, offset, more = log_page(desk.lines_kept.read("3-1"), offset, 262_144)
            assert not more
            seen += [int(line.text.split()[0]) for line in lines if line.level]
            assert offset == desk.lines_kept.size("3-1")
    assert seen == list(range(600))
    lines, offset, more = log_page(desk.lines_kept.read("3-1"), 0, 50_000)
    while more:
        page, offset, more = log_page(desk.lines_kept.read("3-1"), offset, 50_000)
        lines += page
    assert [line.text for line in lines] == [text for _, text in desk.lines()]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), BrokenPipeError()])
def test_a_full_disk_fails_neither_a_line_nor_a_print(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise error

        def flush(self) -> None:
            raise error

    def refuse(*_: Any) -> int:
        raise error

    monkeypatch.setattr("tenure.work.log_lines.os.write", refuse)
    print("lost", file=LoggedStream(Full(), "stdout", desk.handler), flush=True)
    logging.getLogger("app").warning("lost, too")
    assert desk.lines() == []


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
    lines.append("3-1", b"one\n", 0)
    lines.append("3-1", b"two\n", 4)
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


LINES = b"".join(b'{"at":%d.0,"level":"INFO","text":"frame %d of 5000 is done"}\n' % (n, n) for n in range(5_000))


def test_a_long_log_takes_a_fraction_of_its_size_in_the_store_and_comes_back_whole() -> None:
    assert len(stored_log(LINES)) < len(LINES) / 5
    assert read_log(stored_log(LINES)) == LINES


def test_a_short_log_is_stored_as_it_is_and_so_were_all_logs_of_earlier_releases() -> None:
    short = LINES[: COMPRESSED_FROM_BYTES - 1]
    assert stored_log(short) == short
    assert (read_log(LINES), read_log(b""), read_log(None)) == (LINES, b"", b"")


@pytest.mark.parametrize("cut", [1, 2, 100, 9_000, -1])
def test_of_a_damaged_log_the_lines_before_the_damage_are_shown_and_one_says_so(cut: int) -> None:
    stored = stored_log(LINES)
    for damaged in (stored[:cut], stored[:cut] + b"\xff\xff" + stored[cut + 2 :] if cut > 0 else stored[:-2]):
        lines = read_log(damaged).splitlines(keepends=True)
        assert "was damaged" in msgspec.json.decode(lines[-1])["text"]
        assert LINES.startswith(b"".join(lines[:-1])) or cut > 0  # within the damage, other text may come out


def test_a_log_that_unpacks_to_far_too_much_is_read_up_to_its_bound() -> None:
    assert len(read_log(zlib.compress(b"x" * 50_000_000))) < MOST_READ_BYTES + 1_000
