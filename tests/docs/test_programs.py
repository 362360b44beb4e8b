"""Each of the eight programs is shorter than the same with the peer that it comes from, and docs/programs.md has the counts."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAIRS = {
    "a FastAPI upload": ("real/upload_api", "peers/upload_api_celery"),
    "a mail after a sign-up, in Django": ("real/signup_mail", "peers/signup_mail_celery"),
    "a nightly ETL": ("real/nightly_etl", "peers/nightly_etl_celery"),
    "training of a model": ("real/train_model", "peers/train_model_celery"),
    "scraping": ("real/scrape", "peers/scrape_celery"),
    "video": ("real/encode_video", "peers/encode_video_celery"),
    "a batch of prompts": ("real/llm_batch", "peers/llm_batch_dbos"),
    "an approval": ("expense_approval", "peers/expense_approval_dbos"),
}
NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def code_lines(name: str) -> int:
    """Returns the lines with code: neither blank, nor comment, nor docstring. Imports and settings count."""
    text = (ROOT / "examples" / f"{name}.py").read_text()
    told: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node) is not None:
            told |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    used = {line for one in tokens if one.type not in NO_CODE for line in range(one.start[0], one.end[0] + 1)}
    return len(used - told)


@pytest.mark.parametrize("what", list(PAIRS))
def test_a_program_is_shorter_than_with_the_peer_that_it_comes_from(what: str) -> None:
    ours, theirs = PAIRS[what]
    assert code_lines(ours) < code_lines(theirs)
    peer = {"celery": "Celery", "dbos": "DBOS"}[theirs.rpartition("_")[2]]
    links = f"[{code_lines(ours)}](../examples/{ours}.py) | [{code_lines(theirs)}, {peer}](../examples/{theirs}.py)"
    assert f"| {what} | {links} |" in (ROOT / "docs/programs.md").read_text()
