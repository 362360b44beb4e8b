"""The README's code, run as it is printed: a worker from its shell line, and the script that sends work to it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent.parent / "README.md"


def test_the_workflow_is_served_and_the_sender_gets_its_answer(tmp_path: Path) -> None:
    app, send = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    (tmp_path / "app.py").write_text(app)
    (tmp_path / "send.py").write_text(send)
    line, _ = re.findall(r"^    tenure (worker app\.py .*)$", README.read_text(), re.MULTILINE)
    with (tmp_path / "worker.log").open("wb") as log:
        worker = subprocess.Popen([sys.executable, "-m", "tenure", *line.split()], cwd=tmp_path, stdout=log, stderr=log)
    try:
        done = subprocess.run(
            [sys.executable, "send.py"], cwd=tmp_path, capture_output=True, text=True, timeout=90, check=False
        )
        assert (done.stdout, done.returncode) == ("1000 None\n", 0), done.stderr + (tmp_path / "worker.log").read_text()
    finally:
        worker.terminate()
        assert worker.wait(30) == 0
