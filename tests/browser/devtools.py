"""A real, headless Chromium, driven over the DevTools protocol: enough of it to look, click, type and wait."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
from tests.patience import PATIENCE_S

FLAGS = (
    "--headless=shell",
    "--no-sandbox",  # the tests may run as root; the pages are ours
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-pings",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-domain-reliability",
    "--disable-background-timer-throttling",
    "--disable-renderer-backgrounding",
    "--font-render-hinting=none",
    "--lang=en-US",
    "--remote-debugging-port=0",
)


class BrowserError(Exception):
    """The browser refused what it was told, or a wait was in vain."""


class Page:
    """One tab, with everything that its scripts complained about."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self.complaints: list[str] = []
        """Uncaught errors, console errors, and violations of the Content-Security-Policy."""
        self.requested: list[str] = []
        self.dialogs: list[str] = []
        self._listening = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        async for message in self._socket:
            told = json.loads(message.data)
            if "id" in told:
                answer = self._answers.pop(told["id"], None)
                if answer is not None and not answer.done():
                    answer.set_result(told)
            else:
                self._note(told["method"], told["params"])
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(BrowserError("the browser is gone"))

    def _note(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
            self.complaints.append(" ".join(str(one.get("value", one.get("description"))) for one in params["args"]))
        elif method == "Network.requestWillBeSent":
            self.requested.append(params["request"]["url"])
        elif method == "Page.javascriptDialogOpening":
            self.dialogs.append(params["message"])

    async def tell(self, method: str, **params: Any) -> Any:
        self._number += 1
        answer = self._answers[self._number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": self._number, "method": method, "params": params})
        async with asyncio.timeout(PATIENCE_S):
            told = await answer
        if "error" in told:
            raise BrowserError(f"{method}: {told['error']['message']}")
        return told["result"]

    async def run(self, expression: str) -> Any:
        """What an expression of JavaScript is in the page; a promise is waited for."""
        told = await self.tell("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in told:
            raise BrowserError(f"{expression}: {told['exceptionDetails']['exception'].get('description')}")
        return told["result"].get("value")

    async def until(self, expression: str, what: str = "") -> None:
        """Wait for an expression to be true. Says what the page shows if it never is."""
        begun = asyncio.get_running_loop().time()
        while True:
            with contextlib.suppress(BrowserError):  # a page that is being left has nothing to say
                if await self.run(f"Boolean({expression})"):
                    return
            if asyncio.get_running_loop().time() - begun > PATIENCE_S:
                shown = await self.text()
                raise BrowserError(
                    f"not within {PATIENCE_S:g} s: {what or expression}\n{shown[:3000]}\n{self.complaints}"
                )
            await asyncio.sleep(0.05)

    async def text(self) -> str:
        return str(await self.run("document.body ? document.body.innerText : ''"))

    async def sees(self, words: str) -> None:
        await self.until(f"document.body.innerText.includes({json.dumps(words)})", f"the page shows {words!r}")

    async def unsees(self, words: str) -> None:
        await self.until(f"!document.body.innerText.includes({json.dumps(words)})", f"the page stops showing {words!r}")

    async def has(self, selector: str) -> None:
        await self.until(f"document.querySelector({json.dumps(selector)}) !== null", f"there is {selector}")

    async def click(self, selector: str) -> None:
        """A real click of the mouse in the middle of it; waits until it is there and can be pressed."""
        find = f"document.querySelector({json.dumps(selector)})"
        await self.until(f"{find} && !{find}.disabled", f"{selector} can be clicked")
        await self.run(f"{find}.scrollIntoView({{block: 'center'}})")
        # Where it stays for two frames, and nothing lies above it: a page that is being drawn moves.
        place = await self.run(
            """(async () => {
                const frame = () => new Promise(requestAnimationFrame);
                for (;;) {
                    const one = FIND, before = JSON.stringify(one?.getBoundingClientRect());
                    await frame(); await frame();
                    const box = FIND?.getBoundingClientRect();
                    if (!box || JSON.stringify(box) !== before) continue;
                    const at = [box.x + box.width / 2, box.y + box.height / 2];
                    if (one.contains(document.elementFromPoint(...at))) return at;
                }
            })()""".replace("FIND", find)
        )
        for kind in ("mousePressed", "mouseReleased"):
            await self.tell("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    async def write(self, text: str) -> None:
        """Into whatever has the focus."""
        await self.tell("Input.insertText", text=text)

    async def press(self, key: str) -> None:
        codes = {"Enter": 13, "Escape": 27, "Tab": 9}
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            code = codes.get(key, 0)
            await self.tell("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    async def go(self, url: str) -> None:
        await self.tell("Page.navigate", url=url)

    async def look(self, width: int, height: int, *, dark: bool = False, scale: float = 1.0) -> None:
        await self.tell(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.tell("Emulation.setEmulatedMedia", features=[scheme])

    async def picture(self, path: Path) -> None:
        shot = await self.tell("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(shot["data"]))

    async def close(self) -> None:
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)
        await self._socket.close()


class Browser:
    """One process of Chromium; each page has a profile of its own, so that no login or cache is shared."""

    def __init__(self, session: aiohttp.ClientSession, control: Page, address: str) -> None:
        self._session, self._control, self._address = session, control, address

    @contextlib.asynccontextmanager
    async def page(self, url: str = "about:blank") -> AsyncIterator[Page]:
        context = (await self._control.tell("Target.createBrowserContext"))["browserContextId"]
        target = (await self._control.tell("Target.createTarget", url="about:blank", browserContextId=context))[
            "targetId"
        ]
        socket = await self._session.ws_connect(f"ws://{self._address}/devtools/page/{target}", max_msg_size=0)
        page = Page(socket)
        try:
            for domain in ("Page", "Runtime", "Log", "Network"):
                await page.tell(f"{domain}.enable")
            await page.look(1280, 900)
            if url != "about:blank":
                await page.go(url)
            yield page
        finally:
            await page.close()
            await self._control.tell("Target.disposeBrowserContext", browserContextId=context)


@contextlib.asynccontextmanager
async def browser(program: Path, env: dict[str, str]) -> AsyncIterator[Browser]:
    """Started, and gone with everything it started when left."""
    with tempfile.TemporaryDirectory(prefix="tenure-browser-") as folder:
        log = Path(folder) / "log"
        env = {
            **env,
            "LANG": "en_US.UTF-8",
            "LANGUAGE": "en_US",
            "HOME": folder,
            "XDG_CONFIG_HOME": folder,
            "XDG_CACHE_HOME": folder,
        }
        with log.open("wb") as output:
            process = subprocess.Popen(
                [str(program), *FLAGS, f"--user-data-dir={folder}/profile", "about:blank"],
                stdout=output,
                stderr=output,
                env=env,
                start_new_session=True,
            )
        try:
            address, path = await _listening(process, log)
            async with aiohttp.ClientSession() as session:
                control = Page(await session.ws_connect(f"ws://{address}{path}", max_msg_size=0))
                try:
                    yield Browser(session, control, address)
                finally:
                    await control.close()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            await asyncio.sleep(0.05)  # its children let go of the folder


async def _listening(process: subprocess.Popen[bytes], log: Path) -> tuple[str, str]:
    begun = asyncio.get_running_loop().time()
    while asyncio.get_running_loop().time() - begun < PATIENCE_S and process.poll() is None:
        found = re.search(r"DevTools listening on ws://([^/\s]+)(/\S+)", log.read_text(errors="replace"))
        if found:
            return found[1], found[2]
        await asyncio.sleep(0.05)
    raise BrowserError(f"Chromium did not start:\n{log.read_text(errors='replace')[-2000:]}")
