"""Uploads with FastAPI: the request ends at once, the work goes on, and the browser follows it.

TENURE=127.0.0.1:8470 uvicorn examples.real.upload_api:app, and a worker: tenure worker examples.real.upload_api --engine … --managed
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Annotated

from fastapi import Depends, FastAPI, UploadFile

from tenure import AsyncClient, Context, workflow
from tenure.contrib.fastapi import Tenure
from tenure.errors import TenureError

tenure = Tenure(os.environ.get("TENURE", "127.0.0.1:8470"))
app = FastAPI(lifespan=tenure.lifespan)
app.include_router(tenure.routes(), prefix="/jobs")
app.add_exception_handler(TenureError, tenure.answer_error)
FOLDER = Path(os.environ.get("UPLOADS", tempfile.gettempdir()))


@workflow(stall=60)
def digest(ctx: Context, path: str) -> str:
    found = hashlib.sha256()
    with Path(path).open("rb") as file:
        for block in ctx.track(iter(lambda: file.read(1 << 20), b"")):
            found.update(block)
    return found.hexdigest()


@app.post("/uploads")
async def upload(file: UploadFile, jobs: Annotated[AsyncClient, Depends(tenure)]) -> dict[str, str]:
    content = await file.read()
    path = FOLDER / hashlib.sha256(content).hexdigest()
    path.write_bytes(content)
    # The same file again is the same job: its name is its content.
    job = await jobs.submit(digest, path=str(path), job_id=f"digest-{path.name[:32]}", park=True)
    return {"job": job.id, "progress": f"/jobs/{job.id}/progress"}
