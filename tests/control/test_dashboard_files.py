"""The dashboard's files: what is given out, under which headers, and that nothing else can be had through them."""

from __future__ import annotations

import gzip
import hashlib
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.nodes.served import Served

import tenure.control
from tenure.control.admission import HttpLimits
from tenure.control.dashboard_files import POLICY, PageFiles, page_files

PAGE = Path(tenure.control.__file__).parent / "dashboard"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def node() -> Iterator[Served]:
    """With a token: the page is for everybody all the same."""
    with Served(token="secret") as served:
        yield served


def test_the_page_is_served_without_a_token_and_what_it_asks_for_is_not(node: Served) -> None:
    page = node.ask("/")
    assert page.status == 200
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert b"secret" not in page.body
    for path in ("/v1/jobs", "/v1/me", "/v1/overview", "/v1/events", "/metrics"):
        assert node.ask(path).status == 401
    assert node.ask("/v1/me", token="secret").status == 200


def test_the_page_may_load_nothing_from_elsewhere_and_run_nothing_inline(node: Served) -> None:
    for path in ("/", *page_files().paths):
        headers = node.ask(path).headers
        assert headers["Content-Security-Policy"] == POLICY
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["Referrer-Policy"] == "no-referrer"
    allowed = dict(part.split(" ", 1) for part in POLICY.split("; "))
    assert allowed["default-src"] == "'none'"
    assert allowed["frame-ancestors"] == "'none'"
    assert all(allowed[kind] == "'self'" for kind in ("script-src", "style-src", "connect-src", "img-src"))
    assert "unsafe" not in POLICY
    index = (PAGE / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\bon\w+=|style=|https?://", index)


def test_nothing_of_ours_makes_markup_of_text() -> None:
    for path in (PAGE / "js").rglob("*.js"):
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", path.read_text()
        ), path
        assert "http://" not in path.read_text().replace('"http://www.w3.org', ""), path


def test_files_are_named_by_their_content_and_kept_for_ever_and_the_page_is_asked_for_again(node: Served) -> None:
    page = node.ask("/")
    assert page.headers["Cache-Control"] == "no-cache"
    named = re.findall(r'(?:src|href)="([^"]+)"', page.body.decode())
    assert len(named) >= 5
    for path in named:
        answer = node.ask(path)
        assert answer.status == 200, path
        assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
        assert path.startswith(f"/page/{page_files().digest}/")


def test_a_change_in_any_file_is_a_new_address_for_all(tmp_path: Path) -> None:
    for name, text in {"index.html": "{{files}}/a.js", "a.js": "1", "b.js": "2"}.items():
        (tmp_path / name).write_text(text)
    before = PageFiles(tmp_path)
    assert PageFiles(tmp_path).digest == before.digest
    (tmp_path / "b.js").write_text("3")
    after = PageFiles(tmp_path)
    assert after.digest != before.digest
    answer = after.answer("/")
    assert answer is not None
    assert answer.body == f"/page/{after.digest}/a.js".encode()
    assert after.answer(before.paths[0]) is None


def test_who_has_a_file_already_is_told_so_without_its_body(node: Served) -> None:
    for path in ("/", page_files().paths[0]):
        tag = node.ask(path).headers["ETag"]
        for have in (tag, f"W/{tag}", f'"other", {tag}', "*"):
            answer = node.ask(path, headers={"If-None-Match": have})
            assert (answer.status, answer.body, answer.headers["ETag"]) == (304, b"", tag)
        assert node.ask(path, headers={"If-None-Match": '"other"'}).status == 200


def test_files_are_compressed_for_those_who_can_read_it(node: Served) -> None:
    path = next(path for path in page_files().paths if path.endswith("uPlot.iife.min.js"))
    plain = node.ask(path)
    assert "Content-Encoding" not in plain.headers
    packed = node.ask(path, headers={"Accept-Encoding": "br, gzip;q=0.5"})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert packed.headers["Vary"] == "Accept-Encoding"
    assert gzip.decompress(packed.body) == plain.body
    assert "Content-Encoding" not in node.ask(path, headers={"Accept-Encoding": "gzip;q=0"}).headers


@pytest.mark.parametrize(
    "path",
    [
        "/page/",
        "/page/x",
        "/page/{digest}",
        "/page/{digest}/",
        "/page/{digest}/index.html",
        "/page/{digest}/../../../../etc/passwd",
        "/page/{digest}/%2e%2e/%2e%2e/page_files.py",
        "/page/{digest}/..%2f..%2fpage_files.py",
        "/page/{digest}/js/..%5c..%5cpage_files.py",
        "/page/{digest}//etc/passwd",
        "/page/{digest}/js/main.js%00.css",
        "/page/{digest}/js/main.js/",
        "/page/00000000000000000000/js/main.js",
        "/page_files.py",
    ],
)
def test_nothing_but_the_files_of_the_page_can_be_had(node: Served, path: str) -> None:
    answer = node.ask(path.format(digest=page_files().digest))
    assert answer.status in (401, 404), answer
    assert b"import" not in (answer.body if isinstance(answer.body, bytes) else b"")


def test_the_page_is_read_and_not_written(node: Served) -> None:
    head = node.ask("/", method="HEAD")
    assert (head.status, head.body) == (200, b"")
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
        answer = node.ask("/", b"", method=method)
        assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")


def test_how_often_is_limited_without_a_token_too() -> None:
    with Served(limits=HttpLimits(requests_per_s=0.01, burst=3.0)) as node:
        statuses = [node.ask("/").status for _ in range(5)]
    assert 200 in statuses
    assert 429 in statuses


def test_files_of_others_are_what_their_packages_hold() -> None:
    listed = {}
    for line in (PAGE / "vendor" / "VENDORED.txt").read_text().splitlines():
        if match := re.fullmatch(r"(\S+) +(\S+@[\d.]+) +(MIT|Apache-2\.0) +([0-9a-f]{64})", line):
            listed[match[1]] = match[4]
    there = {path.name for path in (PAGE / "vendor").iterdir()} - {"VENDORED.txt"}
    assert set(listed) == there
    for name, digest in listed.items():
        assert hashlib.sha256((PAGE / "vendor" / name).read_bytes()).hexdigest() == digest, name


@pytest.mark.slow
def test_a_built_wheel_holds_the_page(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=100)
    (wheel,) = tmp_path.glob("*.whl")
    packed = {
        name.partition("tenure/control/dashboard/")[2]
        for name in zipfile.ZipFile(wheel).namelist()
        if "/control/dashboard/" in name
    }
    assert packed == {str(path.relative_to(PAGE)) for path in PAGE.rglob("*") if path.is_file()}
