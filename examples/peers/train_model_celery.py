"""Training with Celery: the task keeps its own checkpoint, in a file that every worker must reach."""

from __future__ import annotations

import json
import os
from pathlib import Path

from celery import Celery

app = Celery("training", broker=os.environ.get("BROKER", "redis://127.0.0.1:6379"))
app.conf.task_acks_late = True
app.conf.task_reject_on_worker_lost = True
app.conf.worker_prefetch_multiplier = 1
app.conf.broker_transport_options = {"visibility_timeout": 7 * 86_400}
SAVED = Path(os.environ.get("CHECKPOINTS", "/shared/checkpoints"))


@app.task(bind=True, max_retries=2, autoretry_for=(Exception,))
def train(self, points: list[tuple[float, float]], epochs: int, rate: float = 0.05) -> dict[str, float]:
    saved = SAVED / f"{self.request.id}.json"
    at = json.loads(saved.read_text()) if saved.exists() else {"epoch": 0, "a": 0.0, "b": 0.0}
    a, b = at["a"], at["b"]
    for epoch in range(at["epoch"], epochs):
        for x, y in points:
            error = a * x + b - y
            a, b = a - rate * error * x, b - rate * error
        part = saved.with_suffix(".part")
        part.write_text(json.dumps({"epoch": epoch + 1, "a": a, "b": b}))
        part.rename(saved)
        if not self.request.is_eager:
            self.update_state(state="PROGRESS", meta={"progress": (epoch + 1) / epochs, "error": abs(error)})
    saved.unlink(missing_ok=True)
    return {"a": round(a, 2), "b": round(b, 2)}
