"""The programs of examples/peers for Celery do what ours do: what they are compared with runs. Celery itself runs them, without a broker."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("celery", reason="Celery is not installed here: make frameworks")


def test_training_gives_what_ours_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from examples.peers import train_model_celery as program

    monkeypatch.setattr(program, "SAVED", tmp_path)
    points = [(x, 2.0 * x + 1.0) for x in (0.0, 1.0, 2.0)]
    assert program.train.apply(kwargs={"points": points, "epochs": 300}).get() == {"a": 2.0, "b": 1.0}


def test_a_night_is_loaded(tmp_path: Path) -> None:
    from examples.peers import nightly_etl_celery as program

    source, warehouse = str(tmp_path / "shop.db"), str(tmp_path / "warehouse.db")
    with closing(sqlite3.connect(source)) as database, database:
        database.execute("CREATE TABLE sale (day TEXT, item TEXT, amount INT)")
        database.executemany("INSERT INTO sale VALUES (?, ?, ?)", [(day, "tea", 2) for day in "aab"])
    with closing(sqlite3.connect(warehouse)) as database, database:
        database.execute("CREATE TABLE total (day TEXT, item TEXT, amount INT)")
    given = {"source": source, "warehouse": warehouse, "days": ["a", "b"]}
    assert program.load_days.apply(kwargs=given, task_id="one").get() == 2
    assert program.load_days.apply(kwargs=given, task_id="one").get() == 2, "nothing is loaded again"


def test_a_film_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    from examples.peers import encode_video_celery as program

    ffmpeg = tmp_path / "ffmpeg.py"
    ffmpeg.write_text("import sys\nprint('frame 1')\nopen(sys.argv[-1], 'w').write('film')\n")
    target = tmp_path / "film.mp4"
    given = {"source": "a.mov", "target": str(target), "program": [sys.executable, str(ffmpeg)]}
    assert program.encode.apply(kwargs=given).get() == 4
    broken = {**given, "target": str(tmp_path / "b.mp4"), "program": [sys.executable, "-c", "import sys; sys.exit(3)"]}
    with pytest.raises(RuntimeError, match="ended with 3"):
        program.encode.apply(kwargs=broken).get()
    assert not (tmp_path / "b.mp4").exists()


def test_an_upload_is_digested(tmp_path: Path) -> None:
    pytest.importorskip("fastapi", reason="FastAPI is not installed here: make frameworks")
    pytest.importorskip("multipart", reason="python-multipart is not installed here: make frameworks")
    from examples.peers import upload_api_celery as program

    (tmp_path / "file").write_bytes(b"abc")
    assert program.digest.apply(kwargs={"path": str(tmp_path / "file")}).get().startswith("ba7816bf")
