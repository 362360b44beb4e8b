"""A hook of mkdocs: the site asks the network for nothing, so that it works from a folder. The theme would fetch one script from there."""

from __future__ import annotations

from typing import Any

FETCHED = "https://unpkg.com/iframe-worker/shim"
OURS = "assets/iframe_worker.js"


def on_post_page(output: str, page: Any, config: Any) -> str:
    return without_network(output, str(page.url))


def on_post_template(output_content: str, template_name: str, config: Any) -> str:
    return without_network(output_content, template_name)


def without_network(text: str, url: str) -> str:
    """Returns the page with our script in place of the fetched one; `url` is where the page is in the site."""
    return text.replace(FETCHED, "../" * url.count("/") + OURS)
