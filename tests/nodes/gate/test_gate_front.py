"""A gate's port is protected as a manager's is: TLS, tokens with roles, a refusal to be open to others."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import pytest
from tests.nodes.certificates import Authority

from tenure.control.async_caller import HttpCaller
from tenure.control.messages.gates import AskGate, GateView, TellGate
from tenure.control.messages.wire import Problem, ProblemKind
from tenure.control.tls import ClientTls, ServerTls
from tenure.errors import ConfigurationError, NodeUnavailableError
from tenure.logs import log_to
from tenure.nodes.gate.serving import GateNodeSettings, serve_gate

DATACENTERS = {"eu": ["https://127.0.0.1:9"]}


def test_a_gate_that_others_can_reach_wants_to_know_who_asks() -> None:
    with pytest.raises(ConfigurationError, match="TENURE_TOKEN"):
        GateNodeSettings(engine_url="memory://", name="g", datacenters=DATACENTERS, host="0.0.0.0")


def test_a_gate_serves_tls_and_keeps_roles(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(
        "".join(
            f'[[tokens]]\nname = "{name}"\nrole = "{role}"\nsha256 = "{hashlib.sha256(name.encode()).hexdigest()}"\n'
            for name, role in (("carl", "client"), ("nick", "node"))
        )
    )
    settings = GateNodeSettings(
        engine_url="memory://",
        name="g-1",
        datacenters=DATACENTERS,
        port=0,
        token="nick",
        tokens_file=str(tokens),
        tls=ServerTls(*authority.sign("server")),
    )

    async def main() -> None:
        stop, ready, said = asyncio.Event(), asyncio.get_running_loop().create_future(), []
        serving = asyncio.create_task(serve_gate(settings, stop, log=log_to(said.append), on_ready=ready.set_result))
        address = await asyncio.wait_for(ready, 60)
        assert address.startswith("https://127.0.0.1:")
        for token, kind in (("nick", None), ("carl", ProblemKind.DENIED), ("", ProblemKind.FORBIDDEN)):
            caller = HttpCaller(token=token, tls=ClientTls(ca=authority.file))
            asked = AskGate() if kind is None else TellGate(datacenter="eu", manager="m", words=())
            reply = await caller.ask(address, asked, 30)
            caller.close()
            if kind is None:
                assert isinstance(reply, GateView)
            else:
                assert isinstance(reply, Problem)
                assert reply.kind is kind
        with pytest.raises(NodeUnavailableError):
            await HttpCaller(token="nick", tls=ClientTls()).ask(address, AskGate(), 30)
        stop.set()
        await asyncio.wait_for(serving, 60)
        assert any('"audit":"refused"' in text for text in said)

    asyncio.run(main())
