"""Imports the modules that a worker serves, by dotted name or by path.

A script that starts a datacenter of its own (`with embedded(...)`) is served too: its import ends where that part begins, and what was
defined before it stands.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from tenure.errors import ConfigurationError

_being_served: list[str] = []
"""The module that this process imports in order to serve it. Slots import in their main thread, before they do anything else."""


class MainPartReached(BaseException):
    """Ends the import of a script at the place where it would start what is already running. No `except Exception` stops it."""


def end_of_definitions() -> None:
    """Called by what only a program's main part does. Raises inside a slot that imports the program; returns elsewhere."""
    if _being_served:
        raise MainPartReached(_being_served[-1])


def load_module(where: str) -> ModuleType:
    """Import `package.module`, or a file such as `app.py` or `jobs/app.py` (its folder comes onto the path)."""
    path = Path(where)
    if where.endswith(".py") or "/" in where:
        return _load_file(path)
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        with _serving(where):
            return importlib.import_module(where)
    except MainPartReached:
        spec = importlib.util.find_spec(where)
        if spec is None:
            raise ConfigurationError(f"there is no module {where!r} to serve") from None
        return _execute(spec, where)
    except ModuleNotFoundError as error:
        if error.name is None or not where.startswith(error.name):
            raise  # something that the module imports is missing: its own traceback says what
        known = Path(f"{where}.py").exists()
        remedy = f"Give its file: {path}.py" if known else "Give a dotted name or a path to a .py file"
        raise ConfigurationError(f"there is no module {where!r} to serve", remedy=remedy) from error


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigurationError(f"there is no file {path}", remedy="Give a dotted module name or a path to a .py file")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None:
        raise ConfigurationError(f"{path} cannot be imported", remedy="Give a Python file")
    return _execute(spec, path.stem)


def _execute(spec: ModuleSpec, name: str) -> ModuleType:
    if spec.loader is None:
        raise ConfigurationError(f"{name} cannot be imported", remedy="Give a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with _serving(name):
            spec.loader.exec_module(module)
    except MainPartReached:
        pass  # everything above the main part is defined
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


@contextmanager
def _serving(name: str) -> Iterator[None]:
    _being_served.append(name)
    try:
        yield
    finally:
        _being_served.pop()
