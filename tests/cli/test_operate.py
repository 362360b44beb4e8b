"""`tenure dashboard` prints the address of the page, whoever asks."""

from __future__ import annotations

from click.testing import CliRunner
from tests.nodes.served import Served

from tenure.cli.operate import dashboard
from tenure.control.port_security import page_url


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
