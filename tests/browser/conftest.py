"""A real browser before a real datacenter. Where no browser can be had, every test says so and why."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.browser.devtools import Browser, browser
from tests.patience import wait_until
from tests.process.datacenter.conftest import Datacenter, Node
from tools.servers.chromium import environment, program
from tools.servers.process import CannotStart

APP = Path(__file__).parent / "app.py"

Look = Callable[[Callable[[Browser], Awaitable[Any]]], Any]


@pytest.fixture(scope="session")
def look() -> Look:
    """Runs a story with a browser of its own."""
    try:
        chromium = program()
    except CannotStart as reason:
        pytest.skip(f"no browser: {reason}")

    def run(story: Callable[[Browser], Awaitable[Any]]) -> Any:
        async def main() -> Any:
            async with browser(chromium, environment(chromium)) as one:
                return await story(one)

        return asyncio.run(main())

    return run


class Place(Datacenter):
    """A datacenter for somebody who looks at it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.files = 0

    def serve(self, *options: str) -> Node:
        arguments = (str(APP), "--engine", self.url, "--managed", "--grace", "0.5", *options)
        node = Node(self.folder, f"worker-{len(self.workers)}", "worker", *arguments)
        self.workers.append(node)
        return node

    def page(self, name: str, path: str = "") -> str:
        return f"http://{self.addresses[name]}/{path}"

    def gate_file(self) -> Path:
        """A file that is not there yet."""
        self.files += 1
        return self.folder / f"told-{self.files}"

    def until_said(self, words: str) -> None:
        wait_until(lambda: words in self.said(), why=self.said)

    def end(self) -> None:
        for node in self.workers:
            node.signal(signal.SIGTERM)
        for node in self.workers:
            with contextlib.suppress(subprocess.TimeoutExpired):  # after a test that failed it may hold work
                node.process.wait(20)
        self.close()


@pytest.fixture(scope="module")
def _tree() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
        yield


@pytest.fixture(scope="module")
def new_place(_tree: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Place]]:
    made: list[Place] = []

    def make() -> Place:
        made.append(Place(tmp_path_factory.mktemp("place")))
        return made[-1]

    yield make
    for place in made:
        place.end()
