"""A Celery application as people have it: tasks that beat, one that hangs the first time, one that nobody watches."""

from __future__ import annotations

import os
import time
from pathlib import Path

from celery import Celery

from tenure.contrib.celery import beat, silence, watch_tasks

app = Celery("shop", broker=os.environ["SHOP_BROKER"], backend=os.environ["SHOP_BROKER"])
app.conf.broker_transport_options = {"visibility_timeout": 30}
watch_tasks(app)
FOLDER = Path(os.environ["SHOP_FOLDER"])


@app.task(name="hangs_once", acks_late=True, reject_on_worker_lost=True, stall_s=1.0)
def hangs_once():
    beat(note="begun")
    if not (FOLDER / "hung").exists():
        (FOLDER / "hung").touch()
        time.sleep(1000)
    return "done in the second run"


@app.task(name="beats", acks_late=True, reject_on_worker_lost=True, stall_s=30.0)
def beats():
    while not (FOLDER / "enough").exists():
        beat()
        time.sleep(0.05)
    with silence(5, "the last query"):
        time.sleep(0.01)
    return "beaten"


@app.task(name="plain")
def plain(x):
    beat()  # of no effect: it has no stall_s
    return x
