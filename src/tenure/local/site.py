"""The nodes that `tenure dev` runs on this machine: datacenters, each a manager that stays and a worker that restarts with each change, and a gate before them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tenure.errors import WorkError
from tenure.local.embedded import engine_url
from tenure.local.lines import Begin
from tenure.local.process import HostProcess

Say = Callable[[str, str], None]
"""The name of the node that printed the line, and the line."""


class Site:
    """`open`, `reload` as often as the code changes, `close`."""

    def __init__(
        self, folder: Path, modules: list[str], port: int, settings: dict[str, Any], say: Say, *, name: str = "local"
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.name, self.engine_url = name, engine_url(folder.resolve())
        self._modules, self._settings, self._say = modules, settings, say
        begin = Begin(engine_url=self.engine_url, name=f"dev-{os.getpid()}", port=port, datacenter=name)
        self._manager = HostProcess(begin, lambda text: say("manager", text.removeprefix("manager: ")))
        self._worker: HostProcess | None = None

    @property
    def address(self) -> str:
        return self._manager.address

    def open(self) -> None:
        """Both start at once; raises `WorkError` where the manager cannot."""
        self._manager.start()
        self._begin_work()
        self._manager.until_up()

    def work_begins(self) -> bool:
        """Wait for the worker; False, and said, when its modules cannot be served."""
        assert self._worker is not None
        try:
            self._worker.until_up()
        except WorkError as error:
            self._say("worker", str(error))
            return False
        return True

    def reload(self) -> bool:
        """Hand over what runs to a worker with the new code: it goes on from its checkpoint."""
        if self._worker is not None:
            self._worker.close()
        self._begin_work()
        return self.work_begins()

    @property
    def alive(self) -> bool:
        return self._manager.alive

    def close(self) -> None:
        try:
            if self._worker is not None:
                self._worker.close()
        finally:
            self._manager.close()

    def _begin_work(self) -> None:
        begin = Begin(
            engine_url=self.engine_url,
            name=f"dev-worker-{os.getpid()}",
            manager=False,
            modules=self._modules,
            settings=self._settings,
        )
        self._worker = HostProcess(begin, lambda text: self._say("worker", text))
        self._worker.start()


class Gateway:
    """The gate before several sites, once they listen."""

    name = "gate"

    def __init__(self, folder: Path, port: int, say: Say) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._engine_url, self._port, self._say = engine_url(folder.resolve()), port, say
        self._process: HostProcess | None = None

    @property
    def address(self) -> str:
        return self._process.address if self._process is not None else ""

    def open(self, sites: Iterable[Site]) -> None:
        """Raises `WorkError` where it cannot start."""
        begin = Begin(
            engine_url=self._engine_url,
            name=f"dev-gate-{os.getpid()}",
            port=self._port,
            datacenters={site.name: [site.address] for site in sites},
        )
        self._process = HostProcess(begin, lambda text: self._say("gate", text.removeprefix("gate: ")))
        self._process.start()
        self._process.until_up()

    @property
    def alive(self) -> bool:
        return self._process is None or self._process.alive

    def close(self) -> None:
        if self._process is not None:
            self._process.close()
