"""Private servers for tests and benchmarks: real PostgreSQL, Valkey, Redis and NATS, and a proxy that breaks connections.

    with Postgres() as server:            # initdb, a free port, an unprivileged user when we are root
        engine = Engine.open(server.url)
        server.kill()                     # SIGKILL, as a crash
        server.restart()                  # same data, same port

Everything that is started is stopped by its own handle; a guard process does it when our own process is killed. Only
loopback addresses are used. The programs come from the `.servers` environment (`make servers`).
"""

from tools.servers.nats import Nats, NatsCluster
from tools.servers.pgbouncer import PgBouncer
from tools.servers.postgres import Postgres
from tools.servers.process import CannotStart, Server
from tools.servers.proxy import FaultProxy
from tools.servers.redis import Redis, TlsRedis, Valkey

__all__ = [
    "CannotStart",
    "FaultProxy",
    "Nats",
    "NatsCluster",
    "PgBouncer",
    "Postgres",
    "Redis",
    "Server",
    "TlsRedis",
    "Valkey",
]
