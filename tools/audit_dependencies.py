"""Checks that no version which Tenure allows, and none that its lock names, has a known hole.

    python tools/audit_dependencies.py             # against requirements/advisories.toml; what the tests run
    python tools/audit_dependencies.py --online    # also against PyPI's own list, for floors and pinned versions; run it before a release

A floor is the lowest version that `pyproject.toml` allows: whoever installs Tenure beside other packages may get that one, and not the newest.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?(?:>=([0-9][0-9.]*))?$")


class Allowed(NamedTuple):
    """One version that somebody may get, and the file that allows it."""

    package: str
    version: str
    source: str


class Advisory(NamedTuple):
    package: str
    id: str
    fixed: str
    """The first version without the hole."""
    about: str


def number(version: str) -> tuple[int, ...]:
    parts = [int(part) for part in re.findall(r"\d+", version)[:4]]
    return tuple(parts + [0] * (4 - len(parts)))


def floors(text: str) -> list[Allowed]:
    """Returns the floors of the product's dependencies and extras. Raises `ValueError` for one without a floor."""
    project = tomllib.loads(text)["project"]
    extras = [one for group in project["optional-dependencies"].values() for one in group]
    found = []
    for one in [*project["dependencies"], *extras]:
        if one.startswith("tenure["):
            continue
        parsed = _REQUIREMENT.fullmatch(one)
        if parsed is None or parsed[2] is None:
            raise ValueError(f"{one!r} has no floor: write {one.partition('[')[0]}>=VERSION")
        found.append(Allowed(parsed[1].lower(), parsed[2], "pyproject.toml"))
    return found


def pinned(text: str) -> list[Allowed]:
    lines = (line.partition("==") for line in text.splitlines() if "==" in line and not line.startswith("#"))
    return [
        Allowed(name.strip().lower(), version.strip(), "requirements/constraints.txt") for name, _, version in lines
    ]


def advisories(text: str) -> list[Advisory]:
    return [Advisory(**one) for one in tomllib.loads(text)["advisory"]]


def holes(allowed: list[Allowed], known: list[Advisory]) -> Iterator[str]:
    for one in allowed:
        for hole in known:
            if hole.package == one.package and number(one.version) < number(hole.fixed):
                yield f"{one.source}: {one.package} {one.version} has {hole.id} ({hole.about}); fixed in {hole.fixed}"


def online(allowed: list[Allowed]) -> Iterator[str]:
    """Asks PyPI about each version. Raises `OSError` where it cannot be reached."""
    for one in allowed:
        url = f"https://pypi.org/pypi/{one.package}/{one.version}/json"
        try:
            with urllib.request.urlopen(url, timeout=20) as answer:
                found = json.load(answer).get("vulnerabilities", [])
        except urllib.error.HTTPError as error:
            if error.code == 404:  # a floor as `9` names no release of its own
                continue
            raise
        for hole in found:
            if not hole.get("withdrawn"):
                fixed = ", ".join(hole.get("fixed_in", [])) or "no version yet"
                yield f"{one.source}: {one.package} {one.version} has {hole['id']}; fixed in {fixed}"


def main(arguments: list[str]) -> int:
    allowed = floors((ROOT / "pyproject.toml").read_text())
    allowed += pinned((ROOT / "requirements" / "constraints.txt").read_text())
    found = list(holes(allowed, advisories((ROOT / "requirements" / "advisories.toml").read_text())))
    if "--online" in arguments:
        try:
            found += online(allowed)
        except OSError as error:
            print(f"PyPI cannot be asked: {error}")
            return 2
    print("\n".join(found) or f"{len(allowed)} allowed versions, none with a known hole")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
