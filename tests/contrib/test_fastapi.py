"""The real FastAPI and its own test client, in front of a real manager."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Annotated, Any

import pytest

fastapi = pytest.importorskip("fastapi", reason="FastAPI is not installed here: make frameworks")

from fastapi import Depends, FastAPI, HTTPException  # noqa: E402  after the line that skips
from fastapi.testclient import TestClient  # noqa: E402
from tests.contrib.work_app import count, wait_for_file  # noqa: E402

from tenure import AsyncClient  # noqa: E402
from tenure.contrib.fastapi import Tenure  # noqa: E402
from tenure.errors import ConfigurationError, TenureError  # noqa: E402
from tenure.local.embedded import Embedded  # noqa: E402
from tenure.testing import TestDatacenter  # noqa: E402


def application(datacenter: Embedded, **options: Any) -> FastAPI:
    tenure = Tenure(datacenter.addresses, **options)
    app = FastAPI(lifespan=tenure.lifespan)
    app.include_router(tenure.routes(), prefix="/jobs")
    app.add_exception_handler(TenureError, tenure.answer_error)

    async def start(workflow: str, body: dict[str, Any], jobs: Annotated[AsyncClient, Depends(tenure)]) -> str:
        target = {"count": count, "wait_for_file": wait_for_file}.get(workflow, workflow)
        return (await jobs.submit(target, body, queue=datacenter.default_queue)).id

    # The annotations of a function inside a function cannot be read from text.
    start.__annotations__["jobs"] = Annotated[AsyncClient, Depends(tenure)]
    start.__annotations__.update(workflow=str, body=dict, **{"return": str})
    app.post("/start/{workflow}")(start)
    return app


def events(text: str) -> list[tuple[str, dict[str, Any]]]:
    found = [block.split("\n") for block in text.split("\n\n") if block.startswith("event:")]
    return [(kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for kind, data in found]


def test_a_job_that_a_request_started_streams_its_progress_to_its_end(datacenter: Embedded, tmp_path: Path) -> None:
    with TestClient(application(datacenter)) as browser:
        flag = tmp_path / "flag"
        job = browser.post("/start/wait_for_file", json={"path": str(flag)}).json()
        assert browser.get(f"/jobs/{job}").json()["ended"] is False
        with browser.stream("GET", f"/jobs/{job}/progress") as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            flag.touch()
            told = events("".join(stream.iter_text()))
    assert told[0][1]["job_id"] == job
    assert told[-1][0] == "end"
    assert told[-1][1]["state"] == "completed"


def test_errors_are_answered_as_tenure_answers_them(datacenter: Embedded) -> None:
    with TestClient(application(datacenter)) as browser:
        assert browser.get("/jobs/nobody-knows/progress").status_code == 404
        assert browser.get("/jobs/nobody-knows").json()["kind"] == "unknown"
        wrong = browser.post("/start/count", json={"to": "many"})
        assert (wrong.status_code, wrong.json()["kind"]) == (422, "impossible")
        assert "It takes (to" in wrong.json()["remedy"]


def test_no_manager_is_a_503_that_a_client_may_repeat(datacenter: Embedded) -> None:
    tenure = Tenure("127.0.0.1:9", patience_s=0.1)
    app = FastAPI(lifespan=tenure.lifespan)
    app.include_router(tenure.routes(), prefix="/jobs")
    with TestClient(app) as browser:
        assert browser.get("/jobs/any").status_code == 503


def test_dependencies_decide_who_may_look(datacenter: Embedded) -> None:
    def nobody() -> None:
        raise HTTPException(403, "not you")

    tenure = Tenure(datacenter.addresses)
    app = FastAPI(lifespan=tenure.lifespan)
    app.include_router(tenure.routes(dependencies=[Depends(nobody)]), prefix="/jobs")
    with TestClient(app) as browser:
        assert browser.get("/jobs/any/progress").status_code == 403


def test_a_client_before_the_application_started_says_what_is_missing() -> None:
    with pytest.raises(ConfigurationError, match="has not started"):
        _ = Tenure().client


def test_the_code_on_the_page_runs_as_printed(datacenter: Embedded) -> None:
    page = (Path(__file__).parents[2] / "docs" / "frameworks.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {"__name__": "frameworks"}
    exec(
        compile(code.replace("127.0.0.1:8470", datacenter.addresses[0]), "frameworks.md", "exec", dont_inherit=True),
        names,
    )
    assert datacenter.submit(count, to=1).wait(180) == 1, (
        "until a worker has registered, nobody can know what nobody serves"
    )
    with TestClient(names["app"]) as browser:
        refused = browser.post("/videos", params={"path": "a.mov"})
    assert (refused.status_code, refused.json().get("kind")) == (422, "impossible"), refused.text


def test_the_example_of_an_upload_takes_a_file_once(
    datacenter: Embedded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENURE", datacenter.addresses[0])
    monkeypatch.setenv("UPLOADS", str(tmp_path))
    example = importlib.import_module("examples.real.upload_api")
    with TestClient(example.app) as browser:
        first, again = [browser.post("/uploads", files={"file": ("a.mov", b"film")}).json() for _ in range(2)]
        assert first == again, "the same file is the same job"
        assert browser.get(f"/jobs/{first['job']}").json()["state"] == "pending", "its worker may come later"
    (path,) = tmp_path.iterdir()
    with TestDatacenter() as offline:
        assert offline.submit(example.digest, path=str(path)).wait() == path.name
