"""Make a release: turn the changelog's "Unreleased" into a version, then build and check what is published.

    python tools/release.py prepare 0.2.0 2026-12-01    give CHANGELOG.md its section; commit it, then: git tag v0.2.0
    python tools/release.py build [FOLDER]              wheel, sdist and SBOM of this tree into dist/, checked

The version of a build is its tag's (`tools/release_version.py`). `build` refuses a tag whose version the changelog does not have.
"""

from __future__ import annotations

import email
import json
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.release_version import release_version  # noqa: E402  found through the line above

MOST_WHEEL_BYTES = 3_000_000
NEEDED = (
    "tenure/py.typed",
    "tenure/_version.py",
    "tenure/control/dashboard/index.html",
    "tenure/engines/sqlite/schema.sql",
    "tenure/contrib/django/management/commands/tenure_worker.py",
)
UNRELEASED = "## Unreleased\n"


def prepared(changelog: str, version: str, day: str) -> str:
    """Returns the changelog with its unreleased lines under a version, and an empty "Unreleased" above them."""
    if not re.fullmatch(r"\d+\.\d+\.\d+(rc\d+)?", version):
        raise SystemExit(f"{version!r} is no version: write 1.2.3 or 1.2.3rc1")
    if f"## {version} " in changelog:
        raise SystemExit(f"the changelog has {version} already")
    before, _, after = changelog.partition(UNRELEASED)
    if not after.partition("\n## ")[0].strip():
        raise SystemExit("nothing is unreleased: there is nothing to say about this version")
    return f"{before}{UNRELEASED}\n## {version} ({day})\n{after}"


def build(folder: Path) -> list[Path]:
    """Builds wheel, sdist and SBOM, and returns their paths. Raises SystemExit for what should not be published."""
    version = release_version()
    if "dev" not in version and f"## {version} " not in (ROOT / "CHANGELOG.md").read_text():
        raise SystemExit(f"CHANGELOG.md has no section {version}: python tools/release.py prepare {version} DAY")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    wheel, sdist = folder / f"tenure-{version}-py3-none-any.whl", folder / f"tenure-{version}.tar.gz"
    faults = [*wheel_faults(wheel), *sdist_faults(sdist)]
    if faults:
        raise SystemExit("\n".join(faults))
    listed = folder / f"tenure-{version}.cdx.json"
    listed.write_text(json.dumps(sbom(version), indent=1) + "\n")
    return [wheel, sdist, listed]


def wheel_faults(wheel: Path) -> list[str]:
    """Returns a sentence for each thing that is wrong with a wheel."""
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
        (about,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        told = email.message_from_bytes(packed.read(about))
    faults = [f"{wheel.name} has no {name}" for name in NEEDED if name not in names]
    faults += [f"{wheel.name} holds {name}" for name in sorted(names) if not name.startswith(("tenure/", "tenure-"))]
    if wheel.stat().st_size > MOST_WHEEL_BYTES:
        faults.append(f"{wheel.name} has {wheel.stat().st_size:,} bytes, and {MOST_WHEEL_BYTES:,} are the most")
    faults += [
        f"{wheel.name} says no {field}"
        for field in ("License-Expression", "Requires-Python", "Summary")
        if not told[field]
    ]
    return faults


def sdist_faults(sdist: Path) -> list[str]:
    """Returns a sentence for each thing that a source distribution lacks."""
    with tarfile.open(sdist) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    needed = (
        "PKG-INFO",
        "pyproject.toml",
        "tools/release_version.py",
        "src/tenure/__init__.py",
        "LICENSE",
        "CHANGELOG.md",
    )
    return [f"{sdist.name} has no {name}" for name in needed if name not in names]


def sbom(version: str) -> dict[str, Any]:
    """Returns the list of what an installation of the core brings, with licences, as CycloneDX 1.6 has it."""
    pinned = dict(line.split("==") for line in (ROOT / "requirements" / "constraints.txt").read_text().split())
    names = {name.lower().replace("_", "-"): number for name, number in pinned.items()}
    components = []
    for name in sorted(closure(project()["dependencies"])):
        licence = licence_of(name)
        components.append(
            {
                "type": "library",
                "name": name,
                "version": names.get(name, metadata.version(name)),
                "purl": f"pkg:pypi/{name}@{names.get(name, metadata.version(name))}",
                "licenses": [{"license": {"name": licence.splitlines()[0][:100]}}] if licence else [],
            }
        )
    product = {"type": "application", "name": "tenure", "version": version, "purl": f"pkg:pypi/tenure@{version}"}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": product},
        "components": components,
    }


def licence_of(name: str) -> str:
    """Returns the licence that a package states: as an expression, as text, or by a classifier."""
    about = metadata.metadata(name)
    stated = [about[field] for field in ("License-Expression", "License") if field in about]
    classified = [line.rpartition(" :: ")[2] for line in about.get_all("Classifier", []) if line.startswith("License")]
    return next((text for text in (*stated, *classified) if text), "")


def closure(requirements: list[str]) -> set[str]:
    """Returns the names of packages that these requirements bring here, those that they need included."""
    found: set[str] = set()
    waiting = list(requirements)
    while waiting:
        wanted = waiting.pop()
        if "extra ==" in wanted:
            continue
        name = re.split(r"[\s<>=!~;\[(]", wanted, maxsplit=1)[0].lower().replace("_", "-")
        try:
            needs = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue  # needed on another platform or Python only
        if name not in found:
            found.add(name)
            waiting += needs
    return found


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def main(arguments: list[str]) -> int:
    changelog = ROOT / "CHANGELOG.md"
    match arguments:
        case ["prepare", version, day]:
            changelog.write_text(prepared(changelog.read_text(), version, day))
            print(f"CHANGELOG.md has {version}. Commit it, then: git tag v{version}")
        case ["build", *where]:
            for path in build(Path(where[0] if where else ROOT / "dist").absolute()):
                print(path)
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
