"""Twenty nodes of ours beside twenty Serf agents, in one run, at the same settings: deaths, CPU and bytes.

Both pools run at once, each in a network of its own, and lose nodes at the same moments.
"""

from __future__ import annotations

import os
import statistics

from tests.process.gossip.serf import find_serf

from bench.gossip_pools import Remote, can_isolate
from bench.harness import Line, Report

NODES = 20
KILLS = int(os.environ.get("TENURE_GOSSIP_KILLS", "12"))
IDLE_S = 20.0


def run(report: Report) -> None:
    binary, why = find_serf()
    if binary is None:
        print(f"SKIPPED: {why}")
        return
    isolated = can_isolate()
    ours, theirs = (Remote(kind, NODES, binary, isolated=isolated) for kind in ("ours", "serf"))
    try:
        measure(report, ours, theirs, isolated=isolated)
    except PeerFailed as why_not:
        print(f"NOT COMPARED: the pool of Serf agents could not go on, which says nothing of ours: {why_not}")
    finally:
        ours.end()
        theirs.end()


class PeerFailed(Exception):
    """What the peer's pool answered instead of a figure."""


def both(ours: Remote, theirs: Remote, do: str, **more: object) -> tuple[dict, dict]:
    """The same to both, at the same moment."""
    ours.ask(do, **more)
    theirs.ask(do, **more)
    mine = ours.answer()
    try:
        return mine, theirs.answer()
    except RuntimeError as error:
        raise PeerFailed(f"{do}: {error}") from error


def measure(report: Report, ours: Remote, theirs: Remote, *, isolated: bool) -> None:
    both(ours, theirs, "start")
    both(ours, theirs, "idle", seconds=5.0)  # the joins die down
    mine, other = both(ours, theirs, "idle", seconds=IDLE_S)
    against(report, "idle CPU of one node", 100 * mine["cpu_share"], 100 * other["cpu_share"], "%", 6.0)
    if isolated:
        against(report, "idle bytes of one node", mine["bytes_per_s"], other["bytes_per_s"], "bytes/s", 1.5)
    else:
        print("SKIPPED: bytes, for this machine gives no network namespace (unshare -rn)")
    against(report, "memory of one node", mine["rss_mib"], other["rss_mib"], "MiB", None)
    stopped, _ = both(ours, theirs, "stop", index=7, seconds=4.0)
    report.value("declared dead when stopped for 4 s", stopped["failed"], "nodes", most=0)
    first, last, wrong = [], [], 0
    for kill in range(KILLS):
        index = 2 + kill % (NODES - 2)
        mine, other = both(ours, theirs, "kill", index=index)
        first.append((mine["first_s"], other["first_s"]))
        last.append((mine["last_s"], other["last_s"]))
        wrong += mine["false_positives"]
        both(ours, theirs, "restart", index=index)
    for name, pairs in (("first to know of a kill -9", first), ("all know of a kill -9", last)):
        medians = [statistics.median(side) for side in zip(*pairs, strict=True)]
        against(report, f"{name}, median of {KILLS}", medians[0], medians[1], "s", 1.1)
    report.value("nodes wrongly declared dead meanwhile", wrong, "nodes", most=0)


def against(report: Report, name: str, ours: float, theirs: float, unit: str, bar: float | None) -> None:
    """A ratio of two figures that were taken at the same time."""
    ratio = ours / theirs
    ok = bar is None or ratio <= bar
    limit = "" if bar is None else f"<= {bar:g}x"
    report._add(Line(report.suite, name, ours, unit, theirs, "Serf 0.9.4", ratio, limit, ok))
