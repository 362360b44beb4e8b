"""`tenure token`: what is created lets in on all nodes, as far as it is bound; what is revoked lets nobody in, wherever it was written down."""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.nodes.gate.served import LoneGate
from tests.nodes.served import Served
from tests.patience import wait_until

from tenure.cli.token import token
from tenure.control.messages.operations import Role
from tenure.control.messages.tokens import CallerBounds
from tenure.control.port_security import Front


def cli(address: str, *words: str, admin: str = "admin") -> Result:
    return CliRunner().invoke(token, [*words, "--address", address, "--token", admin, "--patience", "20"])


def secret_of(made: Result) -> str:
    assert made.exit_code == 0, made.output
    return made.stderr.rpartition(" ")[2].strip()


def test_a_token_lets_in_on_every_node_of_its_engine_until_it_is_revoked(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/t.db"
    with (
        Served(engine_url=url, token="admin") as one,
        Served(engine_url=url, name="m-2", token="admin", leads=False) as two,
    ):
        made = cli(one.host, "create", "ci", "--queue", "ci/*", "--label", "team=ci", "--max-jobs", "3")
        secret = secret_of(made)
        wait_until(lambda: two.ask("/v1/leader", token=secret).status == 200)
        me = one.ask("/v1/me", token=secret).body
        assert me["bounds"] == {"queues": ["ci/*"], "labels": {"team": "ci"}, "max_jobs": 3}
        assert "submit" in me["may"]
        assert "overview" not in me["may"]
        rows = json.loads(cli(two.host, "list", "--json").stdout)["tokens"]
        assert [(row["name"], row["role"], row["source"], row["revoked"]) for row in rows] == [
            ("ci", "client", "engine", False)
        ]
        assert secret not in made.stdout
        assert cli(one.host, "create", "ci").exit_code == 1  # the name is in use
        assert cli(one.host, "create", "x", admin=secret).exit_code == 1  # a client creates no tokens
        revoked = cli(two.host, "revoke", "ci")
        assert revoked.exit_code == 0, revoked.output
        # 429 while it waited for the new token above, each look counted as a guess.
        assert two.ask("/v1/leader", token=secret).status in (401, 429)
        wait_until(lambda: one.ask("/v1/leader", token=secret).status == 401)
        assert "revoked" in cli(one.host, "list").stdout
        assert secret_of(cli(one.host, "create", "ci"))  # the name is free again
    with Served(engine_url=url, token="admin") as again:  # what was decided outlives the nodes
        assert again.ask("/v1/leader", token=secret).status == 401


def test_an_entry_of_a_file_and_a_waiting_request_end_with_the_revocation(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    known = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("olga", "carl")}
    roles = {"olga": "operator", "carl": "client"}
    entries = [{"name": name, "role": roles[name], "sha256": sha} for name, sha in known.items()]
    file.write_text(json.dumps({"tokens": entries}))
    with Served(tokens_file=str(file)) as node:
        submitted = {"submission": {"job_id": "j", "workflows": [{"name": "w"}]}}
        assert node.ask("/v1/submit", submitted, token="carl").status == 200
        assert cli(node.host, "revoke", known["carl"][:16], admin="olga").exit_code == 0
        assert node.ask("/v1/job?job_id=j", token="carl").status == 401
        assert node.ask("/v1/job?job_id=j", token="olga").status == 200


def test_a_node_that_lets_everybody_in_creates_no_tokens() -> None:
    with Served() as node:
        refused = cli(node.host, "create", "ci", admin="")
        assert refused.exit_code == 1
        assert "TENURE_TOKEN" in refused.output


def test_what_a_gate_is_told_of_tokens_counts_in_its_datacenters_also_in_one_that_was_away(tmp_path: Path) -> None:
    def manager(name: str, port: int = 0) -> Served:
        url = f"sqlite:///{tmp_path}/{name}.db"
        return Served(engine_url=url, name=f"m-{name}", datacenter=name, token="admin", port=port, term_s=1.0)

    with manager("a") as here, contextlib.ExitStack() as stack:
        away = stack.enter_context(manager("b"))
        gate = stack.enter_context(LoneGate({"a": [here.host], "b": [away.host]}, token="admin"))
        secret = secret_of(cli(gate.host, "create", "ci"))
        assert [node.ask("/v1/leader", token=secret).status for node in (gate, here, away)] == [200, 200, 200]
        assert gate.ask("/v1/queues?datacenter=b", token=secret).status == 200
        away.stop()
        revoked = cli(gate.host, "revoke", "ci")
        assert revoked.exit_code == 1
        assert "datacenter b has not done it" in revoked.stderr
        assert [node.ask("/v1/leader", token=secret).status for node in (gate, here)] == [401, 401]
        with manager("b", away.port) as back:
            wait_until(lambda: back.ask("/v1/leader", token=secret).status == 401)


def test_the_entry_lets_in_who_has_the_token_and_does_not_hold_it(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    secrets = {}
    for name, role in (("ci", "client"), ("ops", "operator")):
        made = CliRunner().invoke(token, ["create", name, "--role", role, "--entry"])
        assert made.exit_code == 0
        secrets[name] = made.stderr.rpartition(" ")[2].strip()
        with file.open("a") as out:
            out.write(made.stdout)
    book = Front(tokens_file=str(file)).book()
    found = {name: book.identify(secret) for name, secret in secrets.items()}
    assert {name: one and one.name for name, one in found.items()} == {"ci": "ci", "ops": "ops"}
    assert found["ops"] is not None
    assert Role.OPERATOR in found["ops"].roles
    assert not any(secret in file.read_text() for secret in secrets.values())
    assert all(len(secret) >= 43 for secret in secrets.values())


@pytest.mark.parametrize(
    ("options", "bounds"),
    [
        (["--role", "worker", "--worker", "gpu-*"], CallerBounds(worker="gpu-*")),
        (
            ["--queue", "a", "--queue", "b/*", "--label", "team=x=y", "--label", 'a "b"=ü', "--only-in", "eu"],
            CallerBounds(queues=("a", "b/*"), labels={"team": "x=y", 'a "b"': "ü"}, datacenter="eu"),
        ),
        (
            ["--max-jobs", "3", "--max-bytes", "1000", "--jobs-per-s", "0.5", "--days", "2"],
            CallerBounds(max_jobs=3, max_bytes=1_000, jobs_per_s=0.5),
        ),
    ],
)
def test_an_entry_says_what_its_options_say(tmp_path: Path, options: list[str], bounds: CallerBounds) -> None:
    made = CliRunner().invoke(token, ["create", "ci", *options, "--entry"])
    file = tmp_path / "tokens.toml"
    file.write_text(made.stdout)
    found = Front(tokens_file=str(file)).book().identify(secret_of(made))
    assert found is not None
    assert found.bounds == bounds


def test_a_name_that_cannot_be_one_is_refused() -> None:
    made = CliRunner().invoke(token, ["create", 'ci"\nrole = "operator', "--entry"])
    assert made.exit_code == 1
    assert "a token's name is" in made.output
