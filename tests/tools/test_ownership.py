from __future__ import annotations

import ast

import pytest

from tools import ownership


@pytest.mark.parametrize(
    "code",
    [
        "import time",
        "from time import monotonic",
        "import random",
        "from random import shuffle",
        "import uuid",
        "import datetime\nx = datetime.datetime.now()",
        "import os\nx = os.urandom(4)",
    ],
)
def test_asking_the_machine_outside_the_owning_file_is_found(code: str) -> None:
    assert ownership.offences(ownership.SOURCE / "beat" / "lease.py", ast.parse(code))


@pytest.mark.parametrize("code", ["from random import Random", "# time.time()", "x = 'uuid4()'"])
def test_names_of_types_and_words_in_text_are_fine(code: str) -> None:
    assert not ownership.offences(ownership.SOURCE / "beat" / "lease.py", ast.parse(code))


def test_the_owner_may_ask() -> None:
    assert not ownership.offences(ownership.SOURCE / "clock.py", ast.parse("import time"))
