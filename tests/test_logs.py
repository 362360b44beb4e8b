"""Lines for people and lines for machines."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.logs import NODE_LOGGER, JsonLines, LogForm, NodeLog, TextLines, facts, log_to, node_log, plain, quiet


@pytest.fixture(autouse=True)
def _put_back() -> Iterator[None]:
    yield
    root = logging.getLogger()
    for handler in [one for one in root.handlers if isinstance(one.formatter, (JsonLines, TextLines))]:
        root.removeHandler(handler)


def test_a_person_reads_who_says_what() -> None:
    stream = io.StringIO()
    log = node_log("manager", "m1", LogForm.TEXT, stream)
    log.info("leads with epoch 3")
    logging.getLogger("tenure.engines").warning("the engine is slow: %s ms", 12)
    with facts(request="r-1"):
        log.warning("took a job, 100% sure")
    assert stream.getvalue().splitlines() == [
        "manager m1: leads with epoch 3",
        "manager m1: warning: the engine is slow: 12 ms (tenure.engines)",
        "manager m1: took a job, 100% sure [request=r-1]",
    ]


@pytest.mark.parametrize("form", list(LogForm))
def test_lines_that_were_written_together_are_lines_of_their_own(form: LogForm) -> None:
    stream, told = io.StringIO(), list[str]()
    node_log("manager", "m1", form, stream).info_all(['audit {"a":1}', "audit {}\nmanager m1: forged"])
    log_to(told.append).info_all(["one", "two"])
    assert told == ["one", "two"]
    written = stream.getvalue().splitlines()
    if form is LogForm.JSON:
        assert [json.loads(line)["text"] for line in written] == ['audit {"a":1}', "audit {}\nmanager m1: forged"]
        assert {json.loads(line)["node"] for line in written} == {"m1"}
    else:
        assert written == ['manager m1: audit {"a":1}', "manager m1: audit {}", "    manager m1: forged"]


def test_a_machine_reads_fields_and_nothing_hides_them() -> None:
    stream = io.StringIO()
    log = node_log("worker", "w1", "json", stream)
    with facts(job_id="j", at="a lie", odd={1, 2}.__class__):
        log.error("ALARM no_leader: nobody leads")
    try:
        raise ValueError("no\nnewlines")
    except ValueError:
        logging.getLogger("users.code").exception("it broke")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert {"level": "error", "kind": "worker", "node": "w1", "job_id": "j"}.items() <= first.items()
    assert isinstance(first["at"], float)
    assert second["logger"] == "users.code"
    assert "ValueError: no" in second["error"]


def test_lines_of_several_nodes_of_one_process_are_told_apart() -> None:
    text, machine = io.StringIO(), io.StringIO()
    for form, stream in ((LogForm.TEXT, text), (LogForm.JSON, machine)):
        node_log("manager", "m1", form, stream).info("leads")
        NodeLog("worker", "w1").warning("cannot report")
        logging.getLogger("tenure.engines").warning("slow")
    assert text.getvalue().splitlines() == [
        "manager m1: leads",
        "worker w1: cannot report",
        "manager m1: warning: slow (tenure.engines)",
    ]
    lines = [json.loads(line) for line in machine.getvalue().splitlines()]
    assert [(line["kind"], line["node"], line["level"]) for line in lines] == [
        ("manager", "m1", "info"),
        ("worker", "w1", "warning"),
        ("manager", "m1", "warning"),
    ]


def test_a_log_to_a_function_reaches_that_function_and_nobody_else() -> None:
    stream, first, second = io.StringIO(), list[str](), list[str]()
    node_log("manager", "m1", stream=stream)
    log_to(first.append, "worker", "w1").info("100% of %s")
    log_to(second.append).error("lost")
    assert (first, second, stream.getvalue()) == (["100% of %s"], ["lost"], "")


def test_a_second_node_in_the_process_takes_over_and_does_not_say_everything_twice() -> None:
    first, second = io.StringIO(), io.StringIO()
    node_log("manager", "a", stream=first)
    log = node_log("manager", "b", stream=second)
    log.info("hello")
    assert (first.getvalue(), second.getvalue()) == ("", "manager b: hello\n")


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(ValueError, match="yaml"):
        node_log("manager", "a", "yaml")


def test_a_quiet_logger_has_its_level_again_afterwards() -> None:
    logger = logging.getLogger("tenure.test_quiet")
    with quiet("tenure.test_quiet"):
        assert not logger.isEnabledFor(logging.WARNING)
    assert logger.isEnabledFor(logging.WARNING)


CLEAR, BIDI = "\x1b[2J", "\u202etxt.exe"


@given(st.text())
def test_no_control_character_is_left(text: str) -> None:
    assert not any(ord(one) < 32 or 127 <= ord(one) < 160 for one in plain(text))
    assert not any(0x202A <= ord(one) <= 0x202E for one in plain(text))


def test_what_a_terminal_would_obey_is_written_out() -> None:
    assert plain(f"a{CLEAR}b") == r"a\u001b[2Jb"
    assert plain(BIDI) == r"\u202etxt.exe"
    assert plain("two\nlines\t", lines=True) == "two\nlines\t"
    assert plain("Grüße, 東京 🎉") == "Grüße, 東京 🎉"


@given(st.text())
def test_json_reads_the_same_afterwards(text: str) -> None:
    assert json.loads(plain(json.dumps({"a": text}, ensure_ascii=False))) == {"a": text}


def test_a_name_forges_no_line_of_a_log() -> None:
    record = logging.LogRecord(
        NODE_LOGGER, logging.INFO, "", 0, "evicted %s", (f"w\nmanager m1: all is well{CLEAR}",), None
    )
    line = TextLines("manager", "m1").format(record)
    assert line.split("\n")[1].startswith("    manager m1: all is well")
    assert "\x1b" not in line
