# SPDX-License-Identifier: Apache-2.0
"""A server for the tests: a process of npugraph-server in front of the tests' daemon."""
from __future__ import annotations

import http.client
import json
import pathlib
import signal
import socket
import subprocess
import sys
import time
from typing import Any

import openai
from conftest import MODEL, PATIENCE, SOURCE, Daemon

import npugraph

PROMPT = "In the beginning"
CHAT = [{"role": "user", "content": "Who made the heaven?"}]
TOKENIZER = npugraph.Tokenizer(str(MODEL))
TEMPLATE = json.loads((SOURCE / "tests" / "golden" / "chat.json").read_text())["templates"]["chatml"]


class Server:
    """A server's process. It ends with the tests."""

    def __init__(self, address: str, folder: pathlib.Path, *options: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.log = folder / f"log-{self.port}"
        own = any(option.startswith("--model") for option in options)
        command = ["setpriv", "--pdeathsig", "KILL", "--", sys.executable, "-m", "npugraph.server", f"--address={address}",
                   f"--listen=127.0.0.1:{self.port}", *([] if own else [f"--model=bible={folder / 'model'}"]), *options]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.wait(lambda: "Uvicorn running" in self.text())

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def wait(self, ready: Any) -> None:
        end = time.monotonic() + PATIENCE
        while not ready():
            assert self.process.poll() is None and time.monotonic() < end, self.text()
            time.sleep(0.02)

    def ask(self, method: str, path: str, body: bytes | str | None = None, **headers: str) -> tuple[int, Any, dict[str, str]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        is_json = answer.headers.get_content_type() == "application/json"
        return answer.status, json.loads(data) if is_json else data, {k.lower(): v for k, v in answer.getheaders()}

    def post(self, path: str, **fields: Any) -> tuple[int, Any, dict[str, str]]:
        return self.ask("POST", path, json.dumps({"model": "bible"} | fields))

    def events(self, path: str, **fields: Any) -> list[Any]:
        """Returns the data of the events of a stream, without the last one."""
        status, data, headers = self.post(path, stream=True, **fields)
        assert status == 200 and headers["content-type"].startswith("text/event-stream")
        events = [line.removeprefix("data: ") for line in data.decode().split("\n\n") if line]
        assert events.pop() == "[DONE]"
        return [json.loads(event) for event in events]

    def client(self, key: str = "none") -> openai.OpenAI:
        return openai.OpenAI(base_url=f"http://127.0.0.1:{self.port}/v1", api_key=key, max_retries=0, timeout=PATIENCE)

    def stop(self) -> None:
        self.process.terminate()
        assert self.process.wait(PATIENCE) in (0, -signal.SIGTERM), self.text()
        assert "Traceback" not in self.text() and "never retrieved" not in self.text(), self.text()


def sequences(daemon: Daemon) -> int:
    with npugraph.connect(daemon.address) as client:
        return sum(model.sequences for model in client.models())


def await_no_sequences(daemon: Daemon) -> None:
    end = time.monotonic() + PATIENCE
    while sequences(daemon):
        assert time.monotonic() < end
        time.sleep(0.02)
