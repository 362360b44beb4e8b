"""Text of others, as a terminal gets it."""

from __future__ import annotations

import json
import logging

from hypothesis import given
from hypothesis import strategies as st

from tenure.logs import NODE_LOGGER, TextLines
from tenure.plain_text import plain

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
