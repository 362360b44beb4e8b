"""Long polls and how they are told: here between engines of one process, in tests/process between processes."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.engines.sqlite.conftest import Opener

from tenure.clock import ManualClock, SystemClock
from tenure.engines.sqlite import SqliteEngine, open_sqlite, wakeup_page
from tenure.engines.sqlite.wakeup_page import COLUMNS, ROWS, WakeupPage, row_of


class Waiting:
    """A call in another thread."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call, self._result = call, None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._result = self._call()

    def result(self) -> Any:
        self._thread.join(60)
        assert not self._thread.is_alive(), "still waiting"
        return self._result

    @property
    def still(self) -> bool:
        return self._thread.is_alive()


def until_waiting(engine: SqliteEngine) -> None:
    """Until a long poll of this engine, on the system's clock, has looked and waits."""
    pause = threading.Event()
    for _ in range(12_000):
        if engine.wakeups.listens:
            pause.wait(0.02)
            return
        pause.wait(0.005)
    raise AssertionError("nobody waits")


def bodies(waiting: Waiting) -> list[Any]:
    return [message.body for message in waiting.result()]


def test_a_send_in_one_engine_wakes_a_consumer_of_another(opened: Opener, clock: ManualClock) -> None:
    consumer = Waiting(lambda: opened().mailbox("work").receive(1, 60, 600))
    clock.until_waiting()
    opened().mailbox("work").send("x")
    assert bodies(consumer) == ["x"]


def test_many_waiters_and_one_message_leave_the_others_waiting(opened: Opener, clock: ManualClock) -> None:
    engine = opened()
    waiters = [Waiting(lambda: opened().mailbox("work").receive(1, 6_000, 600)) for _ in range(4)]
    waiters += [Waiting(lambda: engine.mailbox("work").receive(1, 6_000, 600)) for _ in range(4)]
    clock.until_waiting(8)
    sender = opened().mailbox("work")
    sender.send("x")
    for _ in range(200):
        if sum(not waiter.still for waiter in waiters) == 1:
            break
        threading.Event().wait(0.01)
    clock.until_waiting(7)
    assert sum(waiter.still for waiter in waiters) == 7
    clock.advance(600)
    assert sorted(len(waiter.result()) for waiter in waiters) == [0] * 7 + [1]


def test_a_follower_is_woken_by_an_append_of_another_engine(opened: Opener, clock: ManualClock) -> None:
    follower = Waiting(lambda: opened().journal("log").follow(0, 600))
    clock.until_waiting()
    opened().journal("log").append([b"e"], epoch=1, expect=0, append_id="a")
    (entry,) = follower.result()
    assert entry.events == (b"e",)


def test_topics_that_share_a_row_of_the_page_do_not_lose_each_others_bells(opened: Opener, clock: ManualClock) -> None:
    row = row_of("mailbox/a0")
    other = next(f"a{n}" for n in range(1, 10_000) if row_of(f"mailbox/a{n}") == row)
    engine, sender = opened(), opened()
    first = Waiting(lambda: engine.mailbox("a0").receive(1, 60, 600))
    second = Waiting(lambda: engine.mailbox(other).receive(1, 60, 600))
    clock.until_waiting(2)
    sender.mailbox("a0").send("for a0")
    assert bodies(first) == ["for a0"]
    sender.mailbox(other).send("for the other")
    assert bodies(second) == ["for the other"]


def test_a_burst_of_sends_rings_once_until_the_waiter_asks_again(path: Path, engine: SqliteEngine) -> None:
    page, other = WakeupPage(path), WakeupPage(path)
    listener = page.join()
    try:
        for _ in range(2):
            page.arm(7)
            for _ in range(50):
                other.ring(7)
                other.ring(8)  # nobody asked for that one
            assert listener.recv(1) == b"\x07"
            with pytest.raises(BlockingIOError):
                listener.recv(1)
    finally:
        page.close()
        other.close()
        engine.close()


def test_a_full_socket_loses_no_bell(path: Path, opened: Opener) -> None:
    engine = opened(live=True)
    page, other = WakeupPage(path), WakeupPage(path)
    listener = page.join()
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender, contextlib.suppress(BlockingIOError):
            sender.setblocking(False)
            while True:
                sender.sendto(b"\x00", str(path) + f"-bells/{page.column}")
        page.arm(5)
        other.ring(5)
        assert page.take_overflow()  # so its listener looks at everything
        assert not page.take_overflow()
        assert listener.recv(1) == b"\x00"
    finally:
        page.close()
        other.close()
        engine.close()


def test_what_a_crashed_waiter_left_is_removed_by_the_next_sender(path: Path, engine: SqliteEngine) -> None:
    crashed = WakeupPage(path)
    listener = crashed.join()
    crashed.arm(row_of("mailbox/work"))
    socket_path = Path(f"{path}-bells/{crashed.column}")
    crashed.forget()  # its process is gone, its socket file and its flag are not
    assert listener.fileno() == -1
    assert stat.S_ISSOCK(socket_path.stat().st_mode)
    engine.mailbox("work").send("x")
    assert not socket_path.exists()
    assert not any(Path(f"{path}-bells/page").read_bytes())


def test_a_column_whose_owner_died_is_given_to_the_next_one(path: Path, engine: SqliteEngine) -> None:
    dead, alive = WakeupPage(path), WakeupPage(path)
    dead.join()
    number = dead.column
    alive.join()
    assert alive.column != number
    dead.forget()
    heir = WakeupPage(path)
    heir.join()
    assert heir.column == number
    for page in (alive, heir):
        page.close()
    assert sorted(os.listdir(f"{path}-bells")) == ["page"]
    engine.close()


def test_who_joins_removes_what_all_the_dead_left(path: Path, engine: SqliteEngine) -> None:
    dead = [WakeupPage(path) for _ in range(3)]
    for page in dead:
        page.join()
    for page in dead:
        page.forget()  # killed while they did not wait: their flags are down, so no sender notices
    assert sorted(os.listdir(f"{path}-bells")) == ["0", "1", "2", "page"]
    heir = WakeupPage(path)
    heir.join()
    assert sorted(os.listdir(f"{path}-bells")) == ["0", "page"]
    heir.close()
    engine.close()


def test_more_processes_than_columns_are_told_to_poll(
    path: Path, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = opened(live=True)
    monkeypatch.setattr(wakeup_page, "COLUMNS", 2)
    pages = [WakeupPage(path) for _ in range(2)]
    for page in pages:
        page.join()
    last = WakeupPage(path)
    with pytest.raises(OSError, match="wait already"):
        last.join()
    consumer = Waiting(lambda: engine.mailbox("work").receive(1, 60, 20))
    until_waiting(engine)
    opened(live=True).mailbox("work").send("x")
    assert bodies(consumer) == ["x"]
    assert "poll" in engine.describe()["wake-up"]
    for page in (*pages, last):
        page.close()


def test_a_path_too_long_for_a_socket_works_too(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120) / ("e" * 120)
    deep.mkdir(parents=True)
    clock = SystemClock()
    with open_sqlite(f"sqlite:///{deep}/t.db", clock) as first, open_sqlite(f"sqlite:///{deep}/t.db", clock) as second:
        assert first.wakeups.notice == ""
        consumer = Waiting(lambda: first.mailbox("work").receive(1, 60, 20))
        until_waiting(first)
        second.mailbox("work").send("x")
        assert bodies(consumer) == ["x"]
        assert [name for name in os.listdir(f"{deep}/t.db-bells") if name != "page"] == ["0"]


def test_where_sockets_are_impossible_it_polls_and_says_so_once(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Path(f"{path}-bells").write_text("a file where the folder should be")
    with caplog.at_level(logging.WARNING, "tenure.engines.sqlite"):
        engine = open_sqlite(f"sqlite:///{path}", SystemClock())
        consumer = Waiting(lambda: engine.mailbox("work").receive(1, 60, 0.1))
        assert consumer.result() == []
    assert len([record for record in caplog.records if "poll every" in record.message]) == 1
    assert "poll every 50 ms" in engine.describe()["wake-up"]
    other = open_sqlite(f"sqlite:///{path}", SystemClock())
    try:
        for number in range(3):
            consumer = Waiting(lambda: engine.mailbox("work").receive(1, 60, 20))
            until_waiting(engine)
            other.mailbox("work").send(number)
            assert bodies(consumer) == [number]
    finally:
        engine.close()
        other.close()


def test_polling_obeys_a_manual_clock_too(path: Path, opened: Opener, clock: ManualClock) -> None:
    Path(f"{path}-bells").write_text("")
    engine = opened()
    consumer = Waiting(lambda: engine.mailbox("work").receive(1, 6_000, 600))
    clock.until_waiting()
    opened().mailbox("work").send("x")
    assert bodies(consumer) == ["x"]
    idle = Waiting(lambda: engine.mailbox("work").receive(1, 60, 600))
    clock.until_waiting()
    clock.advance(600)
    assert idle.result() == []


def test_a_bell_that_was_lost_costs_a_second_and_no_more(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, sender = opened(live=True), opened(live=True)
    consumer = Waiting(lambda: engine.mailbox("work").receive(1, 60, 20))
    until_waiting(engine)
    monkeypatch.setattr(WakeupPage, "ring", lambda page, row: None)  # killed between its commit and its ring
    sender.mailbox("work").send("x")
    assert bodies(consumer) == ["x"]


def test_closing_an_engine_ends_its_polls_and_removes_its_socket(
    path: Path, opened: Opener, clock: ManualClock
) -> None:
    engine = opened()
    consumer = Waiting(lambda: engine.mailbox("work").receive(1, 60, 600))
    follower = Waiting(lambda: engine.journal("log").follow(0, 600))
    clock.until_waiting(2)
    assert sorted(os.listdir(f"{path}-bells")) == ["0", "page"]
    engine.close()
    assert consumer.result() == []
    assert follower.result() == []
    assert os.listdir(f"{path}-bells") == ["page"]
    assert "tenure-sqlite-bells" not in [thread.name for thread in threading.enumerate()]


def test_a_poll_that_looks_while_its_engine_closes_ends_like_the_others(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    mailbox = engine.mailbox("work")
    look = type(mailbox).due_in

    def close_first(asked: Any) -> float:
        engine.close()
        return look(asked)

    monkeypatch.setattr(type(mailbox), "due_in", close_first)
    assert mailbox.receive(1, 60, 600) == []


def test_whoever_may_write_the_file_may_ring_its_bells(path: Path, opened: Opener) -> None:
    before = os.umask(0o077)
    try:
        opened().close()
        path.chmod(0o660)
        engine = opened()
        page = WakeupPage(path)
        page.join()
    finally:
        os.umask(before)
    folder = Path(f"{path}-bells")
    assert stat.S_IMODE((folder / str(page.column)).stat().st_mode) == 0o660
    page.close()
    engine.close()


def test_the_page_has_its_blocks_so_that_a_full_disk_cannot_kill_who_rings(path: Path, engine: SqliteEngine) -> None:
    assert engine.wakeups.notice == ""
    page = Path(f"{path}-bells/page").stat()
    assert page.st_size == (ROWS + 1) * COLUMNS
    assert page.st_blocks * 512 >= page.st_size


def test_a_link_in_place_of_the_bells_is_not_followed_and_the_mailbox_works_without_them(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "t.db-bells").symlink_to(elsewhere)
    with open_sqlite(f"sqlite:///{tmp_path}/t.db", SystemClock()) as engine:
        mailbox = engine.mailbox("work")
        mailbox.send("hello")
        [message] = mailbox.receive(1, 10, 1)
        assert message.body == "hello"
        assert mailbox.receive(1, 10, 0.01) == []
    assert list(elsewhere.iterdir()) == []
