"""The API of real manager processes: TLS, tokens and their reload, and a stream of events that a lost leader does not tear."""

from __future__ import annotations

import hashlib
import http.client
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.nodes.certificates import Authority
from tests.patience import wait_until
from tests.process.datacenter.conftest import Datacenter

from tenure.client.client import Client
from tenure.control.messages.job_output import GetLogs, LogPage
from tenure.control.tls import ClientTls
from tenure.engines import Engine
from tenure.jobs.states import JobState

JOBS = 30


class Listener(threading.Thread):
    """Follows events as a client does: when a stream ends, it resumes at the next manager from its last cursor."""

    def __init__(self, addresses: list[str], tls: ClientTls, token: str) -> None:
        super().__init__(daemon=True)
        self.addresses, self._tls, self._token = addresses, tls, token
        self.cursor, self.connected = "0", 0
        self.events: list[tuple[str, Any]] = []
        self.gaps: list[str] = []
        self.stopped = threading.Event()

    def run(self) -> None:
        turn = 0
        while not self.stopped.is_set():
            try:
                self._follow(self.addresses[turn % len(self.addresses)])
            except (OSError, http.client.HTTPException):
                self.stopped.wait(0.05)
            turn += 1

    def _follow(self, address: str) -> None:
        host, _, port = address.removeprefix("https://").rpartition(":")
        connection = http.client.HTTPSConnection(host, int(port), timeout=30, context=self._tls.context())
        with closing(connection):
            headers = {"Authorization": f"Bearer {self._token}", "Last-Event-ID": self.cursor}
            connection.request("GET", "/v1/events", headers=headers)
            with closing(connection.getresponse()) as answer:
                if answer.status != 200:
                    raise http.client.HTTPException(f"{answer.status}")
                self.connected += 1
                self._hear(answer)

    def _hear(self, answer: http.client.HTTPResponse) -> None:
        for fields in blocks(answer):
            if self.stopped.is_set():
                break
            if fields.get("event") == "gap":
                self.gaps.append(fields["data"])
            elif "data" in fields:
                self.events.append((fields["id"], json.loads(fields["data"])))
            self.cursor = fields.get("id", self.cursor)


def blocks(answer: http.client.HTTPResponse) -> Iterator[dict[str, str]]:
    fields: dict[str, str] = {}
    while line := answer.readline():
        text = line.decode().rstrip("\n")
        if not text:
            yield fields
            fields = {}
            continue
        name, _, value = text.partition(":")
        fields[name] = value.strip()
    raise http.client.HTTPException("the stream ended")


def tokens(path: Path, **roles: str) -> None:
    text = "".join(
        f'[[tokens]]\nname = "{name}"\nrole = "{role}"\nsha256 = "{hashlib.sha256(name.encode()).hexdigest()}"\n'
        for name, role in roles.items()
    )
    path.write_text(text)


@pytest.mark.slow
def test_a_stream_over_tls_goes_on_without_a_gap_when_the_leader_is_killed_and_tokens_are_read_anew(
    datacenter: Datacenter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    pair, shown, file = authority.sign("server"), authority.sign("client"), tmp_path / "tokens.toml"
    tokens(file, nick="node", carl="client")
    for name, value in (("CA", authority.file), ("CERT", shown.cert), ("KEY", shown.key), ("TOKEN", "nick")):
        monkeypatch.setenv(f"TENURE_{name}", value)
    options = ("--tokens", str(file), "--tls-cert", pair.cert, "--tls-key", pair.key, "--tls-client-ca", authority.file)
    for name in ("m-1", "m-2"):
        datacenter.manager(name, *options)
    datacenter.worker("--slots", "2")
    addresses = list(datacenter.addresses.values())
    assert all(address.startswith("https://") for address in addresses)
    client = Client(addresses, token="carl")
    tls = ClientTls(authority.file, *shown)
    wait_until(lambda: client.leader().address in addresses, datacenter.said)
    listener = Listener(sorted(addresses, key=lambda one: one != client.leader().address), tls, "carl")
    listener.start()

    log = tmp_path / "log"
    for number in range(JOBS):
        client.submit("step", {"n": number, "log": str(log)}, job_id=f"j-{number}")
        if number == JOBS // 2:
            wait_until(lambda: len(listener.events) > 20, datacenter.said)
            lost = client.leader().address
            name = next(name for name, address in datacenter.addresses.items() if address == lost)
            datacenter.managers[name].kill()
    for number in range(JOBS):
        assert client.wait(f"j-{number}", 180).state is JobState.COMPLETED

    with Engine.open(datacenter.url) as engine:
        entries = engine.journal("jobs").read(0, limit=1_000)
    written = [json.loads(event) for entry in entries for event in entry.events]
    wait_until(lambda: len(listener.events) >= len(written), datacenter.said)
    assert [event for _, event in listener.events][: len(written)] == written
    assert (listener.gaps, listener.connected >= 2) == ([], True)
    assert sum(event["type"] == "LeaderElected" for event in written) >= 2
    assert {event.get("by") for event in written if event["type"] == "JobSubmitted"} == {"carl"}
    listener.stopped.set()
    listener.join(180)

    # What a workflow prints and logs can be followed while it runs.
    go_on = tmp_path / "go-on"
    client.submit("talk", {"log": str(go_on)}, job_id="talk")
    wait_until(lambda: len(lines(client)) == 3, datacenter.said)
    early = client.ask(GetLogs(job_id="talk"))
    assert isinstance(early, LogPage)
    assert not early.ended
    go_on.touch()
    assert client.wait("talk", 180).state is JobState.COMPLETED
    wait_until(lambda: client.ask(GetLogs(job_id="talk", offset=early.next)).ended, datacenter.said)
    last = client.ask(GetLogs(job_id="talk", offset=early.next))
    assert isinstance(last, LogPage)
    assert [(line.level, line.text) for line in last.lines] == [("stdout", "printed last")]
    assert [(line.level, line.text) for line in early.lines] == [
        ("stdout", "printed one"),
        ("info", "logged two"),
        ("stderr", "complained three"),
    ]

    # The command line speaks TLS from its environment, and shows a certificate.
    left = next(node for node in datacenter.managers.values() if node.process.poll() is None)
    managers = ["--managers", datacenter.addresses[left.name]]
    shown_jobs = subprocess.run(
        [sys.executable, "-m", "tenure", "ps", "--json", *managers], capture_output=True, timeout=180, check=True
    )
    assert json.loads(shown_jobs.stdout)["known"] == JOBS + 1
    monkeypatch.delenv("TENURE_CERT")
    refused = subprocess.run(
        [sys.executable, "-m", "tenure", "ps", "--patience", "1", *managers],
        capture_output=True,
        timeout=180,
        check=False,
    )
    assert refused.returncode == 3, refused.stderr

    tokens(file, nick="node", olga="operator")
    left.signal(signal.SIGHUP)
    wait_until(lambda: "read tokens and certificates anew" in left.said(), left.said)
    # It may just have lost its term of two seconds, and answers such a question while it leads.
    wait_until(lambda: ask(datacenter.addresses[left.name], tls, "olga") == 200, left.said)
    assert ask(datacenter.addresses[left.name], tls, "carl") == 401
    file.write_text("nonsense")
    left.signal(signal.SIGHUP)
    wait_until(lambda: "stay as they were" in left.said(), left.said)
    wait_until(lambda: ask(datacenter.addresses[left.name], tls, "olga") == 200, left.said)
    client.close()


def lines(client: Client) -> list[str]:
    page = client.ask(GetLogs(job_id="talk"))
    assert isinstance(page, LogPage)
    return [line.text for line in page.lines]


def ask(address: str, tls: ClientTls, token: str) -> int:
    host, _, port = address.removeprefix("https://").rpartition(":")
    connection = http.client.HTTPSConnection(host, int(port), timeout=180, context=tls.context())
    try:
        connection.request("GET", "/v1/queues", headers={"Authorization": f"Bearer {token}"})
        return connection.getresponse().status
    finally:
        connection.close()
