"""A drip campaign: a mail now, another after three days, a last one after a week; whoever answers gets no more of them.

python examples/drip_campaign.py   (submits one and shows what it waits for: the days pass in tests/testing/test_waiting_examples.py)
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from tenure import embedded, workflow

MAILS = (("welcome", 3.0), ("how it works", 4.0), ("last call", 7.0))
"""Each mail, and the days for which its answer is waited for."""
DAY_S = 86_400.0
sent: list[str] = []


def send_mail(to: str, subject: str) -> str:
    sent.append(f"{subject} to {to}")
    return sent[-1]


@workflow
def campaign(ctx: Any, to: str) -> str:
    for subject, days in MAILS:
        ctx.step("mail", send_mail, to, subject, key=subject)
        try:
            answer = ctx.wait_event("answered", timeout=days * DAY_S, key=subject)
        except TimeoutError:
            continue
        return f"{to} answered {answer!r} after {subject!r}"
    return f"{to} never answered"


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        embedded(Path(folder), workflows=[campaign], slots=1, mode="threads") as datacenter,
    ):
        job = datacenter.submit(campaign, to="ada@example.com")
        job.signal("answered", "tell me more")
        print(job.wait(timeout=60))


if __name__ == "__main__":
    main()
