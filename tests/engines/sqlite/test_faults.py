"""What is wrong with a file is said as an error of our tree, with what to do."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest
from tests.engines.sqlite.conftest import Opener

from tenure.clock import ManualClock
from tenure.engines.sqlite import SqliteEngine
from tenure.engines.sqlite.connection import LOOK_EVERY_S, explain
from tenure.engines.sqlite.database import SCHEMA_VERSION
from tenure.errors import (
    ConfigurationError,
    EngineBusyError,
    EngineClosedError,
    EngineCorruptError,
    EngineReadOnlyError,
    EngineUnavailableError,
    EngineVersionError,
    EngineWentBackError,
)


def test_a_file_that_is_no_database_is_not_touched(opened: Opener, path: Path) -> None:
    path.write_text("Dear diary, " * 1_000)
    with pytest.raises(EngineCorruptError, match="is not an SQLite database") as caught:
        opened()
    assert "Check the path" in str(caught.value)
    assert path.read_text() == "Dear diary, " * 1_000
    assert not caught.value.retryable


def test_the_database_of_another_program_is_not_touched(opened: Opener, path: Path) -> None:
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE bookmarks (url)")
    other.commit()
    other.close()
    before = path.read_bytes()
    with pytest.raises(ConfigurationError, match="another program"):
        opened()
    assert path.read_bytes() == before


def test_a_newer_schema_is_refused_with_a_remedy_and_left_as_it_is(opened: Opener, path: Path) -> None:
    opened().close()
    newer = sqlite3.connect(path)
    newer.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    newer.close()
    before = path.read_bytes()
    with pytest.raises(EngineVersionError, match="newer Tenure") as caught:
        opened()
    assert "Upgrade Tenure" in caught.value.remedy
    assert path.read_bytes() == before


def test_a_damaged_page_is_told_when_it_is_read(opened: Opener, path: Path) -> None:
    engine = opened()
    for number in range(200):
        engine.mailbox("work").send("x" * 500 + str(number))
    engine.close()
    with contextlib.closing(sqlite3.connect(path)) as other:  # the header and the schema stay
        roots = other.execute(
            "SELECT rootpage FROM sqlite_master WHERE tbl_name = 'message' AND rootpage > 0"
        ).fetchall()
    image = bytearray(path.read_bytes())
    for (page,) in roots:
        image[(page - 1) * 4096 : (page - 1) * 4096 + 64] = b"\xff" * 64
    path.write_bytes(image)
    engine = opened()
    with pytest.raises(EngineCorruptError, match="damaged") as caught:
        engine.mailbox("work").receive(1_000)
    assert ".recover" in caught.value.remedy


def test_a_header_that_was_overwritten_is_told_at_once(opened: Opener, path: Path) -> None:
    opened().close()
    image = path.read_bytes()
    path.write_bytes(b"\0" * 100 + image[100:])
    with pytest.raises(EngineCorruptError):
        opened()


def test_a_folder_that_is_not_there_and_a_folder_in_place_of_the_file(
    tmp_path: Path, opened: Opener, path: Path
) -> None:
    path.mkdir()
    with pytest.raises(EngineUnavailableError, match="is a folder"):
        opened()
    shutil.rmtree(tmp_path)
    with pytest.raises(EngineUnavailableError, match="does not exist"):
        opened()
    tmp_path.mkdir()


def test_a_file_that_was_deleted_is_not_silently_replaced_by_an_empty_one(engine: SqliteEngine, path: Path) -> None:
    engine.database.reader.close()  # as after a fork: the next use opens it again
    path.unlink()
    with pytest.raises(EngineWentBackError, match="was deleted or moved away while it was in use"):
        engine.store("results").get("x")
    assert not path.exists()


@pytest.mark.parametrize("how", ["deleted", "moved away", "replaced"])
def test_a_file_that_is_gone_takes_nothing_more_and_says_what_to_do(
    opened: Opener, path: Path, clock: ManualClock, how: str
) -> None:
    """SQLite would go on writing to a file that has no name any more, while others begin a new one."""
    engine = opened()
    mailbox, election = engine.mailbox("work"), engine.election("chief")
    mailbox.send("before")
    term = election.campaign("old", 10.0)
    assert term is not None
    aside = path.with_suffix(".aside")
    if how == "deleted":
        path.unlink()
    else:
        path.rename(aside)
    if how == "replaced":
        shutil.copy(aside, path)
    clock.advance(LOOK_EVERY_S)
    for refused in (
        lambda: mailbox.send("plain"),
        lambda: mailbox.send("keyed", key="k"),
        lambda: mailbox.receive(),
        lambda: election.renew(term),
        lambda: engine.journal("j").append([b"x"], epoch=1, expect=0, append_id="a"),
        lambda: engine.store("s").get("k"),
    ):
        with pytest.raises(
            EngineWentBackError, match="replaced by another" if how == "replaced" else "deleted"
        ) as caught:
            refused()
        assert str(path) in str(caught.value)
        assert "put the file back" in caught.value.remedy
        assert not caught.value.retryable
    assert path.exists() == (how == "replaced")


def test_a_file_that_was_put_back_goes_on_with_what_it_had(opened: Opener, path: Path, clock: ManualClock) -> None:
    engine = opened()
    mailbox = engine.mailbox("work")
    mailbox.send("before")
    aside = path.with_suffix(".aside")
    path.rename(aside)
    clock.advance(LOOK_EVERY_S)
    with pytest.raises(EngineWentBackError):
        mailbox.send("refused")
    aside.rename(path)
    mailbox.send("after")
    assert [message.body for message in mailbox.receive(10)] == ["before", "after"]


def test_a_connection_that_is_opened_again_refuses_the_file_that_took_its_place(opened: Opener, path: Path) -> None:
    engine, aside = opened(), path.with_suffix(".aside")
    engine.database.reader.close()  # as after a fork: the next use opens it again
    path.rename(aside)
    shutil.copy(aside, path)
    with pytest.raises(EngineWentBackError, match="replaced by another file"):
        engine.store("results").get("x")


def test_a_file_that_somebody_holds_is_busy_after_the_time_given_and_can_be_retried(opened: Opener, path: Path) -> None:
    engine = opened("?busy_timeout=0.1")
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(EngineBusyError, match="locked by another process") as caught:
        engine.mailbox("work").send("x")
    assert caught.value.retryable
    assert "busy_timeout" in caught.value.remedy
    assert engine.mailbox("work").depth() == (0, 0, 0)  # readers are not held up
    holder.execute("COMMIT")
    holder.close()
    engine.mailbox("work").send("x")
    assert engine.mailbox("work").approximate_count() == 1


def test_an_error_inside_a_transaction_leaves_nothing_behind(engine: SqliteEngine) -> None:
    with pytest.raises(sqlite3.IntegrityError), engine.database.writer as tx:  # noqa: PT012
        tx.execute("INSERT INTO election VALUES ('chief', 1, 'a', 1)")
        tx.execute("INSERT INTO election VALUES ('chief', 1, 'a', 1)")
    assert engine.election("chief").current() is None
    engine.mailbox("work").send("x")


def test_a_closed_engine_says_so_everywhere(engine: SqliteEngine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send("x")
    (message,) = mailbox.receive()
    engine.close()
    for call in (
        message.acknowledge,
        lambda: engine.store("s"),
        lambda: engine.journal("j"),
        engine.database.data_version,
    ):
        with pytest.raises(EngineClosedError):
            call()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (sqlite3.SQLITE_BUSY, EngineBusyError),
        (sqlite3.SQLITE_BUSY_RECOVERY, EngineBusyError),
        (sqlite3.SQLITE_READONLY_DIRECTORY, EngineReadOnlyError),
        (sqlite3.SQLITE_CORRUPT_INDEX, EngineCorruptError),
        (sqlite3.SQLITE_IOERR_FSYNC, EngineUnavailableError),
        (sqlite3.SQLITE_NOMEM, EngineUnavailableError),
    ],
)
def test_each_code_of_sqlite_has_its_place_in_the_tree(path: Path, code: int, kind: type[Exception]) -> None:
    path.touch()
    error = sqlite3.OperationalError("it says")
    error.sqlite_errorcode, error.sqlite_errorname = code, "SQLITE_X"
    explained = explain(error, path)
    assert type(explained) is kind
    assert "it says (SQLITE_X)" in str(explained)
