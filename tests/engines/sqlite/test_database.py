"""The file as it is opened: its tables, its refusals, and the engine's time over boots."""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing, suppress
from pathlib import Path

import pytest
from tests.engines.sqlite.conftest import Opener

from tenure.clock import ManualClock
from tenure.engines.sqlite import database
from tenure.errors import ReceiptHandleExpiredError, TermLostError


def make(path: Path) -> None:
    """What another process does when it opens the file first."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as other:
        database.prepare_file(other, path)
        other.execute("BEGIN IMMEDIATE")
        database.create_tables(other, path)
        other.execute("COMMIT")


@pytest.mark.parametrize("moment", range(1, 9))
def test_a_file_that_another_process_makes_while_we_look_at_it_is_not_another_programs(
    tmp_path: Path, moment: int
) -> None:
    """It was: version and tables were read one after the other, and the worker that did so never reported again."""
    path, begun = tmp_path / "tenure.db", 0

    def another(statement: str) -> None:
        nonlocal begun
        begun += 1
        if begun == moment:
            with suppress(sqlite3.OperationalError):  # it is locked for as long as we look: that is as good
                make(path)

    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as connection:
        connection.set_trace_callback(another)
        with suppress(sqlite3.OperationalError):  # locked by the other one: tried again by whoever opens
            database.prepare_file(connection, path)
        connection.set_trace_callback(None)
    make(path)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (database.SCHEMA_VERSION,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


DAY = 86_400


def test_a_stepped_wall_clock_changes_no_lease_and_no_time(opened: Opener, clock: ManualClock) -> None:
    engine = opened()
    mailbox = engine.mailbox("work")
    mailbox.send("x")
    (message,) = mailbox.receive(1, 30)
    before = engine.now()
    for step in (+DAY, -2 * DAY):
        clock.step_wall(step)
        assert engine.now() == before
        assert opened().now() == before  # nor does an engine that is opened after the step
        assert opened().mailbox("work").receive() == []
    message.extend_visibility(60)
    clock.advance(60)
    assert [again.id for again in mailbox.receive()] == [message.id]
    with pytest.raises(ReceiptHandleExpiredError):
        message.acknowledge()


def test_engines_that_open_at_different_times_agree_on_the_time(opened: Opener, clock: ManualClock) -> None:
    first = opened()
    clock.advance(1_000.25)
    clock.step_wall(77)
    assert opened().now() == first.now() == 1_700_001_000.25


def test_a_new_boot_frees_the_leases_and_terms_of_the_earlier_one(opened: Opener, clock: ManualClock) -> None:
    engine = opened()
    mailbox = engine.mailbox("work")
    mailbox.send("held")
    mailbox.send("late", delay=600)
    (held,) = mailbox.receive(1, 40_000)
    term = engine.election("chief").campaign("a", 40_000)
    assert term is not None
    engine.close()

    clock.advance(10)
    clock.reboot("boot-2")
    clock.advance(5)
    engine = opened()
    (again,) = engine.mailbox("work").receive(10, 60)
    assert (again.id, again.delivery_count, again.suspect) == (held.id, 2, True)
    assert engine.election("chief").current() is None
    with pytest.raises(TermLostError):
        engine.election("chief").renew(term)
    newer = engine.election("chief").campaign("b", 10)
    assert newer is not None
    assert newer.epoch > term.epoch
    # A delay is a moment, not a span of one boot: it goes on.
    clock.advance(584)
    assert engine.mailbox("work").depth() == (1, 1, 0)  # the lease of 60 s ran out, the delay has a second left
    clock.advance(1)
    assert engine.mailbox("work").depth() == (2, 0, 0)


def test_time_does_not_go_back_over_a_boot_with_a_wall_clock_that_did(opened: Opener, clock: ManualClock) -> None:
    engine = opened()
    clock.advance(500)
    engine.mailbox("work").send("x")
    before = engine.now()
    engine.close()
    clock.reboot("boot-2")
    clock.step_wall(-DAY)  # the battery of its clock is empty
    engine = opened()
    assert engine.now() >= before
    (message,) = engine.mailbox("work").receive()
    assert message.enqueued_at <= engine.now()


def test_a_new_boot_takes_the_wall_clock_when_that_is_later(opened: Opener, clock: ManualClock) -> None:
    opened().close()
    clock.advance(3_600)
    clock.reboot("boot-2")
    clock.advance(60)
    assert opened().now() == 1_700_003_660


def test_the_same_boot_keeps_its_leases_when_the_file_is_opened_again(opened: Opener, clock: ManualClock) -> None:
    engine = opened()
    engine.mailbox("work").send("x")
    engine.mailbox("work").receive(1, 30)
    engine.close()
    assert opened().mailbox("work").receive() == []
    clock.advance(30)
    assert len(opened().mailbox("work").receive()) == 1


def test_a_lease_of_fractions_ends_at_its_very_moment(opened: Opener, clock: ManualClock) -> None:
    mailbox = opened().mailbox("work")
    mailbox.send("x")
    (message,) = mailbox.receive(1, 0.3)
    for _ in range(2):
        clock.advance(0.1)
        message.extend_visibility(0)  # never shortens
    clock.advance(0.099_999)
    message.extend_visibility(0)
    clock.advance(0.000_001)
    with pytest.raises(ReceiptHandleExpiredError):
        message.extend_visibility(1)


def test_files_and_folders_are_for_this_user_only_whatever_the_umask_says(opened: Opener, path: Path) -> None:
    before = os.umask(0)
    try:
        engine = opened()
        engine.mailbox("work").send("secret")
        modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert modes == {
        "tenure.db": 0o600,
        "tenure.db-wal": 0o600,
        "tenure.db-shm": 0o600,
        "tenure.db-bells": 0o700,
    }
    assert stat.S_IMODE((path.parent / "tenure.db-bells" / "page").stat().st_mode) == 0o600


def test_a_file_that_is_there_keeps_its_mode_and_a_group_can_share_it(opened: Opener, path: Path) -> None:
    path.touch()
    path.chmod(0o660)
    opened().mailbox("work").send("shared")
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    assert stat.S_IMODE(Path(f"{path}-wal").stat().st_mode) == 0o660
