"""A prompt holds the sections that a model reads, some of them in summary until it asks for more, the tools, and the shape of the answer.

`ModelRequest` is one model call that a prompt and its session become; `PromptResponse` is the outcome of the whole evaluation.

Pure: a prompt and the set of expanded sections give the text. The session remembers which sections were expanded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, TypeVar, cast

import msgspec

from tenure.agent.calls import Hangup
from tenure.agent.events import NO_USAGE, Corrected, ModelSaid, ToolAnswered, Usage, UserSaid
from tenure.agent.tools import Tool, ToolContext, ToolResult, ToolUse, schema_of
from tenure.errors import ConfigurationError, VisibilityExpansionRequired

OutputT = TypeVar("OutputT")


class Visibility(StrEnum):
    """How a section is shown at first."""

    FULL = "full"
    SUMMARY = "summary"


@dataclass(frozen=True, slots=True)
class Section:
    """A titled part of a prompt. In summary it shows one line, and neither its body nor its tools nor its children."""

    key: str
    title: str
    body: str
    summary: str = ""
    visibility: Visibility = Visibility.FULL
    tools: tuple[Tool[Any, Any], ...] = ()
    children: tuple[Section, ...] = ()

    def __post_init__(self) -> None:
        if not self.key or not self.key.replace("-", "").replace("_", "").replace(".", "").isalnum():
            raise ConfigurationError(f"section key {self.key!r} must be letters, digits, '-', '_' and '.'")
        if self.visibility is Visibility.SUMMARY and not self.summary:
            raise ConfigurationError(f"section {self.key!r} is shown in summary, and has none", remedy="Give summary=")

    def collapsed(self, expanded: Set[str]) -> bool:
        return self.visibility is Visibility.SUMMARY and self.key not in expanded


@dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt as a model gets it."""

    system: str
    request: str
    tools: tuple[Tool[Any, Any], ...]
    output_schema: dict[str, Any] | None


@dataclass(frozen=True)
class Prompt(Generic[OutputT]):
    """One request to a model. `output` is `str` for plain text, or a type that the answer has to fit as JSON."""

    name: str
    request: str
    sections: tuple[Section, ...] = ()
    tools: tuple[Tool[Any, Any], ...] = ()
    output: type[OutputT] | Any = str
    output_schema: dict[str, Any] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "output_schema", None if self.output is str else schema_of(self.output))
        _unique("section", [section.key for section in _all(self.sections)])
        _unique("tool", [tool.name for section in _all(self.sections) for tool in section.tools] + self._own_names())

    def _own_names(self) -> list[str]:
        return [tool.name for tool in self.tools] + [OPEN_SECTIONS]

    def render(self, expanded: Set[str] = frozenset()) -> Rendered:
        """Returns the text, and the tools that the model may use now."""
        parts: list[str] = []
        tools = list(self.tools)
        hidden = [key for section in self.sections for key in _render(section, expanded, 2, parts, tools)]
        if hidden:
            tools.append(open_sections)
        return Rendered("\n\n".join(parts), self.request, tuple(tools), self.output_schema)

    def section_keys(self) -> frozenset[str]:
        return frozenset(section.key for section in _all(self.sections))

    def parse(self, text: str) -> OutputT:
        """Returns the model's last answer as the output type. Raises `msgspec.DecodeError`, whose message says where it does not fit."""
        if self.output is str:
            return cast(OutputT, text)
        parsed: OutputT = msgspec.json.decode(_bare_json(text), type=self.output)
        return parsed


@dataclass(frozen=True, slots=True)
class OpenSections:
    """Parameters of `open_sections`."""

    keys: list[str]
    why: str = ""


OPEN_SECTIONS = "open_sections"


def _open(params: OpenSections, *, context: ToolContext) -> ToolResult[str]:
    known = context.prompt.section_keys()
    unknown = [key for key in params.keys if key not in known]
    if unknown or not params.keys:
        return ToolResult.error(f"no such sections: {unknown}; there are {sorted(known)}")
    already = context.session.expanded
    wanted = tuple(key for key in params.keys if key not in already)
    if not wanted:
        return ToolResult.ok("these sections are open already: read them above")
    raise VisibilityExpansionRequired(wanted, params.why)


open_sections: Tool[OpenSections, str] = Tool(
    name=OPEN_SECTIONS,
    description="Show sections of the instructions in full that are given in summary, by their keys.",
    params=OpenSections,
    handler=_open,
)


def _render(
    section: Section, expanded: Set[str], level: int, parts: list[str], tools: list[Tool[Any, Any]]
) -> Iterator[str]:
    """Append what is shown; the keys of what is not."""
    heading = f"{'#' * level} {section.title}"
    if section.collapsed(expanded):
        parts.append(f"{heading} (summary)\n{section.summary}\n[In full: {OPEN_SECTIONS} with key {section.key!r}]")
        yield section.key
        return
    parts.append(f"{heading}\n{section.body}".rstrip())
    tools.extend(section.tools)
    for child in section.children:
        yield from _render(child, expanded, level + 1, parts, tools)


def _all(sections: tuple[Section, ...]) -> Iterator[Section]:
    for section in sections:
        yield section
        yield from _all(section.children)


def _unique(what: str, names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigurationError(f"{what} names that are used twice: {', '.join(twice)}", remedy="Rename one of each")


def _bare_json(text: str) -> str:
    """Returns the text without the fence that models like to put around JSON."""
    text = text.strip()
    if text.startswith("```") and text.endswith("```"):
        first, _, rest = text.partition("\n")
        if rest and first.removeprefix("```").strip() in ("", "json"):
            return rest.removesuffix("```").strip()
    return text


Turn = UserSaid | Corrected | ModelSaid | ToolAnswered
OnChunk = Callable[[str], None]
"""The provider calls it with each piece of the answer as it streams. The call ends when it raises."""


class StopReason(StrEnum):
    """Why an evaluation ended."""

    DONE = "done"
    BUDGET = "budget"  # a limit of the budget is reached
    DEADLINE = "deadline"
    SPINNING = "spinning"  # the same again and again
    TURNS = "turns"  # more model calls than one evaluation may make
    LENGTH = "length"  # the model's answer was cut off at its limit
    REFUSED = "refused"  # the model, or the provider's filter, will not answer
    OUTPUT = "output"  # the answer does not fit the output type, after all retries


@dataclass(frozen=True)
class PromptResponse(Generic[OutputT]):
    """The outcome of an evaluation. `output` is None unless it is `done`; then `detail` says what stopped it, with the evidence."""

    prompt_name: str
    text: str = ""
    output: OutputT | None = None
    stop: StopReason = StopReason.DONE
    detail: str = ""
    usage: Usage = NO_USAGE
    tool_calls: int = 0
    tools: Mapping[str, ToolUse] = field(default_factory=dict, compare=False)
    """Maps each tool to its calls on this request, earlier deliveries included."""

    @property
    def done(self) -> bool:
        return self.stop is StopReason.DONE


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One model call."""

    system: str
    turns: Sequence[Turn]
    tools: tuple[Tool[Any, Any], ...] = ()
    output_schema: dict[str, Any] | None = None
    output_name: str = "output"
    remaining_s: float = float("inf")
    """The seconds that are left of the deadline."""
    silence_s: float = 120.0
    """The longest wait for the next piece of the answer."""
    hangup: Hangup = field(default_factory=Hangup, repr=False, compare=False)
    """An adapter whose `complete` blocks tells it how to close the connection: `request.hangup.by(close)`."""
