"""Ids that nobody else has: not in another thread, and not in a forked child."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tenure.randomness import new_id


def test_ids_differ_in_all_threads_and_are_128_bits() -> None:
    with ThreadPoolExecutor(8) as threads:
        made = [one for many in threads.map(lambda _: [new_id() for _ in range(500)], range(8)) for one in many]
    assert len(set(made)) == 4_000
    assert {len(one) for one in made} == {32}
    assert all(int(one, 16) >= 0 for one in made)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_a_forked_child_has_none_of_the_ids_that_its_parent_holds_ready() -> None:
    new_id()  # the parent holds some ready
    theirs, ours = os.pipe()
    child = os.fork()
    if not child:
        os.write(ours, " ".join(new_id() for _ in range(100)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(ours)
    told = os.read(theirs, 65_536).decode().split()
    os.close(theirs)
    assert len(told) == 100
    assert not {new_id() for _ in range(100)} & set(told)
