"""A headless Chromium, driven through pipes (Chrome DevTools Protocol): no driver and no network is needed."""

import contextlib
import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

PROGRAM = shutil.which("chromium") or shutil.which("google-chrome")


class Browser:
    """One page, which types and reads as a person does."""

    def __init__(self, writer, reader):
        self._writer = writer
        self._reader = reader
        self._ids = itertools.count(1)
        self._session: dict[str, str] = {}
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": session["sessionId"]}

    def send(self, method: str, **params: Any) -> dict:
        """The result of a command of the protocol."""
        number = next(self._ids)
        message = {"id": number, "method": method, "params": params, **self._session}
        self._writer.write(json.dumps(message).encode() + b"\0")
        self._writer.flush()
        while True:
            answer = json.loads(b"".join(iter(lambda: self._reader.read(1), b"\0")))
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]

    def value(self, expression: str) -> Any:
        """The value of JavaScript; a promise is awaited."""
        result = self.send(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait_for(self, expression: str) -> Any:
        """The value of JavaScript as soon as it is true, within a minute."""
        poll = f"""(async () => {{
          for (let i = 0; i < 1200; i++) {{
            const value = {expression};
            if (value) return value;
            await new Promise(resolve => setTimeout(resolve, 50));
          }}
        }})()"""
        return self.value(poll)

    def open(self, url: str, width: int = 900) -> None:
        """Opens a page, and waits until it is there."""
        size = {"width": width, "height": 700, "deviceScaleFactor": 1, "mobile": False}
        self.send("Emulation.setDeviceMetricsOverride", **size)
        self.send("Page.navigate", url=url)
        self.wait_for(f"location.href.startsWith({url!r}) && document.readyState === 'complete'")

    def press(self, key: str, modifiers: int = 0, **options: Any) -> None:
        """Presses a key; 2 is the modifier Ctrl."""
        for kind in ("keyDown", "keyUp"):
            event = {"type": kind, "key": key, "modifiers": modifiers, **options}
            self.send("Input.dispatchKeyEvent", **event)

    def write(self, text: str) -> None:
        """Replaces the text of the field that has the focus."""
        self.value("document.activeElement.select()")
        self.send("Input.insertText", text=text)


@contextlib.contextmanager
def browser(profile: str) -> Iterator[Browser]:
    """A browser with a profile of its own."""
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()

    def connect() -> None:
        for fd, number in ((to_read, 3), (from_write, 4)):
            os.dup2(fd, number)
            os.set_inheritable(number, True)  # dup2 does not, if they are the same

    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe")
    assert PROGRAM
    process = subprocess.Popen(
        [PROGRAM, *flags, f"--user-data-dir={profile}"],
        preexec_fn=connect,
        close_fds=False,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_read)
    os.close(from_write)
    try:
        with os.fdopen(to_write, "wb") as writer, os.fdopen(from_read, "rb") as reader:
            yield Browser(writer, reader)
    finally:
        process.kill()
        process.wait()
