"""What `deploy/` ships is checked by the programs that will read it: schemas of Kubernetes, promtool, systemd-analyze, and our own command line."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import pytest
import yaml
from tools.servers.packages import debian, with_libraries
from tools.servers.process import CannotStart

from tenure.cli.root import tenure
from tools import grafana_board, render_chart

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
SCHEMAS = "1.31"


def documents(text: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(text) if one]


def manifests() -> list[dict[str, Any]]:
    return [one for path in sorted((DEPLOY / "kubernetes").glob("*.yaml")) for one in documents(path.read_text())]


def commands() -> list[tuple[str, list[str]]]:
    """Returns the place and the arguments of every `tenure` that a file of `deploy` starts."""
    found = []
    for one in manifests():
        if one["kind"] == "Deployment":
            [container] = one["spec"]["template"]["spec"]["containers"]
            found.append((f"kubernetes {container['name']}", container["args"]))
    for name, service in yaml.safe_load((DEPLOY / "compose/compose.yaml").read_text())["services"].items():
        if service.get("image") == "tenure":
            found.append((f"compose {name}", service["command"]))
    for path in sorted((DEPLOY / "systemd").glob("*.service")):
        line = re.search(r"^ExecStart=/opt/tenure/bin/tenure (.*)$", path.read_text(), re.MULTILINE)
        assert line, path.name
        # Variables stand for whole options of the operator; the module of a worker is one word.
        words = line[1].replace("$MODULE", "app.py").replace("$OPTIONS", "").split()
        found.append((f"systemd {path.name}", words))
    return found


def metrics() -> set[str]:
    """Returns the names in docs/metrics.md, with those that Prometheus makes of histograms."""
    names = set(re.findall(r"`(tenure_\w+)", (ROOT / "docs/metrics.md").read_text()))
    return names | {f"{name}_{part}" for name in names for part in ("bucket", "sum", "count")}


def queried(expression: str) -> set[str]:
    return set(re.findall(r"\btenure_\w+", expression))


def test_the_plain_manifests_are_the_charts_with_its_default_values() -> None:
    for name, text in render_chart.rendered(render_chart.values()).items():
        assert (DEPLOY / "kubernetes" / name).read_text() == text, "run python tools/render_chart.py"


@pytest.mark.parametrize("change", [{}, {"worker": {"autoscaling": False}}, {"gate": {"replicas": 0}}])
def test_every_manifest_fits_the_schema_of_its_kind(change: dict[str, dict[str, Any]]) -> None:
    values = render_chart.values()
    for part, settings in change.items():
        values[part] = {**values[part], **settings}
    kinds = []
    for text in render_chart.rendered(values, "prod").values():
        for one in documents(text):
            kinds.append(one["kind"])
            assert one["metadata"]["name"].startswith("prod-")
            if one["apiVersion"].startswith("keda.sh/"):
                continue  # its schema is not Kubernetes' own; the test below reads what it names
            kubernetes_validate.validate(one, SCHEMAS, strict=True)
    assert kinds.count("Deployment") == kinds.count("PodDisruptionBudget") == (2 if "gate" in change else 3)
    assert ("ScaledObject" in kinds) == ("worker" not in change)


def test_the_autoscaler_scales_the_workers_by_a_metric_that_exists() -> None:
    [scaler] = [one for one in manifests() if one["kind"] == "ScaledObject"]
    names = [one["metadata"]["name"] for one in manifests() if one["kind"] == "Deployment"]
    assert scaler["spec"]["scaleTargetRef"]["name"] in names
    triggers = scaler["spec"]["triggers"]
    assert {trigger["type"] for trigger in triggers} == {"prometheus"}
    asked = {trigger["metadata"]["query"]: int(trigger["metadata"]["threshold"]) for trigger in triggers}
    workers = render_chart.values()["worker"]
    assert asked == {
        "sum(tenure_work_left_seconds)": workers["secondsPerReplica"],
        'sum(tenure_attempts_open{state="running"})': workers["slots"],
    }
    assert queried(" ".join(asked)) <= metrics()


def test_what_sets_the_costs_of_pods_may_patch_pods_of_workers_that_bear_their_pods_names() -> None:
    found = {(one["kind"], one["metadata"]["name"]): one for one in manifests()}
    [job] = [one for (kind, _), one in found.items() if kind == "CronJob"]
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert importlib.util.find_spec(container["command"][-1]) is not None
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert found["Role", pod["serviceAccountName"]]["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]}
    ]
    binding = found["RoleBinding", pod["serviceAccountName"]]
    assert binding["subjects"][0]["name"] == binding["roleRef"]["name"] == pod["serviceAccountName"]
    asks = {one["name"]: one.get("value", "") for one in container["env"]}["TENURE_ADDRESS"]
    assert ("Service", asks.partition(":")[0]) in found
    [worker] = found["Deployment", "tenure-worker"]["spec"]["template"]["spec"]["containers"]
    assert "--name=$(POD_NAME)" in worker["args"]


def test_the_image_copies_what_the_build_of_the_package_reads() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", (DEPLOY / "container/Containerfile").read_text(), re.MULTILINE)
    words = {word for line in copied for word in line.split()}
    needed = {project["tool"]["hatch"]["version"]["path"], project["project"]["readme"], "LICENSE", "pyproject.toml"}
    assert needed <= words


def test_no_pod_runs_as_root_or_may_write_to_its_image() -> None:
    for one in manifests():
        if one["kind"] == "Deployment":
            pod = one["spec"]["template"]["spec"]
            [container] = pod["containers"]
            assert pod["securityContext"]["runAsNonRoot"]
            assert container["securityContext"]["readOnlyRootFilesystem"]
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert pod["automountServiceAccountToken"] is False


@pytest.mark.parametrize(("place", "words"), commands(), ids=[place for place, _ in commands()])
def test_every_command_line_is_one_that_tenure_takes(place: str, words: list[str], tmp_path: Path) -> None:
    name, *rest = words
    # What the platform fills in, and the files that it mounts.
    known = {"$(POD_IP)": "10.0.0.1", "$(POD_NAME)": "pod-1", "%i-%H": "encoder-host", "/etc/tenure/": f"{tmp_path}/"}
    (tmp_path / "tokens.toml").write_text("")
    for before, after in known.items():
        rest = [word.replace(before, after) for word in rest]
    command = tenure.get_command(click.Context(tenure), name)
    assert command is not None
    required = ["--engine", "sqlite:///x.db"] if name != "gate" else ["--datacenter", "eu=10.0.0.1:8470"]
    command.make_context(name, [*rest, *required])


def test_the_probes_of_the_manifests_are_served_at_the_port_that_the_command_opens() -> None:
    for one in manifests():
        if one["kind"] != "Deployment":
            continue
        [container] = one["spec"]["template"]["spec"]["containers"]
        port = container["ports"][0]["containerPort"]
        assert any(word in (f"--port={port}", f"--health-port={port}") for word in container["args"])
        for probe, path in (("livenessProbe", "/health/live"), ("readinessProbe", "/health/ready")):
            assert container[probe]["httpGet"] == {"path": path, "port": port}


def test_alert_rules_and_the_board_query_only_metrics_that_the_docs_list() -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus/alerts.yaml").read_text())["groups"][0]["rules"]
    for rule in rules:
        assert queried(rule["expr"]), rule["alert"]
        assert queried(rule["expr"]) <= metrics(), rule["alert"]
        assert rule["annotations"]["description"].endswith(".")
    board = json.loads((DEPLOY / "grafana/tenure.json").read_text())
    assert board == grafana_board.board(), "run python tools/grafana_board.py"
    for panel in board["panels"]:
        for target in panel["targets"]:
            assert queried(target["expr"]) <= metrics(), panel["title"]


def test_promtool_accepts_the_alert_rules_and_every_query_of_the_board(tmp_path: Path) -> None:
    try:
        folder = debian("prometheus")
    except CannotStart as error:
        pytest.skip(f"promtool: {error}")
    queries = [target["expr"] for panel in grafana_board.board()["panels"] for target in panel["targets"]]
    groups = [{"name": "board", "rules": [{"record": f"q:{n}", "expr": text} for n, text in enumerate(queries)]}]
    (tmp_path / "board.yaml").write_text(yaml.safe_dump({"groups": groups}))
    for path in (DEPLOY / "prometheus/alerts.yaml", tmp_path / "board.yaml"):
        command = [str(folder / "usr/bin/promtool"), "check", "rules", str(path)]
        done = subprocess.run(command, env=with_libraries(folder), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not on this machine")
    for path in (DEPLOY / "systemd").glob("*.service"):
        copy = tmp_path / path.name.replace("@", "@encoder")
        # The program itself is not installed here; whether its options exist is asked by another test.
        copy.write_text(path.read_text().replace("/opt/tenure/bin/tenure", "/bin/true"))
        verify = ["systemd-analyze", "verify", "--man=no", str(copy)]
        done = subprocess.run(verify, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stderr == "", done.stderr


def test_compose_mounts_files_that_are_there() -> None:
    compose = yaml.safe_load((DEPLOY / "compose/compose.yaml").read_text())
    for service in compose["services"].values():
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            if source.startswith("."):
                assert (DEPLOY / "compose" / source).exists(), mount
    assert yaml.safe_load((DEPLOY / "compose/prometheus.yaml").read_text())["rule_files"]
