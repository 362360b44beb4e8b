"""An async agent that follows links through a web site, keeps notes in its session, and answers with its sources.

python examples/research_agent.py
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from local_model import arguments, as_json, model_url

from tenure.agent import (
    AsyncMainLoop,
    MainLoopConfig,
    MainLoopRequest,
    MainLoopResult,
    ModelSaid,
    Prompt,
    Section,
    Session,
    ToolContext,
    ToolResult,
    tool,
)
from tenure.agent.providers import AsyncAnthropicAdapter
from tenure.agent.toolbox import WebFetcher, fetch_page
from tenure.engines import Engine
from tenure.testing.model import calls, says

PAGES = {
    "/": "A site about lighthouses. See /tall and /old.",
    "/tall": "The Jeddah Light is 133 metres tall. It was built in 1990.",
    "/old": "The Tower of Hercules was built in the first century and is still in use.",
}


@dataclass(frozen=True)
class Question:
    text: str
    start: str


@dataclass(frozen=True)
class Answer:
    text: str
    sources: list[str]


@dataclass(frozen=True)
class Note:
    source: str
    text: str


@tool
async def take_note(params: Note, *, context: ToolContext) -> ToolResult[str]:
    """Keep something worth knowing, with where it was found."""
    notes = [*context.session.get("notes", []), {"source": params.source, "text": params.text}]
    context.session.set("notes", notes)
    return ToolResult.ok(f"{len(notes)} notes")


class ResearchAgent(AsyncMainLoop[Question, Answer]):
    async def prepare(self, request: Question) -> tuple[Prompt[Answer], Session]:
        how = Section(
            "how", "How to work", "Start at the given page, follow its links, note what matters, then answer."
        )
        asked = f"{request.text} Start at {request.start}"
        return Prompt("research", asked, sections=(how,), tools=(fetch_page, take_note), output=Answer), Session()

    async def finalize(self, prompt: Prompt[Answer], session: Session) -> None:
        print(f"notes: {len(session.get('notes', []))}")


def rule(asked: str, results: list[str]) -> ModelSaid:
    """What the local model does: the start page, each of its links, a note for each, the answer."""
    start = asked.split("Start at ")[1]
    if not results:
        return calls(("fetch_page", {"url": start}))
    links = [start.rstrip("/") + link for link in re.findall(r"/(?:tall|old)\b", results[0])]
    if len(results) == 1:
        return calls(*(("fetch_page", {"url": link}) for link in links))
    texts = [re.findall(r'"text":"([^"]*)"', result)[0] for result in results[1 : 1 + len(links)]]
    if len(results) == 1 + len(links):
        return calls(*(("take_note", {"source": link, "text": text}) for link, text in zip(links, texts, strict=True)))
    return says(as_json({"text": " ".join(texts), "sources": links}))


class _Site(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = PAGES.get(self.path, "nothing here").encode()
        self.send_response(200 if self.path in PAGES else 404)
        self.send_header("content-type", "text/plain")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def site() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Site)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()


def main() -> None:
    options = arguments(__doc__ or "")
    with site() as start, model_url(options.base_url, rule, openai=False) as url, Engine.open("memory://") as engine:
        requests = engine.mailbox("questions", MainLoopRequest[Question], MainLoopResult[Answer])
        replies = engine.mailbox("answers", MainLoopResult[Answer])
        agent = ResearchAgent(
            adapter=AsyncAnthropicAdapter(options.model, base_url=url, api_key=options.api_key),
            requests=requests,
            config=MainLoopConfig(resources={WebFetcher: WebFetcher(private=True)}),  # the site is on this machine
        )
        requests.send(MainLoopRequest(Question("Which lighthouses stand out?", start)), reply_to=replies)
        agent.run(max_iterations=1)
        (reply,) = replies.receive()
        result = reply.body
    if result.output is None:
        sys.exit(f"no answer: {result.error}")
    print(result.output.text)
    print(f"  ({len(result.output.sources)} sources, {result.tool_calls} tool calls)")


if __name__ == "__main__":
    main()
