from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest

from tenure.agent import Prompt, Section, ToolContext, ToolResult, Visibility, tool
from tenure.errors import ConfigurationError


@dataclass(frozen=True)
class Path:
    path: str


@tool
def read(params: Path, *, context: ToolContext) -> ToolResult[str]:
    """Read a file.

    This part is for people.
    """
    return ToolResult.ok(params.path)


DETAILS = Section(
    "details", "Details", "All of it.", summary="There are details.", visibility=Visibility.SUMMARY, tools=(read,),
    children=(Section("deep", "Deep", "Deeper."),),
)  # fmt: skip
PROMPT = Prompt[str]("p", "Do it.", sections=(Section("rules", "Rules", "Be brief."), DETAILS))


def test_a_section_in_summary_hides_its_body_its_tools_and_its_children() -> None:
    rendered = PROMPT.render()
    assert rendered.system == (
        "## Rules\nBe brief.\n\n## Details (summary)\nThere are details.\n[In full: open_sections with key 'details']"
    )
    assert [tool.name for tool in rendered.tools] == ["open_sections"]


def test_an_expanded_section_shows_them_and_the_tool_to_open_sections_goes() -> None:
    rendered = PROMPT.render({"details"})
    assert rendered.system == "## Rules\nBe brief.\n\n## Details\nAll of it.\n\n### Deep\nDeeper."
    assert [tool.name for tool in rendered.tools] == ["read"]


def test_a_summary_has_to_be_there_to_be_shown() -> None:
    with pytest.raises(ConfigurationError, match="has none"):
        Section("a", "A", "body", visibility=Visibility.SUMMARY)


def test_names_of_sections_and_tools_are_unique() -> None:
    with pytest.raises(ConfigurationError, match="section names that are used twice: a"):
        Prompt("p", "x", sections=(Section("a", "A", ""), Section("b", "B", "", children=(Section("a", "A", ""),))))
    with pytest.raises(ConfigurationError, match="tool names that are used twice: read"):
        Prompt("p", "x", tools=(read, read))


@dataclass(frozen=True)
class Inner:
    n: int = 0


@dataclass(frozen=True)
class Out:
    title: str
    inner: Inner
    more: list[Inner]


def test_the_output_schema_has_no_references() -> None:
    schema = Prompt("p", "x", output=Out).output_schema
    assert schema is not None
    assert "$ref" not in msgspec.json.encode(schema).decode()
    assert schema["properties"]["inner"]["properties"]["n"]["type"] == "integer"


@pytest.mark.parametrize(
    "text",
    ['{"title":"t","inner":{"n":1},"more":[]}', '```json\n{"title":"t","inner":{"n":1},"more":[]}\n```'],
)
def test_an_answer_is_read_as_the_output_type_with_or_without_a_fence(text: str) -> None:
    assert Prompt("p", "x", output=Out).parse(text) == Out("t", Inner(1), [])


def test_an_answer_that_does_not_fit_says_where() -> None:
    with pytest.raises(msgspec.DecodeError, match=r"\$.inner.n"):
        Prompt("p", "x", output=Out).parse('{"title":"t","inner":{"n":"x"},"more":[]}')


def test_a_tool_takes_name_description_and_schema_from_its_function() -> None:
    assert (read.name, read.description, read.schema["required"]) == ("read", "Read a file.", ["path"])


def test_a_tool_without_a_description_or_typed_parameters_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no description"):

        @tool
        def silent(params: Path, *, context: ToolContext) -> ToolResult[str]:
            return ToolResult.ok("")

    with pytest.raises(ConfigurationError, match="no typed parameter"):

        @tool
        def untyped(params, *, context):  # type: ignore[no-untyped-def]
            """Says something."""


def test_a_type_that_contains_itself_is_refused_as_parameters() -> None:
    with pytest.raises(ConfigurationError, match="contains itself"):
        Prompt("p", "x", output=Tree)


@dataclass
class Tree:
    children: list[Tree]
