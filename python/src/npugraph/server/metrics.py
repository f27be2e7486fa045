# SPDX-License-Identifier: Apache-2.0
"""What the server counts, for Prometheus. The names are vLLM's behind another prefix; an option adds vLLM's own."""
from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_PREFIX = "npugraph_server_"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)


class Metrics:
    """The server's metrics, by model."""

    def __init__(self, vllm_names: bool) -> None:
        self.registry = CollectorRegistry()
        self._vllm_names = vllm_names

        def histogram(name: str, text: str) -> Histogram:
            return Histogram(_PREFIX + name, text, ["model_name"], buckets=_SECONDS, registry=self.registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(_PREFIX + name, text, ["model_name", *labels], registry=self.registry)

        self.running = Gauge(_PREFIX + "num_requests_running", "Requests that are being answered.", ["model_name"],
                             registry=self.registry)
        self.prompt_tokens = counter("prompt_tokens", "Tokens of prompts.")
        self.generation_tokens = counter("generation_tokens", "Tokens that were generated.")
        self.succeeded = counter("request_success", "Requests that were answered, by the reason of the end.", "finished_reason")
        self.first_token = histogram("time_to_first_token_seconds", "Time from a request to its first token.")
        self.between_tokens = histogram("inter_token_latency_seconds", "Time between tokens of an answer.")
        self.whole = histogram("e2e_request_latency_seconds", "Time from a request to the end of its answer.")
        self.failed = Counter(_PREFIX + "request_failures", "Requests that were refused or failed, by HTTP status.", ["status"],
                              registry=self.registry)
        self.abandoned = Counter(_PREFIX + "requests_abandoned", "Requests whose client went away.", registry=self.registry)

    @functools.cache  # noqa: B019  # they live as long as the server
    def of(self, model: str) -> ModelMetrics:
        return ModelMetrics(
            self.running.labels(model), self.prompt_tokens.labels(model), self.generation_tokens.labels(model),
            self.first_token.labels(model), self.between_tokens.labels(model), self.whole.labels(model),
            functools.cache(lambda finish: self.succeeded.labels(model, finish)))

    def text(self) -> bytes:
        """Returns the metrics in the text format, with vLLM's names too if that was asked for."""
        text = generate_latest(self.registry)
        return text + text.replace(_PREFIX.encode(), b"vllm:") if self._vllm_names else text


@dataclasses.dataclass(frozen=True)
class ModelMetrics:
    """Those of one model, looked up once."""

    running: Gauge
    prompt_tokens: Counter
    generation_tokens: Counter
    first_token: Histogram
    between_tokens: Histogram
    whole: Histogram
    succeeded: Callable[[str], Counter]  # by the reason of the end


class Watch:
    """Measures one request."""

    def __init__(self, metrics: ModelMetrics) -> None:
        self._metrics = metrics
        self._begin = time.perf_counter()
        self._last: dict[int, float] = {}  # by choice

    def running(self) -> AbstractContextManager[Any]:
        return self._metrics.running.track_inprogress()

    def tokens(self, index: int) -> None:
        """Notes that tokens of a choice came."""
        now = time.perf_counter()
        if index in self._last:
            self._metrics.between_tokens.observe(now - self._last[index])
        elif not self._last:
            self._metrics.first_token.observe(now - self._begin)
        self._last[index] = now

    def end(self, prompt_tokens: int, tokens: int, finishes: list[str]) -> None:
        """Notes that the request was answered."""
        self._metrics.prompt_tokens.inc(prompt_tokens)
        self._metrics.generation_tokens.inc(tokens)
        for finish in finishes:
            self._metrics.succeeded(finish).inc()
        self._metrics.whole.observe(time.perf_counter() - self._begin)
