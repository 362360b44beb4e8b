"""Lines for people and lines for machines."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from tenure.logs import JsonLines, LogForm, NodeLog, TextLines, facts, log_to, node_log, quiet


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
