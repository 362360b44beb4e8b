"""Models for the examples that need no key and no network: rules in place of a network of weights, behind a real HTTP server.

The examples talk to it through the providers' own SDKs. With `--base-url` and `--model` they talk to a real one instead.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tenure.agent import ModelSaid
from tenure.testing.model_server import ModelServer

Rule = Callable[[str, list[str]], ModelSaid]
"""From the request and the results of all tool calls so far to the next answer."""


def following(rule: Rule) -> Callable[[dict[str, Any]], ModelSaid]:
    """A model that follows a rule, in either provider's format."""

    def answer(request: dict[str, Any]) -> ModelSaid:
        asked, results = "", list[str]()
        for message in request["messages"]:
            content = message["content"]
            if message["role"] == "tool":
                results.append(content)
            elif message["role"] == "user":
                blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
                results += [block["content"] for block in blocks if block["type"] == "tool_result"]
                asked = next((block["text"] for block in blocks if block["type"] == "text"), asked)
        return rule(asked, results)

    return answer


def arguments(description: str) -> argparse.Namespace:
    """What every example takes from the command line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--base-url", help="of a real model; without it, a local one that follows rules is used")
    parser.add_argument("--model", default="local")
    parser.add_argument("--api-key", default="none")
    return parser.parse_args()


@contextmanager
def model_url(given: str | None, rule: Rule, *, openai: bool) -> Iterator[str]:
    """Where the model is: the one given, or a local one for as long as this lasts."""
    if given is not None:
        yield given
        return
    with ModelServer([following(rule)]) as server:
        yield server.openai_url if openai else server.url


def as_json(value: Any) -> str:
    return json.dumps(value)
