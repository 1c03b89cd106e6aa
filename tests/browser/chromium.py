"""A headless Chromium with a fresh profile, driven over its debugging pipe: no driver, no package."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
from pathlib import Path
from typing import Any

from waiting import PATIENCE_S, until

BAD = "<img src=x onerror=alert(1)>"
"""A name that would run as HTML."""

PROGRAM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))),
    None,
)
_READY = "document.documentElement?.dataset.ready === 'yes'"
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
    "--disable-dev-shm-usage", "--remote-debugging-pipe",
)  # fmt: skip

_KEYS = {"Tab": 9, "Enter": 13, "ArrowRight": 39, "ArrowDown": 40, "End": 35, "Home": 36, " ": 32}


class Chromium:
    """One page. ``said`` has what its console said, ``asked`` the addresses that it asked for."""

    def __init__(self, profile: Path) -> None:
        assert PROGRAM is not None
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()

        def pipes() -> None:
            kept_in, kept_out = os.dup(theirs_in), os.dup(theirs_out)
            os.dup2(kept_in, 3)
            os.dup2(kept_out, 4)

        self.process = subprocess.Popen(
            [PROGRAM, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=pipes, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        self._in, self._out, self._buffer = ours_in, ours_out, b""
        self._number, self._session = 0, ""
        self.said: list[str] = []
        self.asked: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command and its result; what happens meanwhile is kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return dict(answer["result"])
            self._note(answer)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], PATIENCE_S)
            part = os.read(self._in, 1 << 20) if ready else b""
            if not part:
                raise TimeoutError("Chromium did not answer")
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(line))

    def _note(self, event: dict[str, Any]) -> None:
        name, content = event.get("method"), event.get("params", {})
        if name == "Runtime.exceptionThrown":
            self.said.append(json.dumps(content["exceptionDetails"]))
        elif name == "Runtime.consoleAPICalled":
            self.said.append(json.dumps(content["args"]))
        elif name == "Log.entryAdded":
            self.said.append(json.dumps(content["entry"]))
        elif name == "Network.requestWillBeSent":
            self.asked.append(content["request"]["url"])

    def open(
        self, page: Path | str, width: int, height: int = 900, *, dark: bool = False, ready: str = _READY
    ) -> None:
        """Open a page and wait until the condition ``ready`` holds; what others said is forgotten.

        page  from disk, without a network; or an address of this machine
        """
        self.call("Network.emulateNetworkConditions", offline=isinstance(page, Path), latency=0,
                  downloadThroughput=-1, uploadThroughput=-1)  # fmt: skip
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 600)  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url="about:blank")
        self.said.clear()
        self.asked.clear()
        self.call("Page.navigate", url=page.resolve().as_uri() if isinstance(page, Path) else page)
        self.wait(ready)

    def left_for(self) -> set[str]:
        """Addresses that the page asked for, its own among them; not those of data inside it."""
        own = ("data:", "blob:", "about:blank")
        return {address for address in self.asked if not address.startswith(own)}

    def press(self, key: str) -> None:
        """A key by its name: ``Tab``, ``ArrowRight``."""
        for kind in ("rawKeyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=_KEYS[key]
            )

    def type(self, text: str) -> None:
        """Into what has the focus."""
        self.call("Input.insertText", text=text)

    def mouse(self, kind: str, x: float, y: float) -> None:
        """``mousePressed``, ``mouseMoved`` or ``mouseReleased``, with the left button down."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)

    def run(self, script: str) -> Any:
        """Value of a JavaScript expression."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, condition: str) -> None:
        """Until a JavaScript condition holds; the console's words are shown where it never does."""
        until(lambda: self.run(condition), [condition, self.said])

    def close(self) -> None:
        """End the browser."""
        self.process.terminate()
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self._in)
        os.close(self._out)
