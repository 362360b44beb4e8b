"""The version of a build: the tag of its commit, `v0.2.0`, or the next patch's `.devN` when N commits came after the last tag.

hatchling imports this file when it builds (`[tool.hatch.version]` in pyproject.toml). A source distribution carries its version in PKG-INFO,
and hatchling reads that first. Without Git and without tags it is the first release's development version.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FIRST = "0.1.0"
_DESCRIBED = re.compile(r"v(\d+)\.(\d+)\.(\d+)((?:rc|a|b)\d+)?-(\d+)-g[0-9a-f]+")


def release_version(root: Path = ROOT) -> str:
    """Returns the version of the tree at `root`."""
    described = _git(root, "describe", "--tags", "--long", "--match", "v[0-9]*")
    return version_of(described) if described else f"{FIRST}.dev{_git(root, 'rev-list', '--count', 'HEAD') or 0}"


def version_of(described: str) -> str:
    """Returns the version for a line of `git describe --tags --long`. Raises ValueError for a tag that is no version."""
    found = _DESCRIBED.fullmatch(described)
    if found is None:
        raise ValueError(f"the tag in {described!r} is no version: tag releases as v1.2.3 or v1.2.3rc1")
    major, minor, patch, before, commits = found.groups()
    release = f"{major}.{minor}.{patch}"
    if commits == "0":
        return release + (before or "")
    # After a candidate comes the next candidate; after a release, the next patch.
    if before:
        kind, number = before.rstrip("0123456789"), int(before.lstrip("rcab"))
        return f"{release}{kind}{number + 1}.dev{commits}"
    return f"{major}.{minor}.{int(patch) + 1}.dev{commits}"


def _git(root: Path, *arguments: str) -> str:
    if not (root / ".git").exists():
        return ""  # also where the tree lies inside the repository of somebody else
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
