from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest
from tools.reference_pages import ADVICE, PAGES, SETTINGS, fields_of, unit_of

from tenure import errors
from tenure.control.problems import problem

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", list(PAGES))
def test_the_pages_of_settings_and_errors_say_what_the_code_says(path: str) -> None:
    assert (ROOT / path).read_text() == PAGES[path](), "run python tools/reference_pages.py"


@pytest.mark.parametrize("title", list(SETTINGS))
def test_every_setting_has_a_unit_and_a_reason(title: str) -> None:
    module, name, _ = SETTINGS[title]
    kind = getattr(import_module(module), name)
    assert [field for field, _, why in fields_of(kind) if not why] == []
    times = [field for field, _, _ in fields_of(kind) if field.endswith(("_s", "_interval", "_after", "_delay"))]
    assert [field for field in times if unit_of(kind, field) not in ("s", "per second")] == []


def test_every_error_names_its_place_on_the_page() -> None:
    headings = set(re.findall(r"^## (\w+)$", (ROOT / "docs/errors.md").read_text(), re.MULTILINE))
    assert errors.ConfigurationError("x").page == "docs/errors.md#configurationerror"
    found = {one.__name__ for one in vars(errors).values() if isinstance(one, type) and issubclass(one, Exception)}
    assert found <= headings


def test_every_error_that_has_no_kinds_says_what_to_do() -> None:
    found = {one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, errors.TenureError)}
    leaves = {one for one in found if not any(other is not one and issubclass(other, one) for other in found)}
    assert sorted(one.__name__ for one in leaves if not (one.remedy or ADVICE.get(one.__name__))) == []
    assert sorted(set(ADVICE) - {one.__name__ for one in leaves}) == [], "there is no such error"
    assert sorted(name for name in ADVICE if vars(errors)[name].remedy) == [], "its own remedy is on the page"


def test_a_site_of_the_documentation_makes_a_link_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_DOCS", "https://docs.example.org/")
    assert errors.UnknownJobError("x").page == "https://docs.example.org/errors.html#unknownjoberror"


def test_a_refusal_of_a_node_leads_to_the_error_that_the_node_met() -> None:
    said = problem(errors.UnknownScheduleError("nightly"))
    assert said.page == "docs/errors.md#unknownscheduleerror"
    assert errors.NodeRefusedError(said.kind, said.fact, page=said.page).page == said.page
    assert errors.NodeRefusedError(said.kind, said.fact).page == "docs/errors.md#noderefusederror"
