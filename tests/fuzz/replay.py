"""Replays requests that a fuzzer wrote down, on a fresh manager, and finds the few that it takes to break it.

python -m tests.fuzz.replay FILE            send them one after the other, and say what became of each that went wrong
python -m tests.fuzz.replay FILE --shrink   leave out what is not needed, and write the rest to FILE.small
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.fuzz.assault import Assault, Log, Sent
from tests.process.datacenter.conftest import Node

SETTLE_S = 2.0
"""A manager that was given its death by a request may need so long to die: couriers and schedules act later."""
SHRINK_S = 90.0


def reproduce(requests: Sequence[Sent], settle_s: float = SETTLE_S) -> str:
    """What goes wrong when these are sent, one after the other, to a manager that nobody else uses; empty when nothing does."""
    with tempfile.TemporaryDirectory(prefix="tenure-replay-") as name:
        folder = Path(name)
        url = f"sqlite:///{folder}/t.db"
        node = Node(folder, "m", "manager", "--engine", url, "--name", "m", "--port", "0", "--term", "4")
        try:
            while not (found := re.search(r"leads with epoch", node.said())) and node.process.poll() is None:
                time.sleep(0.05)
            found = re.search(r"listens on (\S+)", node.said())
            assert found is not None, node.said()
            log = Log(folder / "sent.log")
            outcome = Assault(found[1], log, connections=1 if len(requests) < 100 else 4).run(requests)
            log.close()
            until = time.monotonic() + settle_s
            while time.monotonic() < until and node.process.poll() is None:
                time.sleep(0.05)
            if node.process.poll() is not None:
                return f"the manager ended with {node.process.poll()}:\n{node.said()[-2_000:]}"
            return "\n".join(text for _, text in outcome.failures[:5])
        finally:
            node.kill()


def shrink(requests: Sequence[Sent], breaks: Callable[[Sequence[Sent]], str], seconds: float = SHRINK_S) -> list[Sent]:
    """Fewer of these requests that still break it: halves, then quarters, and so on, are left out, for so long at most."""
    kept, parts, until = list(requests), 2, time.monotonic() + seconds
    while len(kept) > 1 and time.monotonic() < until:
        size = -(-len(kept) // parts)
        for begin in range(0, len(kept), size):
            without = kept[:begin] + kept[begin + size :]
            if without and breaks(without):
                kept, parts = without, max(2, parts - 1)
                break
            if time.monotonic() >= until:
                break
        else:
            if size == 1:
                break
            parts = min(len(kept), parts * 2)
    return kept


def explain(log: Path, failures: Sequence[tuple[int, str]], seed: int) -> str:
    """For whoever sees a failed run: the requests that it takes, in a file, and how to send them again."""
    requests = Log.read(log)
    kept = Path(tempfile.mkdtemp(prefix="tenure-fuzz-")) / f"seed-{seed}.requests"
    # What came after the first failure was not needed for it.
    first = failures[0][0] if failures else len(requests) - 1
    until = requests[: first + 1]
    for few in (until[-1:], until[-300:], until):
        if few and (said := reproduce(few)):
            small = shrink(few, reproduce)
            Log.write(kept, small)
            lines = [f"POST /v1/{name} {body[:600]!r}" for name, body in small[:5]]
            break
    else:
        Log.write(kept, requests)
        said, lines = "it did not happen again on a fresh manager without workers", []
    return "\n".join([f"seed {seed}", *lines, said, f"replay: python -m tests.fuzz.replay {kept}"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--shrink", action="store_true")
    options = parser.parse_args()
    requests = Log.read(options.file)
    said = reproduce(requests)
    print(said or f"nothing went wrong with {len(requests):,} requests")
    if said and options.shrink:
        small = options.file.with_suffix(".small")
        Log.write(small, shrink(requests, reproduce))
        print(f"{len(Log.read(small))} requests are enough: {small}")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
