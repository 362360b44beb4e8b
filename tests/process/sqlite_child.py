"""What the processes of test_sqlite_processes.py do: `python -m tests.process.sqlite_child ACT URL [...]`.

Each prints one line of JSON, or writes lines to a ledger as it goes, so that a killed one has told all that it did.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import sqlite3
import sys
import time
from collections.abc import Callable
from os import _exit
from typing import Any

from tenure.clock import SystemClock
from tenure.engines.sqlite import SqliteEngine, open_sqlite
from tenure.errors import EngineError, EngineFullError, ReceiptHandleExpiredError

LEASE_S = 1.0


def tell(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


def opened(url: str) -> SqliteEngine:
    return open_sqlite(url, SystemClock())


def full_disk(url: str, limit: str) -> None:
    """Send until there is no room, make room, and send again."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), resource.RLIM_INFINITY))
    engine = opened(url)
    mailbox, sent = engine.mailbox("work"), 0
    error: EngineError | None = None
    while error is None:
        try:
            mailbox.send("x" * 3_000)
            sent += 1
        except EngineError as caught:
            error = caught
    still_readable = mailbox.approximate_count()
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    mailbox.send("after")
    tell(
        error=type(error).__name__,
        said=str(error),
        retryable=isinstance(error, EngineFullError) and error.retryable,
        sent=sent,
        readable=still_readable,
        after=mailbox.approximate_count(),
    )
    engine.close()


def full_from_the_start(url: str) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (8_192, resource.RLIM_INFINITY))
    report_opening(url)


def without_rights(url: str) -> None:
    """As a user who may read, and not write."""
    if os.geteuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    report_opening(url)


def report_opening(url: str) -> None:
    try:
        opened(url).close()
    except EngineError as error:
        tell(error=type(error).__name__, said=str(error))
    else:
        tell(error=None)


def hold(url: str, path: str) -> None:
    """Lock the whole file until told to let go."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("BEGIN EXCLUSIVE")
    tell(holding=True)
    sys.stdin.readline()
    connection.execute("COMMIT")
    connection.close()


def open_at_once(url: str, at: str) -> None:
    """Open a new file at the same moment as others do."""
    time.sleep(max(0.0, float(at) - time.time()))
    with opened(url) as engine:
        engine.mailbox("work").send(os.getpid())
    tell(ok=True)


def fork_while_waiting(url: str, count: str) -> None:
    """Parent and child go on with the same handles; a long poll was under way in another thread."""
    import threading

    engine = opened(url)
    mailbox, idle = engine.mailbox("work"), engine.mailbox("idle")
    threading.Thread(target=lambda: idle.receive(1, 60, 2), daemon=True).start()
    mailbox.send("before")
    (held,) = mailbox.receive(1, 600)
    child = os.fork()
    for number in range(int(count)):
        mailbox.send([child == 0, number])
    if child == 0:
        # The parent closes first: the child's log must not be taken away.
        sys.stdin.readline()
        for number in range(int(count)):
            mailbox.send([True, number + int(count)])
        held.acknowledge()  # a receipt is data: whoever has it may use it
        waited = mailbox.receive(1, 60, 5)
        tell(child_received=len(waited), child_column=engine.wakeups.column)
        engine.close()
        _exit(0)
    engine.close()
    print("closed", flush=True)
    _, status = os.waitpid(child, 0)
    tell(status=os.waitstatus_to_exitcode(status))


def fork_unseen(url: str) -> None:
    """Fork behind Python's back, as an embedding program might."""
    engine = opened(url)
    mailbox = engine.mailbox("work")
    mailbox.send("parent")
    child = ctypes.CDLL(None).fork()
    if child == 0:
        try:
            mailbox.send("child")
            _exit(1)
        except EngineError as error:
            _exit(42 if "forked" in str(error) else 2)
    _, status = os.waitpid(child, 0)
    mailbox.send("parent again")
    tell(status=os.waitstatus_to_exitcode(status), count=mailbox.approximate_count())
    engine.close()


def note(ledger: int, what: str, message: str, lease_until: float = 0.0) -> None:
    """One line, in one write: a kill leaves all of it or none. Times are boot time, as leases are."""
    now = SystemClock().boottime()
    os.write(ledger, f"{now:.6f} {what} {message} {os.getpid()} {lease_until:.6f}\n".encode())


def ledger_of(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def produce(url: str, ledger_path: str, first: str) -> None:
    ledger, mailbox = ledger_of(ledger_path), opened(url).mailbox("work")
    number = int(first)
    while True:
        note(ledger, "sending", str(number))
        mailbox.send(number)
        note(ledger, "sent", str(number))
        number += 1


def consume(url: str, ledger_path: str) -> None:
    ledger, mailbox = ledger_of(ledger_path), opened(url).mailbox("work")
    while True:
        for message in mailbox.receive(3, LEASE_S, 5):
            note(ledger, "got", str(message.body), message.lease_until)
            try:
                message.acknowledge()
            except ReceiptHandleExpiredError:
                note(ledger, "late", str(message.body))
            else:
                note(ledger, "acknowledged", str(message.body))


def echo(url: str, count: str) -> None:
    """Answer when a message arrived, in the machine's monotonic time."""
    with opened(url) as engine:
        mailbox = engine.mailbox("work")
        tell(ready=True)
        for _ in range(int(count)):
            (message,) = mailbox.receive(1, 60, 30)
            arrived = time.monotonic()
            message.acknowledge()
            tell(arrived=arrived)


ACTS: dict[str, Callable[..., None]] = {
    act.__name__: act
    for act in (
        full_disk,
        full_from_the_start,
        without_rights,
        report_opening,
        hold,
        open_at_once,
        fork_while_waiting,
        fork_unseen,
        produce,
        consume,
        echo,
    )
}

if __name__ == "__main__":
    ACTS[sys.argv[1]](*sys.argv[2:])
