"""Video with Celery: ffmpeg's progress is watched by hand, because no limit of Celery's fits both a short film and a long one."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
from pathlib import Path

from celery import Celery

app = Celery("video", broker=os.environ.get("BROKER", "redis://127.0.0.1:6379"))
app.conf.task_acks_late = True
app.conf.task_reject_on_worker_lost = True
app.conf.worker_prefetch_multiplier = 1
app.conf.broker_transport_options = {"visibility_timeout": 86_400}
FFMPEG = ["ffmpeg", "-nostdin", "-y", "-progress", "pipe:1", "-loglevel", "error"]
STALL_S = 120


@app.task(bind=True, max_retries=2)
def encode(self, source: str, target: str, program: list[str] = FFMPEG) -> int:
    part = f"{target}.part"
    child = subprocess.Popen(
        [*program, "-i", source, "-f", "mp4", part], stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ)
            while True:
                if not selector.select(STALL_S):
                    raise TimeoutError(f"ffmpeg said nothing for {STALL_S} s")
                if not os.read(child.stdout.fileno(), 65_536):
                    break
        if child.wait(STALL_S):
            raise RuntimeError(f"ffmpeg ended with {child.returncode}")
    except (TimeoutError, RuntimeError, subprocess.TimeoutExpired) as error:
        raise self.retry(exc=error, countdown=1) from error
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
    Path(part).rename(target)
    return Path(target).stat().st_size
