"""Make a virtual environment with what a make target needs, from pinned wheels, and remember that it is done.

    python3 tools/bootstrap.py core|dev|servers|docs|frameworks [FOLDER]

Works with nothing but a Python: `venv` where the interpreter has `ensurepip`, otherwise `virtualenv`, otherwise `uv`,
both from PyPI. A second run with unchanged requirements touches nothing, so it also works offline.
"""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "requirements" / "constraints.txt"
FOLDERS = {"core": ".venv", "dev": ".venv", "servers": ".servers", "docs": ".docs", "frameworks": ".frameworks"}


def main() -> int:
    if sys.version_info < (3, 11):
        found = ".".join(map(str, sys.version_info[:3]))
        print(f"Tenure needs Python 3.11 or newer, and {sys.executable} is {found}.", file=sys.stderr)
        print("Name another one: make PYTHON=python3.12 ...", file=sys.stderr)
        return 2
    kind = sys.argv[1] if len(sys.argv) in (2, 3) else ""
    if kind not in FOLDERS:
        print(__doc__, file=sys.stderr)
        return 2
    environment = ROOT / (sys.argv[2] if len(sys.argv) == 3 else FOLDERS[kind])
    stamp = environment / f".ready-{kind}"
    wanted = fingerprint()
    if stamp.exists() and stamp.read_text() == wanted:
        return 0
    if environment.exists() and not any(environment.glob(".ready-*")):
        shutil.rmtree(environment)  # a set-up that was interrupted half-way
    python = environment / "bin" / "python"
    if not python.exists():
        create(environment)
    print(f"Installing Tenure's {kind} packages into {environment.name}/ (once) ...", flush=True)
    for arguments in installs(kind):
        install(python, arguments)
    stamp.write_text(wanted)
    return 0


def fingerprint() -> str:
    """What the environments depend on: a change in any of it installs again."""
    digest = hashlib.sha256(sys.version.encode())
    for path in (ROOT / "pyproject.toml", CONSTRAINTS, Path(__file__)):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def installs(kind: str) -> list[list[str]]:
    # hatchling goes first, so that the editable install needs no build environment of its own.
    build = ["hatchling", "editables"]
    if kind == "core":
        return [build, ["--no-build-isolation", "-e", str(ROOT)]]
    if kind == "dev":
        return [build, ["--no-build-isolation", "-e", f"{ROOT}[all]", *group("dev")]]
    return [group(kind)]


def group(name: str) -> list[str]:
    import tomllib

    data = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return list(data["dependency-groups"][name])


def create(environment: Path) -> None:
    if importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip"):
        done = subprocess.run([sys.executable, "-m", "venv", str(environment)], check=False)
        if done.returncode == 0:
            return
        shutil.rmtree(environment, ignore_errors=True)
    for command in (["virtualenv"], ["uv", "venv", "--seed"]):  # a tool that is here already needs no network
        if shutil.which(command[0]):
            made = subprocess.run([*command, "--python", sys.executable, str(environment)], check=False)
            if made.returncode == 0:
                return
            shutil.rmtree(environment, ignore_errors=True)
    tools = ROOT / ".bootstrap"
    for package, command in (("virtualenv", ["virtualenv"]), ("uv", ["uv", "venv", "--seed"])):
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(tools), package]
        if subprocess.run(pip, check=False).returncode != 0:
            continue
        run = [sys.executable, "-c", launcher(tools, command), str(environment)]
        if subprocess.run(run, check=False).returncode == 0:
            return
        shutil.rmtree(environment, ignore_errors=True)
    raise SystemExit(
        f"Cannot create {environment}: this Python has no ensurepip, and neither virtualenv nor uv could be had "
        "from PyPI.\nInstall your system's venv package (Debian: python3-venv) or pass PYTHON=/path/to/python."
    )


def launcher(tools: Path, command: list[str]) -> str:
    """Run a tool from a folder that is on nobody's path."""
    arguments = [sys.executable, "-m", *command]
    return (
        "import os, subprocess, sys;"
        f"os.environ['PYTHONPATH'] = {str(tools)!r};"
        f"sys.exit(subprocess.call({arguments!r} + ['--python', sys.executable, sys.argv[1]]))"
    )


def install(python: Path, arguments: list[str]) -> None:
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--only-binary", ":all:", "-c", str(CONSTRAINTS), *arguments]
    if subprocess.run(command, check=False).returncode != 0:
        raise SystemExit(f"Installing {' '.join(arguments)} failed; the lines above say why. Run make again to retry.")


if __name__ == "__main__":
    raise SystemExit(main())
