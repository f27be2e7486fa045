# SPDX-License-Identifier: Apache-2.0
"""A daemon for the tests: NPUGRAPHD, on a private socket, with the bundled model's folder as models-dir; and a server."""
from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import urllib.request
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import npugraph

SOURCE = pathlib.Path(__file__).resolve().parents[2]
MODEL = SOURCE / "examples" / "model"
PATIENCE = float(os.environ.get("NGD_TEST_PATIENCE", "60"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--programs", type=int, default=100, help="number of random functions in test_programs.py")
    parser.addoption("--first-program", type=int, default=0, help="seed of the first of them")


class Daemon:
    """A daemon's process. It ends with the tests: setpriv ties it to them."""

    def __init__(self, folder: pathlib.Path, *options: str) -> None:
        self.address = f"unix:{folder}/s"
        self.log = folder / "log"
        command = ["setpriv", "--pdeathsig", "KILL", "--", os.environ["NPUGRAPHD"], f"--listen={self.address}",
                   "--stats-listen=127.0.0.1:0", f"--models-dir={MODEL}", f"--models-dir={folder}", *options]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        end = time.monotonic() + PATIENCE
        while ": ready" not in self.log.read_text(errors="replace"):
            assert self.process.poll() is None and time.monotonic() < end, self.log.read_text(errors="replace")
            time.sleep(0.02)

    def stats(self) -> Any:
        address = self.log.read_text(errors="replace").split("statistics on http://")[1].split("/")[0]
        with urllib.request.urlopen(f"http://{address}/stats.json", timeout=PATIENCE) as answer:
            return json.load(answer)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        assert self.process.poll() is None, self.log.read_text(errors="replace")[-3000:]
        self.process.terminate()
        assert self.process.wait(PATIENCE) == 0, self.log.read_text(errors="replace")[-3000:]


@pytest.fixture(scope="session")
def daemon() -> Iterator[Daemon]:
    with tempfile.TemporaryDirectory(prefix="npugraph-python-") as folder:
        running = Daemon(pathlib.Path(folder))
        os.environ["NPUGRAPH_ADDRESS"] = running.address
        yield running
        running.stop()


@pytest.fixture
def client(daemon: Daemon) -> Iterator[npugraph.Client]:
    with npugraph.connect(daemon.address) as opened:
        yield opened


@pytest.fixture(scope="module")
def folder(daemon: Daemon) -> Iterator[pathlib.Path]:
    with tempfile.TemporaryDirectory(prefix="npugraph-server-") as made, npugraph.connect(daemon.address) as client:
        from serving import TEMPLATE
        path = pathlib.Path(made)
        shutil.copytree(MODEL, path / "model")
        (path / "model" / "chat_template.jinja").write_text(TEMPLATE)
        client.load_model(str(MODEL), name="bible", max_batch=64, keep=False)
        yield path


@pytest.fixture(scope="module")
def server(daemon: Daemon, folder: pathlib.Path) -> Iterator[Any]:
    from serving import Server
    running = Server(daemon.address, folder)
    yield running
    running.stop()


@pytest.fixture
def fresh(daemon: Daemon) -> Iterator[None]:
    """PyTorch as at its start, for inference; that a graph runs in PyTorch is an error."""
    import torch

    import npugraph.torch as backend
    torch._dynamo.reset()
    torch.manual_seed(0)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", backend.FallbackWarning)
        yield
    backend.forget()
