"""Importing the modules that a worker was told to serve, by dotted name or by path."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from tenure.errors import ConfigurationError


def load_module(where: str) -> ModuleType:
    """Import `package.module`, or a file such as `app.py` or `jobs/app.py` (its folder comes onto the path)."""
    path = Path(where)
    if where.endswith(".py") or "/" in where:
        return _load_file(path)
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(where)
    except ModuleNotFoundError as error:
        if error.name is None or not where.startswith(error.name):
            raise  # something that the module imports is missing: its own traceback says what
        remedy = (
            f"Give its file: {path}.py"
            if Path(f"{where}.py").exists()
            else "Give a dotted name or a path to a .py file"
        )
        raise ConfigurationError(f"there is no module {where!r} to serve", remedy=remedy) from error


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigurationError(f"there is no file {path}", remedy="Give a dotted module name or a path to a .py file")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ConfigurationError(f"{path} cannot be imported", remedy="Give a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
