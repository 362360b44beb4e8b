"""`tenure dashboard` prints the address of the page, whoever asks."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from tests.nodes.served import Served

from tenure.cli.operate import dashboard, drain
from tenure.client.client import Client
from tenure.control.messages.jobs import Done
from tenure.control.messages.nodes import NodeList, WorkerNode
from tenure.control.port_security import page_url
from tenure.jobs.decisions import Outcome


def test_it_prints_the_address_of_a_node_that_answers_and_needs_no_token() -> None:
    with Served(token="secret") as node:
        done = CliRunner().invoke(dashboard, ["--no-open", "--patience", "5", "--address", f"127.0.0.1:1,{node.host}"])
        assert (done.exit_code, done.stdout) == (0, f"http://{node.host}/\n"), done.output
        assert node.ask("/").status == 200


def test_where_nobody_answers_it_says_so() -> None:
    done = CliRunner().invoke(dashboard, ["--no-open", "--patience", "1", "--address", "127.0.0.1:1"])
    assert done.exit_code == 3
    assert "127.0.0.1:1" in done.stderr


def test_an_address_to_listen_on_is_no_address_to_go_to() -> None:
    assert page_url("10.0.0.1:8470") == "http://10.0.0.1:8470/"
    assert page_url("https://m-1:8470") == "https://m-1:8470/"
    assert page_url("0.0.0.0:8470") == "http://127.0.0.1:8470/"


def test_a_scale_in_drains_those_that_have_the_least_to_lose(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = tuple(WorkerNode(name=f"w{number}", loss_s=loss) for number, loss in enumerate((90.0, 2.0, 700.0, 5.0)))
    gone = WorkerNode(name="gone", drained=True)
    asked: list[tuple[str, float | None]] = []

    def note(self: Client, node: str, reason: str = "", *, within_s: float | None = None, by: str = "") -> Done:
        asked.append((node, within_s))
        return Done(job_id="", outcome=Outcome.ACCEPTED, epoch=1, reason="1 attempts run there")

    monkeypatch.setattr(Client, "nodes", lambda self: NodeList(managers=(), workers=(*workers, gone), now=1.0))
    monkeypatch.setattr(Client, "drain", note)
    done = CliRunner().invoke(drain, ["--least", "2", "--within", "60", "--address", "127.0.0.1:1"])
    assert (done.exit_code, asked) == (0, [("w1", 60.0), ("w3", 60.0)]), done.output
    assert "w1: drained: accepted; 1 attempts run there" in done.stdout


def test_a_drain_names_a_worker_or_a_number_of_them() -> None:
    for words in ([], ["w1", "--least", "2"], ["--least", "2", "--undo"]):
        done = CliRunner().invoke(drain, [*words, "--address", "127.0.0.1:1"])
        assert done.exit_code == 2
        assert "--least" in done.stderr
