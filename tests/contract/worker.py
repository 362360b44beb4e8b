"""A process for the tests that kill processes: `python -m tests.contract.worker ROLE URL LOG NAME`.

What it did is written to LOG, a line of JSON each, in one write: what was written before a kill is there after it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from random import Random
from typing import Any

from tenure.clock import SystemClock
from tenure.engines import Engine
from tenure.errors import (
    EngineBusyError,
    EngineUnavailableError,
    KeyRefusedError,
    ReceiptHandleExpiredError,
    SequenceConflictError,
    StaleEpochError,
    TermLostError,
)

MESSAGES = 120
LEASE_S = 1.0
TTL_S = 0.6
Log = Callable[..., None]


def produce(engine: Engine, log: Log, name: str) -> None:
    """Send every key of `name`; started again after a kill it sends all of them again, and is refused."""
    mailbox, chance = engine.mailbox("work"), Random(name)
    for number in range(MESSAGES):
        key = f"{name}/{number}"
        try:
            mailbox.send(key, key=key, reply_to="replies")
        except KeyRefusedError:
            log(known=key)
        else:
            log(sent=key)
            time.sleep(chance.random() * 0.02)
    log(finished=name)


def consume(engine: Engine, log: Log, name: str) -> None:
    """Take, hold for a moment, settle; for ever."""
    mailbox, chance = engine.mailbox("work"), Random(name)
    while True:
        messages = mailbox.receive(chance.choice((1, 1, 3)), LEASE_S, 5.0)
        at = engine.clock.boottime()
        for message in messages:
            log(got=message.body, count=message.delivery_count, at=at, until=message.lease_until)
            time.sleep(chance.random() * 0.05)
            try:
                message.settle(message.body)
            except ReceiptHandleExpiredError:
                log(lost=message.body, count=message.delivery_count)
            else:
                log(settled=message.body, count=message.delivery_count)


def lead(engine: Engine, log: Log, name: str) -> None:
    """Campaign, and append while the term is safe; for ever."""
    election, journal, clock = engine.election("chief"), engine.journal("log"), engine.clock
    number = 0
    while True:
        term = election.campaign(name, TTL_S, above=journal.head().epoch)
        if term is None:
            time.sleep(0.02)
            continue
        log(elected=term.epoch)
        seq = journal.head().seq
        try:
            while clock.boottime() < term.safe_until:
                number += 1
                append_id = f"{name}-{number}"
                seq = journal.append([name.encode()], epoch=term.epoch, expect=seq, append_id=append_id)
                log(append_id=append_id, seq=seq, epoch=term.epoch)
                time.sleep(0.005)
                if number % 10 == 0:
                    term = election.renew(term)
        except (SequenceConflictError, StaleEpochError, TermLostError) as error:
            log(deposed=str(error))


ROLES = {"produce": produce, "consume": consume, "lead": lead}


def main(role: str, url: str, path: str, name: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def log(**fields: Any) -> None:
        os.write(file, json.dumps({"by": name, **fields}).encode() + b"\n")

    with Engine.open(url, clock=SystemClock()) as engine:
        while True:
            try:
                ROLES[role](engine, log, name)
            except (EngineBusyError, EngineUnavailableError) as error:
                log(retried=str(error))
                time.sleep(0.05)
            else:
                return


if __name__ == "__main__":
    main(*sys.argv[1:])
