"""openapi-python-client, which writes a client from an OpenAPI document, in a folder of its own: it brings a dozen packages that nothing else here needs.

python -m tools.servers.client_generator    fetch it now (`make servers`), so that tests need no network later
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tools.servers import packages
from tools.servers.process import CannotStart

VERSION = "0.29.1"
PLACE = f"openapi-python-client-{VERSION}-{sys.implementation.cache_tag}"
"""One for each Python: some of its packages are compiled."""


def generate(document: Path, output: Path) -> subprocess.CompletedProcess[str]:
    """Write the client of a document into a new folder. Raises `CannotStart` where the generator cannot be had."""
    place = packages.unpacked(PLACE, _fetch)
    settings = output.with_suffix(".yaml")
    settings.write_text("post_hooks: []\n")  # formatters are not what is asked about
    words = [
        "generate",
        "--path",
        str(document),
        "--output-path",
        str(output),
        "--meta",
        "none",
        "--config",
        str(settings),
    ]
    return subprocess.run(
        [sys.executable, "-c", "from openapi_python_client.cli import app; app()", *words],
        env={**os.environ, "PYTHONPATH": str(place)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def _fetch(place: Path) -> None:
    wanted = f"openapi-python-client=={VERSION}"
    packages.run([sys.executable, "-m", "pip", "install", "--quiet", "--target", str(place), wanted], place)


if __name__ == "__main__":
    try:
        packages.unpacked(PLACE, _fetch)
    except CannotStart as error:
        sys.exit(str(error))
