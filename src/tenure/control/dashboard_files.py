"""Serves the dashboard's files: it reads them once from the package, names them by a digest of all of them, and sets caching and security headers.

The files hold no data and no secret, so every caller may read them; the page asks the API for the data that it shows. The path of a request is
looked up in a table of the package's files, and never reaches the file system.
"""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

PREFIX = "/page/"
_FOLDER = Path(__file__).parent / "dashboard"
_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
_INDEX = "index.html"
_PLACE = b"{{files}}"
_WORTH_BYTES = 600
"""Files below this size are not compressed, because they would gain nothing."""

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""The page's Content-Security-Policy: no inline code, nothing from another host, no form that leaves, no frame around it, no text as markup."""
_GUARDS = {
    "Content-Security-Policy": POLICY,
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class FileAnswer(NamedTuple):
    """The answer for a file; without a body where the browser has the file already."""

    status: int
    headers: dict[str, str]
    body: bytes = b""


class _File(NamedTuple):
    kind: str
    plain: bytes
    packed: bytes
    """The compressed file; empty where compressing is not worth it."""
    tag: str


class PageFiles:
    """All files of one folder, in memory."""

    def __init__(self, folder: Path = _FOLDER) -> None:
        found = {
            str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.suffix in _KINDS and path.is_file()
        }
        digest = hashlib.sha256()
        for name, content in found.items():
            digest.update(name.encode() + b"\0" + hashlib.sha256(content).digest())
        # One digest for all files: modules import each other by relative paths, so a change in one must change the address of each.
        self.digest = digest.hexdigest()[:20]
        index = found.pop(_INDEX).replace(_PLACE, f"{PREFIX}{self.digest}".encode())
        self._index = _file(_INDEX, index)
        self._files = {f"{PREFIX}{self.digest}/{name}": _file(name, content) for name, content in found.items()}

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(self._files)

    def answer(self, path: str, *, have: str = "", accepts: str = "") -> FileAnswer | None:
        """Returns the answer for a path; None where it is no file of the page. `have`: If-None-Match; `accepts`: Accept-Encoding."""
        if path in ("", "/"):
            # The index holds the digest, so browsers must ask for it each time. That costs a 304 while nothing has changed.
            return _give(self._index, "no-cache", have, accepts)
        found = self._files.get(path)
        if found is not None:
            return _give(found, "public, max-age=31536000, immutable", have, accepts)
        return None


@cache
def page_files() -> PageFiles:
    """Returns the files of this package. The first call reads them."""
    return PageFiles()


def _file(name: str, content: bytes) -> _File:
    packed = gzip.compress(content, 9, mtime=0) if len(content) >= _WORTH_BYTES else b""
    return _File(_KINDS[Path(name).suffix], content, packed, f'"{hashlib.sha256(content).hexdigest()[:32]}"')


def _give(file: _File, caching: str, have: str, accepts: str) -> FileAnswer:
    headers = {**_GUARDS, "Cache-Control": caching, "ETag": file.tag, "Vary": "Accept-Encoding"}
    if any(one.strip().removeprefix("W/") in (file.tag, "*") for one in have.split(",")):
        return FileAnswer(304, headers)
    headers["Content-Type"] = file.kind
    if file.packed and _takes_gzip(accepts):
        headers["Content-Encoding"] = "gzip"
        return FileAnswer(200, headers, file.packed)
    return FileAnswer(200, headers, file.plain)


def _takes_gzip(accepts: str) -> bool:
    for part in accepts.lower().split(","):
        name, _, weight = part.partition(";")
        if name.strip() == "gzip":
            return weight.strip().replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
