"""Tells Kubernetes which worker to take away first when a deployment shrinks: the one with the least work that is not saved.

    TENURE_ADDRESS=tenure-manager:8470 python -m tenure.contrib.kubernetes

It asks the managers once what each worker would lose, and writes that as `controller.kubernetes.io/pod-deletion-cost` on the pods of the
same names (decision 0560). The chart runs it every minute. It speaks to the API server with the pod's own account, and needs only `patch` on pods.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from tenure.client.client import Client
from tenure.control.messages.nodes import WorkerNode
from tenure.errors import NodeUnavailableError, TenureError

COST = "controller.kubernetes.io/pod-deletion-cost"
MOST = 2_147_483_647
"""The annotation is an int32. Kubernetes takes the pod with the lowest number first, and one without it counts as 0."""
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def deletion_costs(workers: Iterable[WorkerNode]) -> dict[str, int]:
    """Maps each worker to what its end would cost: the seconds of work that it has not saved, and one more for each attempt that runs.

    So an idle worker costs 0, and of two whose work is saved the one that runs less goes first. A drained worker costs 0: it has been told to leave.
    """
    return {
        one.name: 0 if one.drained else min(MOST, round(one.loss_s) + one.running)
        for one in workers
        if not one.datacenter
    }


class ApiServer:
    """The API server of Kubernetes, as a pod reaches it."""

    def __init__(self, connection: http.client.HTTPConnection, token: str, namespace: str) -> None:
        self._connection, self._token, self._namespace = connection, token, namespace

    @classmethod
    def of_this_pod(cls, environment: Mapping[str, str], account: Path = ACCOUNT) -> ApiServer:
        context = ssl.create_default_context(cafile=str(account / "ca.crt"))
        host, port = environment["KUBERNETES_SERVICE_HOST"], int(environment["KUBERNETES_SERVICE_PORT"])
        connection = http.client.HTTPSConnection(host, port, timeout=10.0, context=context)
        return cls(connection, (account / "token").read_text().strip(), (account / "namespace").read_text().strip())

    def set_cost(self, pod: str, cost: int) -> bool:
        """Writes the cost on a pod. Returns False where there is no such pod: a worker may run elsewhere, or have gone."""
        self._connection.request(
            "PATCH",
            f"/api/v1/namespaces/{self._namespace}/pods/{pod}",
            json.dumps({"metadata": {"annotations": {COST: str(cost)}}}),
            {"Authorization": f"Bearer {self._token}", "Content-Type": "application/merge-patch+json"},
        )
        answer = self._connection.getresponse()
        said = answer.read()
        if answer.status == http.client.NOT_FOUND:
            return False
        if answer.status != http.client.OK:
            raise NodeUnavailableError(
                f"Kubernetes answered {answer.status} for pod {pod}: {said[:200].decode(errors='replace')}",
                remedy="The account needs the verb patch on pods",
            )
        return True


def main() -> int:
    addresses = os.environ.get("TENURE_ADDRESS", "127.0.0.1:8470").split(",")
    try:
        with Client(addresses, token=os.environ.get("TENURE_TOKEN", ""), patience_s=20.0) as client:
            costs = deletion_costs(client.nodes().workers)
        server = ApiServer.of_this_pod(os.environ)
        done = {pod: cost for pod, cost in sorted(costs.items()) if server.set_cost(pod, cost)}
    except (TenureError, OSError, KeyError) as error:
        print(f"the costs of pods were not set: {error!r}", file=sys.stderr)
        return 1
    print(json.dumps({"set": done, "elsewhere": sorted(costs.keys() - done.keys())}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
