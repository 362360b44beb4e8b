"""axe-core, which finds in a page what keeps people out: npm's own file, by version and digest.

python -m tools.servers.axe    fetch it now (`make servers`), so that tests need no network later
"""

from __future__ import annotations

import hashlib
import sys
import tarfile
from pathlib import Path

from tools.servers import packages
from tools.servers.process import CannotStart

VERSION = "4.10.3"
SHA256 = "0f2b4d7dcdf7d1219df8d1959ad68e565f51d14c3f0d88bb71cd59abeb956292"


def script() -> str:
    """The program as text. Raises `CannotStart` with the reason."""
    return (packages.unpacked(f"axe-core-{VERSION}", _fetch) / "axe.min.js").read_text()


def _fetch(place: Path) -> None:
    packages.run(["npm", "pack", "--silent", f"axe-core@{VERSION}"], place)
    (archive,) = place.glob("*.tgz")
    if hashlib.sha256(archive.read_bytes()).hexdigest() != SHA256:
        raise CannotStart(f"axe-core@{VERSION} is not the file that it was: its SHA-256 differs")
    with tarfile.open(archive) as packed:
        for name in ("axe.min.js", "LICENSE"):
            member = packed.getmember(f"package/{name}")
            member.name = name
            packed.extract(member, place, filter="data")
    archive.unlink()


if __name__ == "__main__":
    try:
        script()
    except CannotStart as reason:
        sys.exit(f"no axe-core for tests/browser: {reason}")
