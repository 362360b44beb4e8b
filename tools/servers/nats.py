"""A private NATS server with JetStream, alone or three of them as a cluster."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from tools.servers import binaries
from tools.servers.process import START_S, CannotStart, Server, free_port
from tools.servers.tls import Certificate


class Nats(Server):
    """One server. `config` is added to its configuration file as it is."""

    name = "nats"

    def __init__(
        self,
        *,
        member: str = "n1",
        config: str = "",
        password: str | None = None,
        sync_interval: str = "2m",
        tls: Certificate | None = None,
    ) -> None:
        super().__init__()
        self.member = member
        self.sync_interval = sync_interval  # the default: a killed process loses nothing that it wrote, a machine may
        self.config = config
        self.password, self.tls = password, tls
        self.monitor_port = 0
        self.route_port = 0
        self.routes: Sequence[int] = ()

    @property
    def url(self) -> str:
        return self.url_of()

    def url_of(self, *, port: int | None = None) -> str:
        """The server's URL; through a proxy, when its port is given."""
        secret = f"tenure:{self.password}@" if self.password else ""
        return f"nats://{secret}{self.host}:{port or self.port}"

    def monitor(self, path: str) -> Any:
        """What the monitoring port answers, e.g. `/jsz?streams=true`."""
        with urllib.request.urlopen(f"http://{self.host}:{self.monitor_port}{path}", timeout=2) as answer:
            return json.load(answer)

    def _choose_ports(self) -> None:
        super()._choose_ports()
        self.monitor_port = free_port()

    def _prepare(self) -> None:
        pass

    def _command(self) -> list[str]:
        lines = [
            f'server_name: "{self.member}"',
            f'listen: "{self.host}:{self.port}"',
            f'http: "{self.host}:{self.monitor_port}"',
            f'jetstream {{ store_dir: "{self.folder / "store"}", max_mem: 256MB, max_file: 4GB, '
            f'sync_interval: "{self.sync_interval}" }}',
        ]
        if self.password:
            lines.append(f'authorization {{ user: tenure, password: "{self.password}" }}')
        if self.tls:
            lines.append(f'tls {{ cert_file: "{self.tls.certificate}", key_file: "{self.tls.key}" }}')
        if self.routes:
            routes = ", ".join(f'"nats://{self.host}:{port}"' for port in self.routes)
            # no_advertise: a client that came through a proxy must not learn a way around it
            lines.append(
                f'cluster {{ name: tenure, listen: "{self.host}:{self.route_port}", routes: [{routes}], '
                "no_advertise: true }"
            )
        path = self.folder / "nats.conf"
        path.write_text("\n".join([*lines, self.config]) + "\n")
        return [str(binaries.find("nats-server")), "-c", str(path)]

    def _ready(self) -> bool:
        if self.routes:
            # The rest of the cluster is not there yet: whether it is whole, the cluster asks.
            return bool(self.monitor("/varz")["server_id"])
        try:
            return bool(self.monitor("/healthz")["status"] == "ok")
        except urllib.error.HTTPError:
            return False


class NatsCluster:
    """Three servers that replicate. `servers[i].kill()` and `.restart()` work on each."""

    name = "nats-cluster"

    def __init__(self, size: int = 3, *, password: str | None = None) -> None:
        self.servers = [Nats(member=f"n{number + 1}", password=password) for number in range(size)]

    @property
    def url(self) -> str:
        """All of them, as one URL with commas; `urls` has them one by one."""
        return ",".join(self.urls)

    @property
    def urls(self) -> list[str]:
        return [server.url for server in self.servers]

    def start(self) -> Self:
        routes = [free_port() for _ in self.servers]
        try:
            for server, port in zip(self.servers, routes, strict=True):
                server.route_port, server.routes = port, routes
                server.start()
            self.until_whole()
        except BaseException:
            self.stop()
            raise
        return self

    def until_whole(self) -> None:
        """Wait until every living server is healthy and they agree on a leader of the meta group."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            try:
                living = [server for server in self.servers if server.alive]
                leaders = {server.monitor("/jsz")["meta_cluster"].get("leader") for server in living}
                healthy = all(server.monitor("/healthz")["status"] == "ok" for server in living)
            except (OSError, KeyError):
                healthy, leaders = False, set()
            if healthy and len(leaders) == 1 and None not in leaders:
                return
            time.sleep(0.05)
        raise CannotStart(f"the NATS cluster did not form within {START_S:g} s: {self.servers[0].log()[-800:].strip()}")

    def leader_of(self, stream: str) -> Nats:
        """The server that leads a stream's group now."""
        for server in self.servers:
            if not server.alive:
                continue
            for account in server.monitor("/jsz?streams=true&accounts=true").get("account_details", ()):
                for detail in account.get("stream_detail", ()):
                    if detail["name"] == stream and (leader := detail.get("cluster", {}).get("leader")):
                        return next(one for one in self.servers if one.member == leader)
        raise LookupError(f"no living server knows a leader of stream {stream!r}")

    def stop(self) -> None:
        for server in self.servers:
            server.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
