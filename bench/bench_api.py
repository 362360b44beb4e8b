"""What the control plane's own work costs: requests per second and latency beside bare aiohttp that serves the same JSON bytes.

Both servers run in a process of their own and are asked by the same client, over connections that stay open, in turn. Bare aiohttp is
`web.Application` with one route that answers with a constant body: no tokens, no limits, no ids, nothing read off a book. What remains of its
rate is what a request costs us beyond HTTP.

The bars: a probe is HTTP and nothing else, so it keeps at least half of the rate; a read that is checked (token, rate, role, fields) four tenths, and one that is
also read off the book and encoded three tenths. Measured on a shared machine they keep 0.66 to 0.84, 0.63 to 0.71 and 0.46 to 0.54; a bar is where somebody should ask what was added to
every request. Latencies have a bar at the median only: the 99th percentile of a shared machine is the machine's.
"""

from __future__ import annotations

import asyncio
import hashlib
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec

from bench.harness import Report

CONNECTIONS = 8
REQUESTS = 3_000
ROUNDS = 5
TOKEN = "bench"
JOB = {"job_id": "j-{}", "workflows": [{"name": "w", "function": "encode", "arguments": {"path": "a.mov"}}]}


def run(report: Report) -> None:
    with tempfile.TemporaryDirectory() as folder, manager(Path(folder)) as ours:
        asyncio.run(prepare(ours))
        for name, request, bars in (
            ("GET /health/live", get("/health/live"), (0.5, 2.5)),
            ("GET /v1/leader", get("/v1/leader"), (0.4, 3.0)),
            ("GET /v1/job", get("/v1/job?job_id=j-1"), (0.3, 4.0)),
        ):
            body = asyncio.run(one(ours, request))
            with bare(body) as theirs:
                compare(report, name, ours, theirs, request, *bars)
        submissions(report, ours)
        waiting(report, ours)


def compare(report: Report, name: str, ours: int, theirs: int, request: bytes, at_least: float, at_most: float) -> None:
    """The bars leave room for a loaded machine; what was measured is in the table of results."""
    pairs = [(asyncio.run(load(ours, request)), asyncio.run(load(theirs, request))) for _ in range(ROUNDS)]
    mine, other = [a for a, _ in pairs], [b for _, b in pairs]
    report.compare(
        f"{name}, requests",
        lambda: statistics.median(rate for rate, _ in mine),
        lambda: statistics.median(rate for rate, _ in other),
        beside="bare aiohttp",
        at_least=at_least,
        rounds=1,
    )
    for share in (0.5, 0.99):
        report.compare(
            f"{name}, latency p{share * 100:g}",
            lambda share=share: statistics.median(at(times, share) for _, times in mine),  # type: ignore[misc]
            lambda share=share: statistics.median(at(times, share) for _, times in other),  # type: ignore[misc]
            beside="bare aiohttp",
            unit="ms",
            at_most=at_most if share == 0.5 else None,
            rounds=1,
        )


def submissions(report: Report, port: int) -> None:
    """A write is an append to the journal: one by one, and many in one request."""

    def submit(number: int) -> bytes:
        job = JOB | {"job_id": f"s-{number}"}
        return post("/v1/submit", msgspec.json.encode({"submission": job}))

    rate, times = asyncio.run(load(port, submit, requests=1_000))
    report.value("POST /v1/submit on SQLite", rate, "per second")
    report.value("POST /v1/submit on SQLite, latency p99", at(times, 0.99), "ms")

    def many(number: int) -> bytes:
        jobs = [JOB | {"job_id": f"m-{number}-{n}"} for n in range(200)]
        return post("/v1/submit_many", msgspec.json.encode({"submissions": jobs}))

    batch, _ = asyncio.run(load(port, many, requests=20, connections=1))
    report.value("POST /v1/submit_many of 200 on SQLite, jobs", batch * 200, "per second")


def waiting(report: Report, port: int) -> None:
    """Those who wait, and those who listen, cost those who ask next to nothing."""

    async def story() -> tuple[float, float]:
        alone, _ = await load(port, get("/v1/leader"))
        held = [asyncio.create_task(one(port, get("/v1/job?job_id=j-1&wait_s=20"))) for _ in range(300)]
        streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(100)]
        for _, writer in streams:
            writer.write(get("/v1/events"))
        await asyncio.sleep(0.5)
        crowded, _ = await load(port, get("/v1/leader"))
        for task in held:
            task.cancel()
        await asyncio.gather(*held, return_exceptions=True)
        for _, writer in streams:
            writer.close()
        return alone, crowded

    pairs = [asyncio.run(story()) for _ in range(3)]
    report.compare(
        "GET /v1/leader while 300 wait and 100 listen",
        lambda: statistics.median(crowded for _, crowded in pairs),
        lambda: statistics.median(alone for alone, _ in pairs),
        beside="nobody waits",
        at_least=0.6,
        rounds=1,
    )


# A client that costs as little as can be: it writes bytes and reads a head and a body.


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()


def post(path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
    return head.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body


async def load(
    port: int, request: Any, *, requests: int = REQUESTS, connections: int = CONNECTIONS
) -> tuple[float, list[float]]:
    """Requests per second, and how long each took, in ms."""
    times: list[float] = []
    numbers = iter(range(requests))

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in numbers:
            begun = time.perf_counter()
            writer.write(request if isinstance(request, bytes) else request(number))
            await answer(reader)
            times.append((time.perf_counter() - begun) * 1_000)
        writer.close()

    begun = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(connections)))
    return requests / (time.perf_counter() - begun), sorted(times)


async def one(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        return await answer(reader)
    finally:
        writer.close()


async def answer(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(head.decode())
    length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
    return await reader.readexactly(length)


def at(times: list[float], share: float) -> float:
    return times[min(len(times) - 1, int(len(times) * share))]


async def prepare(port: int) -> None:
    for _ in range(600):
        try:
            await one(port, post("/v1/submit", msgspec.json.encode({"submission": JOB | {"job_id": "j-1"}})))
            return
        except (RuntimeError, OSError):
            await asyncio.sleep(0.1)
    raise RuntimeError("nobody leads")


# The two servers.


@contextmanager
def manager(folder: Path) -> Iterator[int]:
    """A whole manager on SQLite, with tokens and every limit; only the rate of one caller is out of the way."""
    tokens = folder / "tokens.toml"
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    tokens.write_text(f'[[tokens]]\nname = "bench"\nrole = "operator"\nsha256 = "{digest}"\n')
    with process(_manager, f"sqlite:///{folder}/bench.db", str(tokens)) as port:
        yield port


def _manager(ready: Connection, url: str, tokens: str) -> None:
    from tenure.control.admission import HttpLimits
    from tenure.nodes.manager.serving import ManagerSettings, serve

    settings = ManagerSettings(
        engine_url=url, name="bench", port=0, tokens_file=tokens, limits=HttpLimits(requests_per_s=1e6, burst=1e6)
    )

    async def main() -> None:
        await serve(
            settings,
            asyncio.Event(),
            on_ready=lambda address: ready.send(int(address.rpartition(":")[2])),
        )

    asyncio.run(main())


@contextmanager
def bare(body: bytes) -> Iterator[int]:
    with process(_bare, body) as port:
        yield port


def _bare(ready: Connection, body: bytes) -> None:
    from aiohttp import web

    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=body, content_type="application/json")

    async def main() -> None:
        app = web.Application()
        app.router.add_get("/{path:.*}", answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        ready.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(main())


@contextmanager
def process(target: Any, *arguments: Any) -> Iterator[int]:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    child = context.Process(target=target, args=(there, *arguments), daemon=True)
    child.start()
    try:
        if not here.poll(60):
            raise RuntimeError("the server did not start")
        yield here.recv()
    finally:
        child.terminate()
        child.join(10)
