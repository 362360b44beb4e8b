"""A batch of prompts through a model: each answer is paid for once. The client is made once for a slot, and injected.

`pip install tenure[openai]`; a test of your own passes a client that answers by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any

from tenure import Context, injected, resource, workflow


@resource(per="slot")
def model() -> Iterator[Any]:
    from openai import OpenAI

    with OpenAI() as client:
        yield client


def ask(client: Any, name: str, prompt: str) -> str:
    answer = client.chat.completions.create(model=name, messages=[{"role": "user", "content": prompt}])
    return str(answer.choices[0].message.content)


@workflow(stall=180, max_attempts=5)
def answer_all(
    ctx: Context, prompts: dict[str, str], name: str = "gpt-5-mini", client: Annotated[Any, model] = injected
) -> dict[str, str]:
    return {
        key: ctx.step("ask", partial(ask, client), name, prompt, key=key) for key, prompt in ctx.track(prompts.items())
    }
