"""A batch of prompts with DBOS: each answer is a step. What a step needs, the client, is a global of the process."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from dbos import DBOS, SetWorkflowID

DBOS(config={"name": "batch", "system_database_url": os.environ.get("DATABASE", "sqlite:///batch.sqlite")})


@cache
def model() -> Any:
    from openai import OpenAI

    return OpenAI(timeout=180)


@DBOS.step(retries_allowed=True, max_attempts=5, interval_seconds=1.0)
def ask(name: str, prompt: str) -> str:
    answer = model().chat.completions.create(model=name, messages=[{"role": "user", "content": prompt}])
    return str(answer.choices[0].message.content)


@DBOS.workflow()
def answer_all(prompts: dict[str, str], name: str = "gpt-5-mini") -> dict[str, str]:
    done: dict[str, str] = {}
    for number, (key, prompt) in enumerate(prompts.items(), 1):
        done[key] = ask(name, prompt)
        DBOS.set_event("progress", number / len(prompts))
    return done


def run(batch: str, prompts: dict[str, str]) -> dict[str, str]:
    DBOS.launch()
    with SetWorkflowID(batch):
        return DBOS.start_workflow(answer_all, prompts).get_result()
