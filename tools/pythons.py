"""Finds the Python interpreters of this machine by version.

`TENURE_PYTHONS` names more of them, separated by colons; then come those of pyenv, and those on the path.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

PROMISED = ("3.11", "3.12", "3.13")
"""The versions that the package names in its classifiers: the whole suite is green on each of them."""
HOPED_FOR = ("3.14",)
"""Versions for which some of our dependencies may have no wheels yet."""


def places(version: str) -> list[str]:
    """Paths at which a Python of this version may be."""
    named = [path for path in os.environ.get("TENURE_PYTHONS", "").split(":") if path]
    pyenv = sorted(map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python")), reverse=True)
    on_path = [str(Path(folder) / f"python{version}") for folder in os.environ.get("PATH", "").split(":") if folder]
    return [sys.executable, *named, *pyenv, *on_path]


@cache
def interpreter(version: str, module: str = "sys") -> str | None:
    """Returns a Python of this version that can import the module; None where there is none."""
    code = f"import sys, {module}; print('%d.%d' % sys.version_info[:2])"
    for path in places(version):
        if os.access(path, os.X_OK):
            done = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False)
            if done.stdout.strip() == version:
                return path
    return None
