"""Uploads with FastAPI and Celery: the routes for state and progress are written by hand."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from celery import Celery
from celery.result import AsyncResult
from fastapi import FastAPI, UploadFile
from fastapi.responses import StreamingResponse

queue = Celery("uploads", broker=os.environ.get("BROKER", "redis://127.0.0.1:6379"))
queue.conf.result_backend = os.environ.get("RESULTS", "redis://127.0.0.1:6379")
queue.conf.task_acks_late = True
queue.conf.task_reject_on_worker_lost = True
queue.conf.worker_prefetch_multiplier = 1
app = FastAPI()
FOLDER = Path(os.environ.get("UPLOADS", tempfile.gettempdir()))


@queue.task(bind=True, max_retries=2, autoretry_for=(OSError,), time_limit=3_600)
def digest(self, path: str) -> str:
    found, size, read = hashlib.sha256(), Path(path).stat().st_size, 0
    with Path(path).open("rb") as file:
        while block := file.read(1 << 20):
            found.update(block)
            read += len(block)
            if not self.request.is_eager:
                self.update_state(state="PROGRESS", meta={"fraction": read / size})
    return found.hexdigest()


def how(job: str) -> dict[str, object]:
    result = AsyncResult(job, app=queue)
    told = result.result if result.successful() else str(result.result) if result.failed() else result.info
    return {"job": job, "state": result.state, "told": told}


@app.post("/uploads")
async def upload(file: UploadFile) -> dict[str, str]:
    content = await file.read()
    path = FOLDER / hashlib.sha256(content).hexdigest()
    job = f"digest-{path.name[:32]}"
    path.write_bytes(content)
    if AsyncResult(job, app=queue).state == "PENDING":
        digest.apply_async(kwargs={"path": str(path)}, task_id=job)
    return {"job": job, "progress": f"/jobs/{job}/progress"}


@app.get("/jobs/{job}")
def state(job: str) -> dict[str, object]:
    return how(job)


@app.get("/jobs/{job}/progress")
async def progress(job: str) -> StreamingResponse:
    async def lines() -> AsyncIterator[str]:
        before = None
        while True:
            now = await asyncio.to_thread(how, job)
            ended = now["state"] in ("SUCCESS", "FAILURE", "REVOKED")
            if now != before:
                yield f"event: {'end' if ended else 'progress'}\ndata: {json.dumps(now)}\n\n"
            if ended:
                return
            before = now
            await asyncio.sleep(0.5)

    return StreamingResponse(lines(), media_type="text/event-stream")
