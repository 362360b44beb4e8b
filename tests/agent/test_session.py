from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tenure.agent import ModelSaid, Session, ToolCall, Usage, open_session
from tenure.agent.events import Corrected, SectionsExpanded, StateSet, Stopped, ToolAnswered, UserSaid
from tenure.errors import SerializationError, SessionError

CALL = ToolCall("c1", "read", '{"path":"a"}')
EVERY_EVENT = [
    UserSaid("p", "do it"),
    ModelSaid("I read", (CALL,), Usage(3, 2, 1)),
    ToolAnswered(CALL, "text ü", success=False),
    Corrected("again"),
    SectionsExpanded(("a", "b"), "why"),
    StateSet("k", {"n": [1, None]}),
    Stopped("budget", "tokens"),
]


def filled(session: Session) -> Session:
    for event in EVERY_EVENT:
        session.append(event)
    return session


def test_a_session_restored_from_its_bytes_equals_it() -> None:
    session = filled(Session("s1"))
    again = Session()
    again.restore(session.encode())
    assert (again.session_id, list(again.events), again.state) == ("s1", EVERY_EVENT, {"k": {"n": [1, None]}})
    assert again.resumed
    assert again.expanded == {"a", "b"}


def test_a_new_session_is_for_this_user_only_and_a_file_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        open_session(tmp_path / "own" / "s.jsonl")
        (tmp_path / "shared.jsonl").touch(0o660)
        open_session(tmp_path / "shared.jsonl")
    finally:
        os.umask(before)
    paths = ("own", "own/s.jsonl", "shared.jsonl")
    assert [stat.S_IMODE((tmp_path / one).stat().st_mode) for one in paths] == [0o700, 0o600, 0o660]


def test_a_session_with_events_of_its_own_is_not_overwritten() -> None:
    with pytest.raises(SessionError, match="cannot be restored"):
        filled(Session()).restore(Session().encode())


def test_bytes_that_are_no_session_are_refused_with_the_line() -> None:
    with pytest.raises(SessionError, match="not a session"):
        Session().restore(b"[]\n")
    with pytest.raises(SessionError, match="line 2 of session s1"):
        Session().restore(Session("s1").encode() + b'{"event":"nonsense"}\n')


def test_rollback_takes_events_and_state_back() -> None:
    session = Session()
    session.set("k", 1)
    before = session.snapshot()
    session.set("k", 2)
    session.set("other", 3)
    session.rollback(before)
    assert (session.state, len(session.events)) == ({"k": 1}, 1)


def test_a_snapshot_of_another_session_is_refused() -> None:
    with pytest.raises(SessionError):
        Session().rollback(filled(Session()).snapshot())


def test_state_that_json_cannot_say_is_refused_where_it_is_set() -> None:
    with pytest.raises(SerializationError, match="'k' of type object"):
        Session().set("k", object())


def test_committed_events_are_on_disk_and_others_are_not(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "s.jsonl"
    session = open_session(path, "s1")
    session.set("k", 1)
    session.commit()
    session.set("k", 2)
    again = open_session(path)
    assert (again.session_id, again.state, again.resumed) == ("s1", {"k": 1}, True)


def test_a_new_file_is_no_resumption(tmp_path: Path) -> None:
    assert not open_session(tmp_path / "s.jsonl").resumed


def test_what_was_rolled_back_after_a_commit_stays_away_after_a_restart(tmp_path: Path) -> None:
    session = open_session(tmp_path / "s.jsonl")
    before = session.snapshot()
    session.set("k", 1)
    session.commit()
    session.rollback(before)
    session.set("k", 2)
    session.commit()
    again = open_session(tmp_path / "s.jsonl")
    assert list(again.events) == [StateSet("k", 2)]


def test_a_line_that_a_crash_tore_is_cut_off_and_the_file_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    session = open_session(path)
    session.set("k", 1)
    session.commit()
    with path.open("ab") as file:
        file.write(b'{"event":"state_set","key":"torn')
    again = open_session(path)
    again.set("l", 2)
    again.commit()
    assert open_session(path).state == {"k": 1, "l": 2}


def test_a_file_of_another_session_is_refused(tmp_path: Path) -> None:
    open_session(tmp_path / "s.jsonl", "s1")
    with pytest.raises(SessionError, match="holds session s1, not s2"):
        open_session(tmp_path / "s.jsonl", "s2")


def test_what_a_fork_does_counts_once_it_is_adopted() -> None:
    session = Session()
    session.set("k", 1)
    fork = session.fork()
    fork.set("k", 2)
    assert session.state == {"k": 1}
    session.adopt(fork)
    assert session.state == {"k": 2}


def test_listeners_hear_of_each_commit() -> None:
    heard: list[int] = []
    session = Session()
    session.on_commit.append(lambda s: heard.append(len(s.events)))
    session.set("k", 1)
    session.commit()
    session.set("k", 2)
    session.commit()
    assert heard == [1, 2]
