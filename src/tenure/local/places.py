"""Where a function can be imported from by another process: a module's name, a file, or nowhere."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from tenure.work.registry import Workflow


def modules_of(workflows: Iterable[Workflow[..., Any]]) -> list[str] | str:
    """Returns the modules that slots must import to serve these workflows, or a text that says why they cannot."""
    found: dict[str, None] = {}
    for one in workflows:
        place = _place(one)
        if place is None:
            return f"{one.name} is defined where other processes cannot import it"
        found[place] = None
    return list(found)


def _place(one: Workflow[..., Any]) -> str | None:
    name = getattr(one.function, "__module__", None) or ""
    module = sys.modules.get(name)
    # A slot finds what stands at the top of a module, under whatever name.
    if module is None or not any(value is one for value in vars(module).values()):
        return None
    spec_name = _importable(module)
    if spec_name is not None:
        return spec_name
    file = getattr(module, "__file__", None)
    if not file or not file.endswith(".py") or not Path(file).is_file():
        return None  # typed into a prompt, a notebook or `python -c`
    return str(Path(file).resolve())


def _importable(module: ModuleType) -> str | None:
    """The dotted name under which anybody with our path imports this very file."""
    spec = getattr(module, "__spec__", None)
    name: str | None = spec.name if spec is not None else None
    if name is None or name == "__main__":
        return None
    name = name.removesuffix(".__main__") + ".__main__" if name.endswith(".__main__") else name
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None
    origin = getattr(module, "__file__", None)
    return name if found is not None and found.origin and found.origin == origin else None
