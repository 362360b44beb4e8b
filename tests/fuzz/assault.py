"""Sends many requests to one node over several connections at once, writes each down before it is sent, and judges each answer."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.grammar import Grammar

ANSWER_S = 120.0
"""A request that is held longer than this is not answered: no request of the fuzzer asks to be held for so long."""
Sent = tuple[str, bytes]
"""The name of an operation, and the body."""


@dataclass
class Outcome:
    """What became of an assault."""

    statuses: Counter[int] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    """Requests that were done, by operation."""
    failures: list[tuple[int, str]] = field(default_factory=list)
    """The place of a request in the log, and what was wrong with its answer."""

    @property
    def sent(self) -> int:
        return sum(self.statuses.values())

    def __str__(self) -> str:
        statuses = ", ".join(f"{status}: {count:,}" for status, count in sorted(self.statuses.items()))
        return f"{self.sent:,} requests ({statuses}); {len(self.accepted)} operations were done at least once"


class Log:
    """Requests in a file, in the order in which they were sent."""

    def __init__(self, path: Path) -> None:
        self.path, self._count = path, 0
        self._file = path.open("wb")

    def add(self, sent: Sent) -> int:
        name, body = sent
        self._file.write(f"{name} {len(body)}\n".encode() + body + b"\n")
        self._count += 1
        return self._count - 1

    def close(self) -> None:
        self._file.close()

    @staticmethod
    def read(path: Path) -> list[Sent]:
        found: list[Sent] = []
        data, place = path.read_bytes(), 0
        while place < len(data):
            end = data.index(b"\n", place)
            name, size = data[place:end].split()
            found.append((name.decode(), data[end + 1 : end + 1 + int(size)]))
            place = end + 2 + int(size)
        return found

    @staticmethod
    def write(path: Path, requests: Iterable[Sent]) -> None:
        log = Log(path)
        for one in requests:
            log.add(one)
        log.close()


class Connection:
    """One kept-alive HTTP connection. Opened again when the node has closed it."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, name: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the answer. Raises `OSError`, `EOFError` or `TimeoutError`."""
        async with asyncio.timeout(ANSWER_S):
            if self._writer is None:
                self._reader, self._writer = await asyncio.open_connection(self._host, self._port, limit=1 << 26)
            assert self._reader is not None
            head = f"POST /v1/{name} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            self._writer.write(head.encode() + body)
            await self._writer.drain()
            first = await self._reader.readuntil(b"\r\n\r\n")
            lines = first.decode("latin-1").split("\r\n")
            pairs = (line.split(":", 1) for line in lines[1:] if ":" in line)
            headers = {key.lower(): value.strip() for key, value in pairs}
            answer = await self._reader.readexactly(int(headers.get("content-length", "0")))
        if headers.get("connection") == "close":
            self.close()
        return int(lines[0].split()[1]), headers, answer

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None


class Assault:
    """Requests from an iterator to one address, `connections` at a time."""

    def __init__(self, address: str, log: Log, *, connections: int = 6) -> None:
        host, _, port = address.removeprefix("http://").rpartition(":")
        self._host, self._port, self._log, self._connections = host, int(port), log, connections
        self.outcome = Outcome()
        self._gone = 0

    def run(self, requests: Iterable[Sent], grammar: Grammar | None = None) -> Outcome:
        """Until the requests are used up. `grammar` learns which jobs were accepted."""

        async def main() -> None:
            shared = iter(requests)
            await asyncio.gather(*(self._send(shared, grammar) for _ in range(self._connections)))

        asyncio.run(main())
        return self.outcome

    async def _send(self, requests: Iterator[Sent], grammar: Grammar | None) -> None:
        connection = Connection(self._host, self._port)
        for sent in requests:
            if self._gone > 10:
                break  # nobody is there any more: the rest would only bury what mattered
            place = self._log.add(sent)
            try:
                status, headers, answer = await self._ask(connection, sent)
            except (OSError, EOFError, TimeoutError) as error:
                connection.close()
                self._gone += isinstance(error, ConnectionRefusedError)
                self.outcome.statuses[0] += 1
                self.outcome.failures.append((place, f"{sent[0]}: {type(error).__name__}: {error}"))
                continue
            self._judge(place, sent, status, headers, answer)
            if grammar is not None and sent[0] == "submit" and status == 200:
                with suppress(ValueError, KeyError, TypeError):
                    grammar.names.learn(json.loads(answer)["job_id"])
        connection.close()

    async def _ask(self, connection: Connection, sent: Sent) -> tuple[int, dict[str, str], bytes]:
        """Once more on a new connection, where the node closed the kept one: after a body that it did not read it may."""
        try:
            return await connection.ask(*sent)
        except (ConnectionError, asyncio.IncompleteReadError):
            connection.close()
            return await connection.ask(*sent)

    def _judge(self, place: int, sent: Sent, status: int, headers: dict[str, str], answer: bytes) -> None:
        self.outcome.statuses[status] += 1
        if status == 200:
            self.outcome.accepted[sent[0]] += 1
        if status < 500 or (status == 503 and b'"retryable":true' in answer):
            return
        self.outcome.failures.append((place, f"{sent[0]}: {status}: {answer[:500]!r}"))
