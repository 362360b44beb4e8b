"""The Lua scripts: one file per operation, put together with the parts that its first line names, and known by SHA.

-- uses: seen time ring post; writes
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib.resources import files

import msgspec

from tenure.engines.contracts import KEY_MEMORY_S

_HEADER = re.compile(r"-- uses: ([a-z ]+?)(; writes)?\n")
HANDED_S = 10.0
"""The lease of a message that was handed over, until its consumer answers: as long as that of work which was claimed and not started."""
OFFERED_S = 35.0
"""The seconds for which an offer stands: longer than a waiter waits before it looks by itself."""
_CONSTANTS = {
    "{memory}": KEY_MEMORY_S,
    "{batch}": 33_554_432,
    "{handed}": round(HANDED_S * 1e6),
    "{offered}": round(OFFERED_S * 1e6),
    "{small}": 65_536,  # larger ones are claimed: a publication also goes to every replica
}
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)


class Script(msgspec.Struct, frozen=True):
    """One operation. `writes`: it may change something, so that replicas may have to be waited for."""

    name: str
    source: str
    sha: bytes
    writes: bool


def every_script() -> list[Script]:
    """All of them, to be loaded when an engine opens."""
    folder = files(__package__) / "lua"
    return [script(path.name.removesuffix(".lua")) for path in folder.iterdir() if path.name.endswith(".lua")]


@cache
def script(name: str) -> Script:
    """Read from the package when it is first needed."""
    folder = files(__package__) / "lua"
    body = (folder / f"{name}.lua").read_text()
    header = _HEADER.match(body)
    if header is None:
        raise ValueError(f"{name}.lua does not begin with '-- uses: …'")
    parts = [(folder / "parts" / f"{part}.lua").read_text() for part in header[1].split()]
    # Comments are for readers of the files; the server parses the script anew after each restart.
    source = _COMMENT.sub("", "".join([*parts, body]))
    for constant, value in _CONSTANTS.items():
        source = source.replace(constant, str(value))
    sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest().encode()
    return Script(name, source, sha, header[2] is not None)
