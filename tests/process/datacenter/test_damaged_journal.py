"""A manager as users run it, on a journal with one wrong byte: it stays up and says so, `tenure journal repair` mends it, and it leads."""

from __future__ import annotations

import http.client
import json
import sqlite3
import subprocess
import sys
from contextlib import closing

from tests.patience import PATIENCE_S, wait_until
from tests.process.datacenter.conftest import Datacenter

LAST = "seq = (SELECT max(seq) FROM journal_entry)"


def tenure(datacenter: Datacenter, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tenure", "journal", *words, "--engine", datacenter.url]
    return subprocess.run(command, capture_output=True, text=True, cwd=datacenter.folder)


def ready(address: str) -> tuple[int, dict[str, str]]:
    host, _, port = address.rpartition(":")
    with closing(http.client.HTTPConnection(host, int(port), timeout=PATIENCE_S)) as connection:
        connection.request("GET", "/health/ready")
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())["reasons"]


def test_a_manager_with_a_damaged_journal_waits_for_the_repair_and_leads(datacenter: Datacenter) -> None:
    datacenter.manager("m-1")
    datacenter.until_led()
    datacenter.client.submit("step", {"n": 1, "log": "log"}, job_id="j-1")
    datacenter.managers["m-1"].kill()
    with closing(sqlite3.connect(datacenter.folder / "t.db", isolation_level=None)) as table:
        seq, events = table.execute(f"SELECT seq, events FROM journal_entry WHERE {LAST}").fetchone()
        damaged = events[:-3] + bytes([events[-3] ^ 1]) + events[-2:]
        table.execute(f"UPDATE journal_entry SET events = ? WHERE {LAST}", (damaged,))
    node = datacenter.manager("m-2")
    address = datacenter.addresses["m-2"]
    # The port opens before the journal is read, and says so until then.
    wait_until(lambda: "damaged" in ready(address)[1].get("journal", ""), node.said)
    status, reasons = ready(address)
    assert status == 503
    assert f"entry {seq} of journal 'jobs' is damaged" in reasons["journal"]
    assert "Traceback" not in node.said()
    checked = tenure(datacenter, "check")
    assert (checked.returncode, f"entry {seq}" in checked.stdout) == (1, True)
    # The killed leader's term may not be over yet: until then a repair beside a leader is refused, rightly.
    wait_until(lambda: tenure(datacenter, "repair", "--write").returncode == 0, node.said)
    datacenter.until_led()
    datacenter.addresses.pop("m-1")
    with datacenter.new_client() as client:
        assert client.job("j-1").state == "pending"  # nobody works here; it was not lost
