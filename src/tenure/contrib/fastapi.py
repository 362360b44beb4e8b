"""Tenure in a FastAPI application: one client for the application's life, as a dependency, and a stream of a job's progress for browsers.

tenure = Tenure("127.0.0.1:8470")
app = FastAPI(lifespan=tenure.lifespan)
app.include_router(tenure.routes(dependencies=[Depends(signed_in)]), prefix="/jobs")
app.add_exception_handler(TenureError, tenure.answer_error)

@app.post("/videos")
async def upload(path: str, jobs: Annotated[AsyncClient, Depends(tenure)]) -> dict[str, str]:
    job = await jobs.submit(encode, path=path)
    return {"job": job.id}
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from tenure.client.async_client import AsyncClient
from tenure.client.job_messages import JobUpdate, update_of_view
from tenure.control.messages.wire import ProblemKind
from tenure.control.problems import STATUS, problem
from tenure.errors import ConfigurationError, NodeRefusedError, TenureError

BAD_GATEWAY = 502
KEEP_ALIVE_S = 15.0
"""Seconds after which a stream without news sends a comment. Proxies close a connection that is silent for a minute."""


class Tenure:
    """The client of one application. Its instances are dependencies: `Annotated[AsyncClient, Depends(tenure)]`."""

    def __init__(self, addresses: Sequence[str] | str = "127.0.0.1:8470", **options: Any) -> None:
        """Addresses and options are those of `AsyncClient`. Nothing is connected before the application starts."""
        self._addresses, self._options = addresses, options
        self._client: AsyncClient | None = None

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        """Opens the client when the application starts and closes it when it ends. In a lifespan of your own: `async with tenure.lifespan(app):`."""
        async with AsyncClient(self._addresses, **self._options) as client:
            self._client = client
            try:
                yield
            finally:
                self._client = None

    @property
    def client(self) -> AsyncClient:
        if self._client is None:
            raise ConfigurationError(
                "this Tenure has no client: its application has not started, or has ended",
                remedy="Write FastAPI(lifespan=tenure.lifespan), and in tests: with TestClient(app):",
            )
        return self._client

    async def __call__(self) -> AsyncClient:
        return self.client

    def routes(self, *, dependencies: Sequence[Any] = ()) -> APIRouter:
        """Returns routes of one job: `GET /{job_id}` is how it stands, `GET /{job_id}/progress` a stream of server-sent events.

        They answer whoever knows the id of a job. `dependencies` are asked first: give the one that says who may.
        """
        router = APIRouter(dependencies=list(dependencies), tags=["jobs"])

        async def status(job_id: str) -> Response:
            try:
                view = await self.client.job(job_id)
            except TenureError as error:
                return _answer(error)
            return Response(update_of_view(view).json(), media_type="application/json")

        async def progress(job_id: str) -> Response:
            updates = self.client.get(job_id).watch()
            try:
                first = await anext(updates)  # before the answer begins, so that an unknown job is a 404
            except TenureError as error:
                return _answer(error)
            headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}  # nginx would keep the lines back
            return StreamingResponse(_events(first, updates), media_type="text/event-stream", headers=headers)

        router.add_api_route("/{job_id}", status, methods=["GET"], response_model=None, name="job_status")
        router.add_api_route("/{job_id}/progress", progress, methods=["GET"], response_model=None, name="job_progress")
        return router

    async def answer_error(self, request: Request, error: Exception) -> Response:
        """Answers an error of Tenure as its own API does: 409 for a conflict, 503 with Retry-After where a retry helps."""
        if not isinstance(error, TenureError):
            raise error
        return _answer(error)


async def _events(first: JobUpdate, updates: AsyncIterator[JobUpdate]) -> AsyncIterator[str]:
    yield _event(first)
    waiting: asyncio.Task[JobUpdate] | None = None
    try:
        while True:
            waiting = waiting or asyncio.ensure_future(_next(updates))
            done, _ = await asyncio.wait({waiting}, timeout=KEEP_ALIVE_S)
            if not done:
                yield ": still here\n\n"
                continue
            try:
                update = waiting.result()
            except StopAsyncIteration:
                return
            except (
                TenureError
            ) as error:  # the browser connects again by itself, and begins with how the job stands then
                yield f"event: trouble\ndata: {error.fact}\n\n"
                return
            waiting = None
            yield _event(update)
    finally:  # also when the browser went away
        if waiting is not None:
            waiting.cancel()
            with suppress(asyncio.CancelledError, StopAsyncIteration, TenureError):
                await waiting


async def _next(updates: AsyncIterator[JobUpdate]) -> JobUpdate:
    return await anext(updates)


def _event(update: JobUpdate) -> str:
    kind = "end" if update.ended else "decision" if update.decision else "progress"
    return f"event: {kind}\ndata: {update.json()}\n\n"


def _answer(error: TenureError) -> Response:
    found = problem(error)
    kind = ProblemKind(error.kind) if isinstance(error, NodeRefusedError) else found.kind
    # A token that Tenure refuses is this application's. Whoever asks the application is not to blame.
    status = BAD_GATEWAY if kind in (ProblemKind.FORBIDDEN, ProblemKind.DENIED) else STATUS[kind]
    headers = {"Retry-After": str(math.ceil(found.retry_after_s))} if found.retry_after_s else {}
    return JSONResponse(
        {"detail": found.fact, "remedy": found.remedy, "kind": kind, "page": found.page}, status, headers
    )
