"""A headless Chromium for tests of the dashboard: npm's @sparticuz/chromium, which carries the program and the libraries that it needs, compressed.

python -m tools.servers.chromium    fetch it now (`make servers`), so that tests need no network later
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import tarfile
from pathlib import Path

from tools.servers import packages
from tools.servers.process import CannotStart

VERSION = "153.0.0"
SHA256 = "20e5656fcdcf4118ede85edfb9d6bb9cc1bbb7ffb8b75622fffbcf36a835c3c0"
_PARTS = ("chromium.br", "al2023.tar.br", "swiftshader.tar.br", "fonts.tar.br")
# Python's own library cannot read Brotli; the Node.js that npm needs can.
_INFLATE = (
    'const zlib = require("zlib"), fs = require("fs"), { pipeline } = require("stream/promises");'
    "Promise.all(process.argv.slice(1).map((name) => pipeline(fs.createReadStream(name), zlib.createBrotliDecompress(),"
    " fs.createWriteStream(name.slice(0, -3))))).catch((error) => { console.error(error.message); process.exit(1); });"
)


def program() -> Path:
    """The program `chromium`. Raises `CannotStart` with the reason."""
    if chosen := os.environ.get("TENURE_TEST_BIN_CHROMIUM"):
        if not Path(chosen).is_file():
            raise CannotStart(f"TENURE_TEST_BIN_CHROMIUM names {chosen}, and there is no such file")
        return Path(chosen)
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        raise CannotStart(f"Chromium: npm has no build for {platform.system()} on {platform.machine()}")
    return packages.unpacked(f"chromium-{VERSION}", _fetch) / "chromium"


def environment(found: Path) -> dict[str, str]:
    """In which it finds the libraries that came with it; fonts only where the machine has none."""
    libraries = str(found.parent / "lib")
    fonts = {} if Path("/etc/fonts/fonts.conf").exists() else {"FONTCONFIG_PATH": str(found.parent)}
    return {**os.environ, "LD_LIBRARY_PATH": libraries, **fonts} if Path(libraries).is_dir() else dict(os.environ)


def _fetch(place: Path) -> None:
    packages.run(["npm", "pack", "--silent", f"@sparticuz/chromium@{VERSION}"], place)
    (archive,) = place.glob("*.tgz")
    if hashlib.sha256(archive.read_bytes()).hexdigest() != SHA256:
        raise CannotStart(f"@sparticuz/chromium@{VERSION} is not the file that it was: its SHA-256 differs")
    with tarfile.open(archive) as packed:
        for name in (*(f"bin/{part}" for part in _PARTS), "LICENSE"):
            member = packed.getmember(f"package/{name}")
            member.name = Path(name).name
            packed.extract(member, place, filter="data")
    archive.unlink()
    packages.run(["node", "-e", _INFLATE, *_PARTS], place)
    for part in _PARTS:
        (place / part).unlink()
        if part.endswith(".tar.br"):
            inner = place / part.removesuffix(".br")
            with tarfile.open(inner) as packed:
                packed.extractall(place, filter="data")
            inner.unlink()
    (place / "chromium").chmod(0o755)


if __name__ == "__main__":
    try:
        program()
    except CannotStart as reason:
        sys.exit(f"no browser for tests/browser: {reason}")
