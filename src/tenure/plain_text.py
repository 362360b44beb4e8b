"""Makes text that others wrote safe to print: a terminal obeys no control character in it, and no line of a log can be forged with it."""

from __future__ import annotations

import re

_KEPT = "\n\t"
# C0 and C1 control characters, DEL, the marks and overrides of bidirectional text, and the line and paragraph separators of Unicode.
_ODD = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


def plain(text: str, *, lines: bool = False) -> str:
    """Returns the text with every character that a terminal would obey written out, as `\\u001b`. With `lines`, line ends and tabs stay.

    A JSON document reads the same afterwards: JSON itself escapes only what is below a space, and in this form.
    """
    return _ODD.sub(lambda found: found[0] if lines and found[0] in _KEPT else f"\\u{ord(found[0]):04x}", text)
