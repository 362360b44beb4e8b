"""The examples of examples/real run: each does its work, and survives what its first sentence says."""

from __future__ import annotations

import http.server
import sqlite3
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from examples.real import encode_video, llm_batch, nightly_etl, scrape, train_model

from tenure import JobFailed
from tenure.testing import TestDatacenter


def test_a_night_goes_on_where_it_broke(
    tmp_path: Path, tenure_dc: TestDatacenter, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, warehouse = str(tmp_path / "shop.db"), str(tmp_path / "warehouse.db")
    with closing(sqlite3.connect(source)) as database, database:
        database.execute("CREATE TABLE sale (day TEXT, item TEXT, amount INT)")
        database.executemany("INSERT INTO sale VALUES (?, ?, ?)", [(day, "tea", 2) for day in "aabc"])
    with closing(sqlite3.connect(warehouse)) as database, database:
        database.execute("CREATE TABLE total (day TEXT, item TEXT, amount INT)")
    loaded: Counter[str] = Counter()
    real = nightly_etl.load

    def load(where: str, day: str, totals: dict[str, int]) -> int:
        loaded[day] += 1
        if day == "b" and loaded[day] == 1:
            raise ConnectionError("the warehouse is away")
        return real(where, day, totals)

    monkeypatch.setattr(nightly_etl, "load", load)
    job = tenure_dc.submit(nightly_etl.load_days, source=source, warehouse=warehouse, days=["a", "b", "c"])
    assert job.wait() == 3
    assert loaded == {"a": 1, "b": 2, "c": 1}, "a day that was loaded is not loaded again"
    with closing(sqlite3.connect(warehouse)) as database:
        assert database.execute("SELECT day, amount FROM total ORDER BY day").fetchall() == [
            ("a", 4),
            ("b", 2),
            ("c", 2),
        ]


def test_training_ends_with_the_line_through_the_points(tenure_dc: TestDatacenter) -> None:
    points = [(x, 2.0 * x + 1.0) for x in (0.0, 1.0, 2.0)]
    assert tenure_dc.submit(train_model.train, points=points, epochs=300).wait() == {"a": 2.0, "b": 1.0}


class Site(http.server.BaseHTTPRequestHandler):
    asked: ClassVar[Counter[str]] = Counter()

    def do_GET(self) -> None:
        self.asked[self.path] += 1
        later = self.path == "/busy" and self.asked[self.path] == 1
        self.send_response(404 if self.path == "/gone" else 429 if later else 200)
        self.send_header("Retry-After", "30")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *said: Any) -> None: ...


@pytest.fixture
def site() -> Iterator[str]:
    Site.asked.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_scraper_asks_later_and_never_again_for_what_is_gone(site: str, tenure_dc: TestDatacenter) -> None:
    pages = [f"{site}/one", f"{site}/busy"]
    assert tenure_dc.submit(scrape.scrape, urls=pages).wait() == dict.fromkeys(pages, 2)
    assert Site.asked == {"/one": 1, "/busy": 2}
    with pytest.raises(JobFailed, match="is gone"):
        tenure_dc.submit(scrape.scrape, urls=[f"{site}/gone"]).wait()
    assert Site.asked["/gone"] == 1


def test_a_film_is_there_whole_or_not_at_all(tmp_path: Path, tenure_dc: TestDatacenter) -> None:
    ffmpeg = tmp_path / "ffmpeg.py"
    ffmpeg.write_text("import sys\nfor n in range(3): print('frame', n)\nopen(sys.argv[-1], 'w').write('film')\n")
    target = tmp_path / "film.mp4"
    job = tenure_dc.submit(
        encode_video.encode, source="a.mov", target=str(target), program=[sys.executable, str(ffmpeg)]
    )
    assert job.wait() == 4
    assert target.read_text() == "film"
    broken = [sys.executable, "-c", "import sys; sys.exit(3)"]
    with pytest.raises(JobFailed):
        tenure_dc.submit(encode_video.encode, source="a.mov", target=str(tmp_path / "b.mp4"), program=broken).wait()
    assert not (tmp_path / "b.mp4").exists()


def test_each_answer_of_a_batch_is_paid_for_once(monkeypatch: pytest.MonkeyPatch, tenure_dc: TestDatacenter) -> None:
    asked: Counter[str] = Counter()

    def create(model: str, messages: list[dict[str, str]]) -> Any:
        asked[prompt := messages[0]["content"]] += 1
        if prompt == "two" and asked[prompt] == 1:
            raise ConnectionError("the provider is away")
        return SimpleNamespace(choices=[SimpleNamespace(message=SimpleNamespace(content=prompt.upper()))])

    client = SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=create)))
    monkeypatch.setattr(llm_batch.model, "function", lambda: client)
    job = tenure_dc.submit(llm_batch.answer_all, prompts={"a": "one", "b": "two"})
    assert job.wait() == {"a": "ONE", "b": "TWO"}
    assert asked == {"one": 1, "two": 2}
