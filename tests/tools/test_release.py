"""A release: its version comes from the tag, the changelog has it, and what is published holds the product and nothing else."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from tools.release_version import release_version, version_of

from tools import release

ROOT = release.ROOT


@pytest.mark.parametrize(
    ("described", "version"),
    [
        ("v0.2.0-0-gabcdef1", "0.2.0"),
        ("v0.2.0rc1-0-gabcdef1", "0.2.0rc1"),
        ("v0.2.0-5-gabcdef1", "0.2.1.dev5"),
        ("v0.2.0rc1-2-gabcdef1", "0.2.0rc2.dev2"),
    ],
)
def test_a_version_comes_from_its_tag(described: str, version: str) -> None:
    assert version_of(described) == version


def test_a_tree_knows_its_version_with_and_without_tags(tmp_path: Path) -> None:
    assert release_version(tmp_path) == "0.1.0.dev0", "no Git, no tag"

    def git(*arguments: str) -> None:
        who = ["-c", "user.name=t", "-c", "user.email=t@t"]
        subprocess.run(["git", *who, "-C", str(tmp_path), *arguments], check=True, capture_output=True)

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "one")
    assert release_version(tmp_path) == "0.1.0.dev1"
    git("tag", "v1.2.3")
    assert release_version(tmp_path) == "1.2.3"
    git("commit", "-q", "--allow-empty", "-m", "two")
    assert release_version(tmp_path) == "1.2.4.dev1"
    with pytest.raises(ValueError, match="tag releases as"):
        version_of("v2-0-gabcdef1")


def test_the_changelog_is_turned_into_a_version_once() -> None:
    text = "# Changelog\n\n## Unreleased\n\n- New.\n"
    done = release.prepared(text, "0.1.0", "2026-12-01")
    assert done == "# Changelog\n\n## Unreleased\n\n## 0.1.0 (2026-12-01)\n\n- New.\n"
    with pytest.raises(SystemExit, match="already"):
        release.prepared(done, "0.1.0", "2026-12-01")
    with pytest.raises(SystemExit, match="nothing is unreleased"):
        release.prepared(done, "0.2.0", "2026-12-02")


def test_what_is_published_holds_the_product_and_imports_by_itself(tmp_path: Path) -> None:
    wheel, sdist, listed = release.build(tmp_path / "dist")
    assert sdist.exists()
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(tmp_path / "installed")
    code = f"import sys; sys.path.insert(0, {str(tmp_path / 'installed')!r}); import tenure; print(tenure.__version__, tenure.__file__)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert told == [release_version(), str(tmp_path / "installed" / "tenure" / "__init__.py")]
    found = json.loads(listed.read_text())
    assert {"msgspec", "aiohttp", "yarl", "click"} <= {one["name"] for one in found["components"]}
    assert all(one["licenses"] for one in found["components"])


def test_every_extra_is_used_and_every_optional_import_has_one() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    source = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    modules = {
        "nats-py": "nats",
        "opentelemetry-sdk": "opentelemetry.sdk",
        "opentelemetry-exporter-otlp-proto-http": "opentelemetry.exporter",
        "django-tasks": "django_tasks",
        "boto3": "botocore",
    }
    for extra, requirements in extras.items():
        for requirement in requirements if extra != "all" else ():
            name = re.split(r"[\[<>=;]", requirement)[0]
            module = modules.get(name, name)
            assert re.search(rf"(import|from) {re.escape(module)}\b|\"{re.escape(module)}[.\"]", source), (
                f"{extra}: nothing imports {module}"
            )
