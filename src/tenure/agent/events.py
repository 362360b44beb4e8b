"""The events of an agent's session, as data: requests, answers of the model, answers of tools.

A session is a list of these; the transcript that a model is sent, the budget that was spent and the calls that are still open are folds over
it. They are plain structs, so that a session is one JSON line per event on disk and in a checkpoint.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec


class Usage(msgspec.Struct, frozen=True):
    """Tokens that the provider counted. `cached_tokens` are the part of the input that it read from its cache."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
        )


NO_USAGE = Usage()


class ToolCall(msgspec.Struct, frozen=True):
    """One call that the model asked for; `arguments` is the JSON text as it came."""

    id: str
    name: str
    arguments: str = "{}"


UNREADABLE = (msgspec.DecodeError, UnicodeError, RecursionError)
"""The errors that reading the arguments of a call may raise: they are cut off or do not fit, hold half a character, or are nested without end. A model wrote them."""


class Finish(StrEnum):
    """Why the model stopped speaking."""

    STOP = "stop"
    TOOLS = "tools"
    LENGTH = "length"
    REFUSED = "refused"


class UserSaid(msgspec.Struct, frozen=True, tag_field="event", tag="user_said"):
    """The request of an evaluation."""

    prompt: str
    text: str
    request_id: str = ""
    """Tells the same words asked again from the same request delivered again."""


class Corrected(msgspec.Struct, frozen=True, tag_field="event", tag="corrected"):
    """We told the model that its answer cannot be used, and why. The model reads it as the user's words."""

    text: str


class ModelSaid(msgspec.Struct, frozen=True, tag_field="event", tag="model_said"):
    """One answer of the model."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    finish: Finish = Finish.STOP
    thoughts: tuple[dict[str, str], ...] = ()
    """Blocks of reasoning that the provider wants back as they came, signed; nobody else reads them."""


class ToolAnswered(msgspec.Struct, frozen=True, tag_field="event", tag="tool_answered"):
    """A tool answered a call; the text is what the model reads."""

    call: ToolCall
    text: str
    success: bool = True
    seconds: float = 0.0
    beats: int = 0
    made: bool = True
    """False for a call that was never made, because the evaluation was ended before it."""


class SectionsExpanded(msgspec.Struct, frozen=True, tag_field="event", tag="sections_expanded"):
    """From here on the prompt shows these sections in full."""

    keys: tuple[str, ...]
    why: str = ""


class StateSet(msgspec.Struct, frozen=True, tag_field="event", tag="state_set"):
    """A value that a tool, or `prepare`, keeps in the session."""

    key: str
    value: Any


class Stopped(msgspec.Struct, frozen=True, tag_field="event", tag="stopped"):
    """The evaluation was ended before the model had answered."""

    reason: str
    detail: str


Event = UserSaid | Corrected | ModelSaid | ToolAnswered | SectionsExpanded | StateSet | Stopped
