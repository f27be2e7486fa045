# SPDX-License-Identifier: Apache-2.0
"""The command npugraph-server: options, and the program's life."""
from __future__ import annotations

import argparse
import gc
import inspect
import sys
from typing import Any

from .. import Error, __version__, connect


def _parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        "npugraph-server", description="Serves models that npugraphd has loaded by OpenAI's HTTP API.",
        epilog="SIGTERM and SIGINT end it when all requests are answered. docs/openai.md has the fields of requests.")
    p.add_argument("--model", action="append", default=[], metavar="NAME[=DIR]", dest="models", required=True,
                   help="serve the loaded model NAME, with tokenizer and chat template of its own files, or of DIR; repeatable")
    p.add_argument("--chat-template", action="append", default=[], metavar="NAME=FILE", dest="templates",
                   help="use this template for the model")
    p.add_argument("--tool-format", action="append", default=[], metavar="NAME=FORMAT", dest="formats",
                   help="hermes, mistral or llama3: how the model writes calls of tools (default: what its template shows)")
    p.add_argument("--listen", default="127.0.0.1:8000", metavar="HOST:PORT", help="or unix:PATH (default: %(default)s)")
    p.add_argument("--tls-cert", metavar="FILE", help="serve HTTPS with this certificate (PEM)")
    p.add_argument("--tls-key", metavar="FILE", help="and this key")
    p.add_argument("--api-keys", metavar="FILE", help="ask for one of these keys, a line each; lines with # are comments")
    p.add_argument("--address", help="of the daemon (default: $NPUGRAPH_ADDRESS, or the system's daemon)")
    p.add_argument("--daemon-ca", metavar="FILE", help="authority of the daemon's certificate")
    p.add_argument("--daemon-cert", metavar="FILE", help="our certificate for the daemon")
    p.add_argument("--daemon-key", metavar="FILE", help="and its key")
    p.add_argument("--daemon-token-file", metavar="FILE", help="bearer token for the daemon (default: $NPUGRAPH_TOKEN_FILE)")
    p.add_argument("--daemon-timeout", type=_positive, default=60.0, metavar="S", help="of a call of the daemon (default: 60)")
    p.add_argument("--restore-timeout", type=_seconds, default=60.0, metavar="S",
                   help="if the daemon is killed or restarted, answers under way wait so long for one that has their models, "
                        "and go on; 0: they fail (default: 60)")
    p.add_argument("--max-sequences", type=_count, default=128, metavar="N",
                   help="choices that are generated at the same time; more are refused with 429 (default: %(default)s)")
    p.add_argument("--max-body", type=_count, default=4 << 20, metavar="BYTES", help="of a request (default: %(default)s)")
    p.add_argument("--header-timeout", type=_positive, default=10.0, metavar="S", help="for the headers of a request (default: 10)")
    p.add_argument("--body-timeout", type=_positive, default=30.0, metavar="S", help="for a body to arrive (default: 30)")
    p.add_argument("--request-timeout", type=_positive, default=600.0, metavar="S", help="for a whole answer (default: 600)")
    p.add_argument("--drain-timeout", type=_count, default=60, metavar="S",
                   help="for answers under way when the program ends (default: %(default)s)")
    p.add_argument("--vllm-metrics", action="store_true", help="show metrics by vLLM's names too")
    p.add_argument("--version", action="version", version=f"npugraph-server {__version__}")
    return p


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e9:
        raise ValueError(text)
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1e6:
        raise ValueError(text)
    return value


def _count(text: str) -> int:
    value = int(text)
    if not 0 < value < 1 << 40:
        raise ValueError(text)
    return value


def _keys(path: str | None) -> list[str]:
    if path is None:
        return []
    with open(path, encoding="utf-8") as file:
        keys = [line.strip() for line in file if line.strip() and not line.startswith("#")]
    if not keys:
        raise ValueError(f"{path} has no key")
    return keys


def _listener(listen: str) -> dict[str, Any]:
    if listen.startswith("unix:"):
        return {"uds": listen[5:]}
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"--listen {listen}: it must be HOST:PORT or unix:PATH")
    return {"host": host.strip("[]"), "port": int(port)}


def main() -> None:
    """Runs the program."""
    options = _parser().parse_args()
    try:
        import uvicorn

        from .app import Guard, Limits, Server
        from .link import Link
        from .metrics import Metrics
        from .models import open_models, read_names
        from .protocol import http_with
    except ImportError as error:
        sys.exit(f'npugraph-server: {error}; pip install "npugraph[server]"')
    try:
        daemon = {"tls_ca": options.daemon_ca, "tls_cert": options.daemon_cert, "tls_key": options.daemon_key,
                  "token_file": options.daemon_token_file, "timeout": options.daemon_timeout}
        models = open_models(read_names(options.models, options.templates, options.formats),
                             lambda: connect(options.address, name="npugraph-server", **daemon))
        keys = _keys(options.api_keys)
        listener = _listener(options.listen)
    except (Error, OSError, ValueError) as error:
        sys.exit(f"npugraph-server: {error}")
    link = Link(options.address, **daemon)
    limits = Limits(options.max_body, options.body_timeout, options.request_timeout, options.restore_timeout)
    server = Server(link, models, limits, options.max_sequences, Metrics(options.vllm_metrics))
    more: dict[str, Any] = {}
    if "timeout_graceful_shutdown" in inspect.signature(uvicorn.Config.__init__).parameters:  # since 0.22
        more["timeout_graceful_shutdown"] = options.drain_timeout
    gc.collect()
    gc.freeze()  # what is here stays, and need not be looked at again and again
    uvicorn.run(Guard(server.app(), keys), http=http_with(options.header_timeout), log_level="info", access_log=False,
                server_header=False, proxy_headers=False, ws="none", ssl_certfile=options.tls_cert,
                ssl_keyfile=options.tls_key, **listener, **more)
