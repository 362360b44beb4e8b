"""One datacenter on this machine, as `tenure dev` runs it: a manager that stays, and a worker that comes anew with each change."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tenure.errors import WorkError
from tenure.local.embedded import engine_url
from tenure.local.lines import Begin
from tenure.local.process import HostProcess

Say = Callable[[str, str], None]
"""Who, and what."""


class Site:
    """`open`, `reload` as often as the code changes, `close`."""

    def __init__(self, folder: Path, modules: list[str], port: int, settings: dict[str, Any], say: Say) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.engine_url = engine_url(folder.resolve())
        self._modules, self._settings, self._say = modules, settings, say
        name = f"dev-{os.getpid()}"
        begin = Begin(engine_url=self.engine_url, name=name, port=port)
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
