"""Judges whether an agent advances or spins. Pure: it takes events and says what they prove.

A tool call is a step when its name, arguments and result were not all seen before in this evaluation; a model's answer is a step when
it has tokens that no earlier answer had. An agent that takes a whole number of turns without a step is spinning, and the evidence names
what it repeated.
"""

from __future__ import annotations

import hashlib
from collections import Counter

import msgspec

from tenure.agent.events import UNREADABLE, Event, ModelSaid, ToolAnswered, ToolCall

IDLE_TURNS = 5
"""After this many turns in a row without a step, the agent is spinning."""
SHOWN_CHARS = 120
"""The evidence shows so many characters of a call, or of an answer, that was repeated."""


class ProgressJudge:
    """Remembers what was done, and tells steps from repetition."""

    def __init__(self, idle_turns: int = IDLE_TURNS) -> None:
        self.idle_turns = idle_turns
        self.steps = 0
        """The number of steps so far. It only grows."""
        self.idle = 0
        """The number of turns in a row that had no step."""
        self._steps_at_turn = 0
        self._answers: dict[tuple[str, str], str] = {}
        self._results: set[tuple[str, str, str]] = set()
        self._said: set[str] = set()
        self._streams: list[str] = []  # what was said, as it streamed: with the thoughts before it
        self._repeats: Counter[str] = Counter()

    def expects_news(self, call: ToolCall) -> bool:
        """Returns True when this call was not made before, so that running it can be a step."""
        return (call.name, canonical(call.arguments)) not in self._answers

    def tool_answered(self, call: ToolCall, text: str) -> bool:
        """Returns True when this result is a step: it was not seen for this call before."""
        arguments = canonical(call.arguments)
        digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        self._answers[call.name, arguments] = digest
        if (call.name, arguments, digest) in self._results:
            self._repeats[f"{call.name}({_short(arguments)}) -> {_short(text)}"] += 1
            return False
        self._results.add((call.name, arguments, digest))
        self.steps += 1
        return True

    def model_said(self, said: ModelSaid) -> bool:
        """Returns True when this answer has anything new. The conversation calls it once per turn, after the tools of the turn before."""
        words = spoken(said)
        self._streams.append("".join(block.get("thinking", "") for block in said.thoughts) + words)
        new = bool(words) and words not in self._said
        if new:
            self._said.add(words)
            # New words alone are a step only where no tool call stands behind them: an agent that says something new before
            # each repetition of the same call is spinning all the same.
            if not said.tool_calls:
                self.steps += 1
        elif not said.tool_calls:  # a repeated call is evidence by itself, with its result
            self._repeats[f"said {_short(words)!r}" if words else "said nothing"] += 1
        return new

    def turn_over(self) -> None:
        """Notes that all tool calls of a turn are answered."""
        self.idle = self.idle + 1 if self.steps == self._steps_at_turn else 0
        self._steps_at_turn = self.steps
        if self.idle == 0:
            self._repeats.clear()

    @property
    def advancing(self) -> bool:
        """True when the last turn had a step."""
        return self.idle == 0

    def spinning(self) -> str | None:
        """Returns the evidence that it spins, or None."""
        if self.idle < self.idle_turns:
            return None
        what = "; ".join(f"{thing}, {count} times again" for thing, count in self._repeats.most_common(3))
        return f"{self.idle} turns in a row without progress: {what}"

    def listen(self) -> Listener:
        """Returns a listener for one answer that is about to be streamed."""
        return Listener(self._streams)

    def replay(self, events: list[Event]) -> None:
        """Learn what an earlier delivery did, so that repeating it is known as that."""
        open_calls = 0
        for event in events:
            if isinstance(event, ModelSaid):
                self.model_said(event)
                open_calls = len(event.tool_calls)
                if not open_calls:
                    self.turn_over()
            elif isinstance(event, ToolAnswered):
                self.tool_answered(event.call, event.text)
                open_calls -= 1
                if open_calls == 0:
                    self.turn_over()


class Listener:
    """Tells new tokens from a repetition while they stream: as long as an earlier answer began the same way, nothing is new."""

    def __init__(self, earlier: list[str]) -> None:
        self._same = [words for words in earlier if words]
        self._at = 0

    def hears(self, chunk: str) -> bool:
        """Returns True when this chunk brought something new."""
        if not chunk:
            return False
        end = self._at + len(chunk)
        if self._same:
            self._same = [words for words in self._same if words.startswith(chunk, self._at)]
        self._at = end
        return not self._same


def spoken(said: ModelSaid) -> str:
    """Yields an answer as it streams: the text, then each call's name and arguments."""
    return said.text + "".join(call.name + call.arguments for call in said.tool_calls)


def canonical(arguments: str) -> str:
    """Returns one digest for arguments that differ only in the order of keys or in white space."""
    try:
        return msgspec.json.encode(msgspec.json.decode(arguments), order="sorted").decode()
    except UNREADABLE:
        return arguments


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SHOWN_CHARS else text[: SHOWN_CHARS - 1] + "…"
