"""A real manager on a real port, on the memory engine, in a thread of its own: what a client, or an attacker, meets."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from types import TracebackType
from typing import Any, NamedTuple

from tests.patience import wait_until

from tenure.control.tls import ClientTls
from tenure.logs import log_to
from tenure.nodes.manager.serving import ManagerSettings, serve

JSON = {"Content-Type": "application/json"}


class Answer(NamedTuple):
    status: int
    headers: Any
    body: Any


class Served:
    """`with Served() as node:` until it leads; `ask` is one request on a connection of its own."""

    def __init__(self, trust: ClientTls | None = None, *, leads: bool = True, **settings: Any) -> None:
        """`leads`: whether it is waited for until it does; one beside a leader never would."""
        self._settings = ManagerSettings(**{"engine_url": "memory://", "name": "m-1", "port": 0, **settings})
        self._leads = leads
        self._tls = trust or ClientTls()
        self.said: list[str] = []
        self.address = ""
        self._thread = threading.Thread(target=self._run)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ready = threading.Event()

    def __enter__(self) -> Served:
        self._thread.start()
        assert self._ready.wait(60), self.said
        if self._leads:
            wait_until(lambda: any("leads with epoch" in text for text in self.said))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        if self._thread.is_alive():
            assert self._loop is not None
            assert self._stop is not None
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        async def main() -> None:
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            await self._serve(self._stop)

        asyncio.run(main())

    async def _serve(self, stop: asyncio.Event) -> None:
        await serve(self._settings, stop, log=log_to(self.said.append), on_ready=self._listens)

    def _listens(self, address: str) -> None:
        self.address = address
        self._ready.set()

    @property
    def host(self) -> str:
        return self.address.rpartition("//")[2]

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def connection(self) -> http.client.HTTPConnection:
        context = self._tls.context_for(self.address)
        if context is None:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=60, context=context)

    def ask(
        self, path: str, body: Any = None, *, method: str = "", token: str = "", headers: dict[str, str] | None = None
    ) -> Answer:
        """A POST where there is a body; bytes are sent as they are."""
        connection = self.connection()
        given = dict(headers or {})
        if token:
            given["Authorization"] = f"Bearer {token}"
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        if data is not None:
            given.setdefault("Content-Type", "application/json")
        try:
            connection.request(method or ("GET" if data is None else "POST"), path, data, given)
            answer = connection.getresponse()
            text = answer.read()
            kind = answer.headers.get("Content-Type", "")
            return Answer(
                answer.status, answer.headers, json.loads(text) if text and kind == "application/json" else text
            )
        finally:
            connection.close()

    def audited(self, operation: str, **fields: str) -> dict[str, str]:
        """Returns the first audit line of an operation with these fields. Lines come in groups, a moment after the answers."""

        def found() -> list[dict[str, str]]:
            return [line for line in self.audit if {"operation": operation, **fields}.items() <= line.items()]

        return wait_until(found, f"an audit line of {operation}")[0]

    @property
    def audit(self) -> list[dict[str, str]]:
        return [json.loads(text.removeprefix("audit ")) for text in self.said if text.startswith("audit ")]
