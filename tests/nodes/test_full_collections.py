"""Full collections of a node's process, each in a process of its own: the collector is one for all tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BEGIN = """
import gc, time, weakref
from tenure.nodes.full_collections import WHOLE_EVERY, collect_new_objects_only

class Node:
    def __init__(self):
        self.me = self

gc.collect()
collect_new_objects_only()
"""


def run(program: str) -> str:
    source = Path(__file__).resolve().parents[2] / "src"
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + program],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PYTHONPATH": str(source)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_full_collection_walks_through_what_came_since_the_last_one() -> None:
    walked = run("""
known = [[number] for number in range(100_000)]
gc.collect()
more = [[number] for number in range(50)]
print(len(gc.get_objects()))
""")
    assert int(walked) < 1_000


def test_a_cycle_that_came_since_is_found_at_once() -> None:
    assert run("gc.collect(); gone = weakref.ref(Node()); gc.collect(); print(gone())") == "None"


def test_a_cycle_that_was_set_aside_is_found_by_the_next_walk_through_everything() -> None:
    found = run("""
node = Node()
gc.collect()
gone = weakref.ref(node)
del node
alive = []
for _ in range(WHOLE_EVERY):
    alive.append(gone() is not None)
    gc.collect()
print(alive[1], gone())
""")
    assert found == "True None"


def test_a_second_call_changes_nothing() -> None:
    assert run("collect_new_objects_only(); print(len(gc.callbacks))") == "1"


def test_new_objects_that_live_for_a_moment_are_not_walked_through() -> None:
    walks = run("""
begun = [0]
gc.callbacks.append(lambda phase, about: begun.__setitem__(0, begun[0] + (phase == "start")))
for _ in range(100):
    held = [[number] for number in range(5_000)]
    del held
print(begun[0])
""")
    assert int(walks) == 0, "with the thresholds of Python it is hundreds"
