"""From any state, with every message on its way lost and no further fault: does it still come to its end?

The fair schedule: leaders check and report, the gate answers, checks and sends, datacenters answer. Round after round
until nothing changes. First at the present time: whatever was decided, or reported as timed out, must by then be true
everywhere. Then after the deadline: everything must have ended.
"""

from __future__ import annotations

from tests.worlds.jobs.cast import Cast
from tests.worlds.jobs.scene import DATACENTERS, DEADLINE_TICK

ROUNDS = 12


class Settling:
    """Remembers what it found: many states of the search differ only in what is on its way."""

    def __init__(self, cast: Cast) -> None:
        self.cast = cast
        self._found: dict[tuple[int, int, int, int], str | None] = {}

    def broken(self, first: int, second: int, gate: int, tick: int) -> str | None:
        """The promise that is broken from here, or None."""
        key = (first, second, gate, tick)
        if key not in self._found:
            self._found[key] = self._judge(first, second, gate, tick)
        return self._found[key]

    def _judge(self, first: int, second: int, gate: int, tick: int) -> str | None:
        cast = self.cast
        settled, broken = self.quiesce([first, second, gate], tick)
        if broken:
            return broken
        before = (first, second)
        decided = cast.gate_views[gate].decided or any(cast.views[book].by_decision for book in before)
        waiting = any(cast.views[book].waiting for book in before)
        if (decided or waiting) and (open_ := self.unfinished(settled, tick)):
            what = (
                "no accepted decision is forgotten" if decided else "it always settles: a reported timeout is decided"
            )
            return f"{what}; all messages arrive from here on, and still {open_}"
        if tick < DEADLINE_TICK:
            later = [cast.age_book(settled[0], DEADLINE_TICK), cast.age_book(settled[1], DEADLINE_TICK)]
            settled, broken = self.quiesce([*later, cast.age_gate(settled[2], DEADLINE_TICK)], DEADLINE_TICK)
            if broken:
                return broken
            tick = DEADLINE_TICK
        if open_ := self.unfinished(settled, tick):
            return f"it always settles; all messages arrive from here on, the deadline has passed, and still {open_}"
        return None

    def quiesce(self, nodes: list[int], tick: int) -> tuple[list[int], str | None]:
        """Fair rounds until nothing changes."""
        nodes = list(nodes)
        for _ in range(ROUNDS):
            before = tuple(nodes)
            broken = self._round(nodes, tick)
            if broken:
                return nodes, broken
            if tuple(nodes) == before:
                return nodes, None
        return nodes, f"it always settles: it goes round and round for {ROUNDS} rounds"

    def _round(self, nodes: list[int], tick: int) -> str | None:
        cast = self.cast
        for who, name in enumerate(DATACENTERS):
            view = cast.views[nodes[who]]
            if view.state is not None and not view.state.terminal:
                step = cast.check(nodes[who], name, tick)
                nodes[who] = step.state
                if step.broken:
                    return step.broken
            letter = cast.report(nodes[who], name, tick)
            if letter is not None and (broken := self._carry(nodes, [letter], tick)):
                return broken
        step = cast.gate_check(nodes[2], tick)
        nodes[2] = step.state
        if step.broken:
            return step.broken
        for letter in cast.gate_owes(nodes[2]):
            if broken := self._carry(nodes, [letter], tick):
                return broken
        return None

    def _carry(self, nodes: list[int], letters: list[int], tick: int) -> str | None:
        """Deliver a message, and every answer to it."""
        cast = self.cast
        while letters:
            letter_id = letters.pop()
            letter = cast.letters[letter_id]
            if letter.to_gate:
                step = cast.deliver_to_gate(nodes[2], letter_id, tick)
                nodes[2] = step.state
            else:
                who = DATACENTERS.index(letter.datacenter)
                step = cast.deliver_to_datacenter(nodes[who], letter_id, tick)
                nodes[who] = step.state
            if step.broken:
                return step.broken
            letters += step.letters
        return None

    def unfinished(self, nodes: list[int], tick: int) -> str:
        """What has not ended; empty when everything has, and everybody who must know knows."""
        cast = self.cast
        # A gate that lost its journal cannot know of a job that no datacenter runs any more.
        lost = not cast.gate_views[nodes[2]].known
        for who, name in enumerate(DATACENTERS):
            state = cast.views[nodes[who]].state
            if state is None and lost:
                continue
            if state is None or not state.terminal:
                return f"the job is {state or 'unknown'} in {name}"
            if cast.report(nodes[who], name, tick) is not None:
                return f"{name} has not heard that the gate knows"
        if not lost and not cast.gate_views[nodes[2]].ended:
            return "it has not ended at the gate"
        return ""
