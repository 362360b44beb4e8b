"""Calls a script from an event loop, on the loop's own thread: the answer wakes the loop, and no thread in between.

A leader makes two appends for each job, and a caller waits for both. In a thread, each costs two wake-ups more than the round trip. Only what
cannot hold the loop up is called so: a short command, on a connection that is open and idle, to a server that is asked to wait for no replica.
`call_on_loop` returns None for anything else, and the caller makes the call in a thread, where it may wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from tenure.engines.redis.connections import NO_SCRIPT, Answer, RedisConnections, script
from tenure.engines.redis.session import NOT_YET, Argument, RedisAnswerLate, RedisFailure, RedisRefused, RedisSession
from tenure.errors import EngineUnavailableError

MOST_BYTES = 32_768
"""A longer command may not fit into the socket's buffer, and writing it would wait."""


async def call_on_loop(connections: RedisConnections, operation: str, values: Sequence[Argument]) -> Answer | None:
    """Returns the script's answer; None where nothing was asked, or the server does not know the script."""
    session = connections.idle_session(operation) if _size(values) <= MOST_BYTES else None
    if session is None:
        return None
    begun = connections.clock.monotonic()
    try:
        session.send(connections.command(script(operation), values))
        answer: Answer = await _answer_of(session, connections.settings.timeout_s)
    except RedisFailure as error:
        if isinstance(error, RedisRefused) and error.word == NO_SCRIPT:
            connections.give_back(session)
            return None
        (connections.drop if connections.is_broken(session, error) else connections.give_back)(session)
        translated = connections.translated(error, connections.where(operation), EngineUnavailableError)
        connections.note_failure(operation, translated)
        raise translated from error
    except BaseException:
        connections.drop(session)  # cancelled: its answer would be taken for that of the next call
        raise
    finally:
        connections.metrics.took(operation, connections.clock.monotonic() - begun)
    connections.give_back(session)
    connections.note_writes(answer[0])
    return answer


def _size(values: Sequence[Argument]) -> int:
    return sum(len(value) if isinstance(value, (str, bytes)) else 16 for value in values)


async def _answer_of(session: RedisSession, patience_s: float) -> Any:
    """Waits for the answer to the command that was sent."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Future[Any] = loop.create_future()

    def look() -> None:
        if arrived.done():
            return  # it was cancelled in this turn of the loop
        try:
            answer = session.arrived()
        except RedisFailure as error:
            arrived.set_exception(error)
        else:
            if answer is NOT_YET:
                return
            arrived.set_result(answer)
        loop.remove_reader(file)

    file = session.fileno()
    loop.add_reader(file, look)
    try:
        async with asyncio.timeout(patience_s):
            return await arrived
    except TimeoutError:
        session.close()
        raise RedisAnswerLate("Timeout reading from socket") from None
    finally:
        loop.remove_reader(file)
