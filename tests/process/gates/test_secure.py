"""Mutual TLS and tokens with roles, from client to gate, gate to gate, gate to manager and back: real processes, certificates made here."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from examples.demo.cluster import Node
from tests.nodes.certificates import Authority
from tests.patience import wait_until

from tenure.client.client import Client
from tenure.control.async_caller import HttpCaller
from tenure.control.messages.gates import AskDatacenter, Forward
from tenure.control.messages.nodes import DrainNode, ListNodes, NodeList, UndrainNode
from tenure.control.messages.wire import Problem, ProblemKind
from tenure.control.tls import ClientTls
from tenure.errors import NodeRefusedError, NodeUnavailableError, UntrustedPeerError
from tenure.jobs import JobState, JobSubmission, WorkflowSpec

APP = str(Path(__file__).parent / "app.py")
ROLES = {"carl": "client", "olga": "operator", "nick": "node", "wanda": "worker"}
DEAD = "https://127.0.0.1:1"


class Secure:
    """A manager, a worker and two gates, each with a certificate of its own and a token with the role that it needs."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.authority = folder, Authority(folder)
        self.nodes: dict[str, Node] = {}
        self.tokens = folder / "tokens.toml"
        entries = (
            f'[[tokens]]\nname = "{name}"\nrole = "{role}"\nsha256 = "{hashlib.sha256(name.encode()).hexdigest()}"\n'
            for name, role in ROLES.items()
        )
        self.tokens.write_text("".join(entries))

    def shown(self, name: str) -> dict[str, str]:
        """What a program shows to others, and whom it trusts."""
        pair = self.authority.sign(name)
        return {"TENURE_CA": self.authority.file, "TENURE_CERT": pair.cert, "TENURE_KEY": pair.key}

    def start(self, name: str, *arguments: str, token: str, secure: bool = True) -> Node:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("TENURE_")}
        path = os.pathsep.join(path for path in sys.path if path)
        trusted = self.shown(name) if secure else {"TENURE_CA": self.authority.file}
        environment = {**kept, "PYTHONPATH": path, "TENURE_TOKEN": token, **trusted}
        log = self.folder / f"{name}.log"
        with log.open("wb") as output:
            command = [sys.executable, "-m", "tenure", *arguments]
            process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
        self.nodes[name] = Node(name, process, log)
        return self.nodes[name]

    def listen(self, name: str, kind: str, *arguments: str) -> str:
        """The address of a node that wants certificates and tokens."""
        pair = self.authority.sign(f"{name}-server")
        port = ["--name", name, "--port", "0", "--term", "2", "--tokens", str(self.tokens)]
        tls = ["--tls-cert", pair.cert, "--tls-key", pair.key, "--tls-client-ca", self.authority.file]
        node = self.start(name, kind, *port, *tls, *arguments, token="nick")
        self.until(lambda: bool(node.said(r"listens on (\S+)")), f"{name} listens")
        return node.said(r"listens on (\S+)")

    def until(self, true: Callable[[], object], what: str) -> None:
        logs = lambda: "\n".join(f"--- {node.name}\n{node.log.read_text()[-2000:]}" for node in self.nodes.values())  # noqa: E731
        wait_until(true, lambda: f"{what}\n{logs()}")


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    made = Secure(tmp_path_factory.mktemp("secure"))
    try:
        yield made
    finally:
        for node in made.nodes.values():
            node.end()


@pytest.mark.slow
def test_a_job_goes_through_where_everybody_shows_a_certificate_and_a_token_and_nobody_else_gets_in(
    secure: Secure, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = f"sqlite:///{secure.folder / 'eu.db'}"
    worker = ["--engine", engine, "--managed", "--slots", "1", "--lease", "10", "--name", "worker"]
    secure.start("worker", "worker", APP, *worker, token="wanda")
    manager = secure.listen("manager", "manager", "--engine", engine, "--datacenter", "eu", "--report", "0.5")
    known = ["--datacenter", f"eu={manager}", "--probe", "0.2", "--probe-timeout", "5"]
    alone = ["--name", "rogue", "--port", "0", "--engine", f"sqlite:///{secure.folder / 'rogue.db'}"]
    rogue = secure.start("rogue", "gate", *alone, *known, token="nick", secure=False)
    known += ["--engine", f"sqlite:///{secure.folder / 'gates.db'}"]
    gates = [secure.listen("gate-1", "gate", *known)]
    gates.append(secure.listen("gate-2", "gate", *known, "--peer", gates[0]))
    for name, value in secure.shown("laptop").items():
        monkeypatch.setenv(name, value)

    # A job through a dead address, one gate that passes on and one that leads: over TLS all the way, and back.
    for addresses in ([DEAD, *gates], [gates[0]], [gates[1]]):
        with Client(addresses, token="carl", patience_s=180) as client:
            job = client.submit("render", frames=3)
            assert job.wait(180) == 3
            assert client.job(job.id).state is JobState.COMPLETED
            kinds = [link.kind for link in job.events()]
            assert (kinds[0], kinds[-1]) == ("GateJobAccepted", "GateJobEnded")

    # An operator's word passes through the gate, whose own token is a node's; a client's does not.
    with Client(gates, token="olga") as operator:
        nodes = operator.ask(ListNodes())
        assert isinstance(nodes, NodeList)
        assert [(one.name, one.datacenter) for one in nodes.workers] == [("worker", "eu")]
        operator.ask(DrainNode(node="worker", reason="new kernel", datacenter="eu"))
        operator.ask(UndrainNode(node="worker", datacenter="eu"))
    with Client(gates, token="carl") as client, pytest.raises(NodeRefusedError, match="needs the role operator"):
        client.ask(DrainNode(node="worker"))

    # A manager reports to `gate_addr` with its own token: a client that could set it would be sent that token.
    stolen = JobSubmission(job_id="stolen", workflows=(WorkflowSpec(name="render"),), gate_addr=("127.0.0.1", 1))
    with Client(manager, token="carl") as client, pytest.raises(NodeRefusedError, match="only gates set it"):
        client.submit_job(stolen)

    # A node's token alone is no operator's, whatever it forwards.
    drain = Forward(name="drain", body=msgspec.Raw(msgspec.json.encode(DrainNode(node="worker"))), by="nick")
    with Client(manager, token="nick") as node, pytest.raises(NodeRefusedError, match="without a token that has it"):
        node.ask(drain)

    # No certificate, the wrong authority, a wrong token: each is told what is missing at once, for all the patience that they have.
    with (
        Client(gates, token="mallory", patience_s=600) as stranger,
        pytest.raises(NodeRefusedError, match="Set TENURE_TOKEN"),
    ):
        stranger.jobs()
    monkeypatch.delenv("TENURE_CERT")
    monkeypatch.delenv("TENURE_KEY")
    with (
        Client(gates, token="carl", patience_s=600) as bare,
        pytest.raises(UntrustedPeerError, match="set TENURE_CERT and TENURE_KEY"),
    ):
        bare.jobs()
    monkeypatch.setenv("TENURE_CA", Authority(secure.folder, "elsewhere").file)
    with (
        Client(gates, token="carl", patience_s=600) as astray,
        pytest.raises(UntrustedPeerError, match="set TENURE_CA"),
    ):
        astray.jobs()

    # Managers let in no client where nodes speak, and a gate without a certificate says why it hears nothing.
    async def as_client() -> Problem:
        caller = HttpCaller(token="carl", tls=ClientTls(*secure.shown("other-laptop").values()))
        try:
            reply = await caller.ask(manager, AskDatacenter(), 30)
        finally:
            caller.close()
        assert isinstance(reply, Problem)
        return reply

    assert asyncio.run(as_client()).kind is ProblemKind.DENIED
    secure.until(lambda: "does not answer to us" in rogue.log.read_text(), "the rogue gate says what is wrong")
    assert "set TENURE_CERT and TENURE_KEY" in rogue.log.read_text()

    def drains() -> list[dict[str, str]]:
        lines = secure.nodes["manager"].log.read_text().splitlines()
        audits = [json.loads(line.partition("audit ")[2]) for line in lines if "audit {" in line]
        return [one for one in audits if one.get("operation") == "drain"]

    drained = wait_until(drains, "the audit line of the drain")[0]
    assert (drained["about"], drained["by"]) == ("worker", "nick: olga")
    with pytest.raises(NodeUnavailableError):
        Client([manager.replace("https://", "http://")], token="carl", patience_s=1).jobs()
