# SPDX-License-Identifier: Apache-2.0
"""The daemon's Open Inference Protocol with NVIDIA's client `tritonclient`, as docs/oip.md shows it: the flows of its examples."""
from __future__ import annotations

import pathlib
import queue
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio
import tritonclient.utils.shared_memory as shm
from conftest import MODEL, Daemon

import npugraph

GRAPH = """npugraph 1
graph "add_sub" {
  sym B 1..64
  param %w : f32[16] = "bias"
  input %a : f32[B,16] = "INPUT0"
  input %b : f32[B,16] = "INPUT1"
  %c = aten.add.Tensor(%a, %w)
  %s = aten.add.Tensor(%c, %b)
  %d = aten.sub.Tensor(%c, %b)
  return "OUTPUT0" = %s, "OUTPUT1" = %d
}
"""
BIAS = np.arange(16, dtype=np.float32)
A = np.arange(32, dtype=np.float32).reshape(2, 16)
B = np.full((2, 16), 3, np.float32)
SUM, DIFFERENCE = A + BIAS + B, A + BIAS - B
PROMPT = np.array([5, 6, 7], np.int64)


@pytest.fixture(scope="module")
def place() -> Iterator[Daemon]:
    """A daemon with a graph and a language model."""
    with tempfile.TemporaryDirectory(prefix="npugraph-oip-") as folder:
        daemon = Daemon(pathlib.Path(folder), "--oip-shared-memory=yes")
        with npugraph.connect(daemon.address) as owner:
            graph = owner.graph(GRAPH, {"bias": owner.upload(BIAS)})
            model = owner.load_model(str(MODEL), name="bible")
            yield daemon
            del graph, model
        daemon.stop()


@pytest.fixture
def client(place: Daemon) -> Iterator[Any]:
    with triton.InferenceServerClient(place.address) as client:
        yield client


def tensor(name: str, data: Any, datatype: str = "FP32") -> Any:
    t = triton.InferInput(name, list(data.shape), datatype)
    t.set_data_from_numpy(data)
    return t


def inputs() -> list[Any]:
    return [tensor("INPUT0", A), tensor("INPUT1", B)]


def check(result: Any) -> None:
    assert np.array_equal(result.as_numpy("OUTPUT0"), SUM) and np.array_equal(result.as_numpy("OUTPUT1"), DIFFERENCE)


def test_health_and_metadata(client: Any) -> None:
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("add_sub") and not client.is_model_ready("nobody")
    assert client.get_server_metadata(as_json=True)["name"] == "npugraphd"
    meta = client.get_model_metadata("add_sub", as_json=True)
    assert meta["inputs"][0] == {"name": "INPUT0", "datatype": "FP32", "shape": ["-1", "16"]}
    config = client.get_model_config("bible", as_json=True)["config"]
    assert config["model_transaction_policy"] == {"decoupled": True}
    assert {m["name"] for m in client.get_model_repository_index(as_json=True)["models"]} == {"add_sub", "bible"}
    with pytest.raises(triton.InferenceServerException, match="nobody"):
        client.get_model_metadata("nobody")


def test_infer(client: Any) -> None:
    check(client.infer("add_sub", inputs(), request_id="1", timeout=10**7, priority=1))
    only = client.infer("add_sub", inputs(), outputs=[triton.InferRequestedOutput("OUTPUT1")])
    assert only.as_numpy("OUTPUT0") is None and np.array_equal(only.as_numpy("OUTPUT1"), DIFFERENCE)
    with pytest.raises(triton.InferenceServerException, match="must be FP32") as refused:
        client.infer("add_sub", [tensor("INPUT0", A), tensor("INPUT1", B.astype(np.int32), "INT32")])
    assert refused.value.status() == "StatusCode.INVALID_ARGUMENT"
    counts = client.get_inference_statistics("add_sub", as_json=True)["model_stats"][0]
    assert int(counts["inference_count"]) >= 2 and int(counts["inference_stats"]["fail"]["count"]) >= 1


def test_async_infer(client: Any) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    for _ in range(8):
        client.async_infer("add_sub", inputs(), lambda result, error: answers.put((result, error)))
    for _ in range(8):
        result, error = answers.get(timeout=60)
        assert error is None
        check(result)


def test_aio(place: Daemon) -> None:
    import asyncio

    async def run() -> None:
        async with tritonclient.grpc.aio.InferenceServerClient(place.address) as client:
            for result in await asyncio.gather(*(client.infer("add_sub", inputs()) for _ in range(4))):
                check(result)

    asyncio.run(run())


def streamed(client: Any, ask: Callable[[Any], None], last: Callable[[Any], bool]) -> list[Any]:
    """Starts a stream, sends what `ask` sends, and collects (result, error) until `last` is true of one."""
    answers: queue.Queue[Any] = queue.Queue()
    collected: list[Any] = []
    client.start_stream(lambda result, error: answers.put((result, error)))
    try:
        ask(client)
        while not collected or not last(collected):
            collected.append(answers.get(timeout=60))
    finally:
        client.stop_stream()
    return collected


def test_stream_of_a_graph(client: Any) -> None:
    def ask(client: Any) -> None:
        for i in range(5):
            client.async_stream_infer("add_sub", inputs(), request_id=str(i))
        client.async_stream_infer("nobody", inputs())

    collected = streamed(client, ask, lambda got: len(got) == 6)
    assert sorted(result.get_response().id for result, error in collected if not error) == list("01234")
    for result, error in collected:
        if error:
            assert "nobody" in str(error)
        else:
            check(result)


def is_final(result: Any) -> bool:
    return bool(result.get_response().parameters["triton_final_response"].bool_param)


def test_decoupled_stream(client: Any, place: Daemon) -> None:
    with npugraph.connect(place.address) as own, own.open("bible", PROMPT.tolist()) as sequence:
        expected = list(sequence.generate(20, ignore_stop=True))

    def ask(client: Any) -> None:
        client.async_stream_infer("bible", [tensor("input_ids", PROMPT, "INT64")], enable_empty_final_response=True,
                                  parameters={"max_tokens": 20, "ignore_stop": True})

    collected = streamed(client, ask, lambda got: is_final(got[-1][0]))
    assert all(error is None for _, error in collected)
    arrays = [result.as_numpy("output_ids") for result, _ in collected]
    assert [int(t) for a in arrays if a is not None for t in a] == expected
    whole = client.infer("bible", [tensor("input_ids", PROMPT, "INT64")], parameters={"max_tokens": 20, "ignore_stop": True})
    assert whole.as_numpy("output_ids").tolist() == expected
    text = triton.InferInput("text_input", [1], "BYTES")
    text.set_data_from_numpy(np.array([b"In the beginning"], object))
    with pytest.raises(triton.InferenceServerException, match="no tokenizer") as refused:
        client.infer("bible", [text])
    assert refused.value.status() == "StatusCode.UNIMPLEMENTED"


def test_system_shared_memory(client: Any) -> None:
    client.unregister_system_shared_memory()
    ins = shm.create_shared_memory_region("ins", "/npugraph-test-ins", 2 * A.nbytes)
    outs = shm.create_shared_memory_region("outs", "/npugraph-test-outs", 2 * A.nbytes)
    try:
        shm.set_shared_memory_region(ins, [A, B])
        client.register_system_shared_memory("ins", "/npugraph-test-ins", 2 * A.nbytes)
        client.register_system_shared_memory("outs", "/npugraph-test-outs", 2 * A.nbytes)
        assert set(client.get_system_shared_memory_status(as_json=True)["regions"]) == {"ins", "outs"}
        given, wanted = [], []
        for i in range(2):
            given.append(triton.InferInput(f"INPUT{i}", [2, 16], "FP32"))
            given[-1].set_shared_memory("ins", A.nbytes, i * A.nbytes)
            wanted.append(triton.InferRequestedOutput(f"OUTPUT{i}"))
            wanted[-1].set_shared_memory("outs", A.nbytes, i * A.nbytes)
        client.infer("add_sub", given, outputs=wanted)
        assert np.array_equal(shm.get_contents_as_numpy(outs, np.float32, [2, 16]), SUM)
        assert np.array_equal(shm.get_contents_as_numpy(outs, np.float32, [2, 16], A.nbytes), DIFFERENCE)
        client.unregister_system_shared_memory()
    finally:
        shm.destroy_shared_memory_region(ins)
        shm.destroy_shared_memory_region(outs)


COUNTER = """npugraph 1
graph "simple_sequence" {
  state %n : i32[1,1] = "n"
  input %x : i32[1,1] = "INPUT"
  %begins = aten.eq.Scalar(%n) {other=0}
  %one = aten._to_copy(%begins) {dtype=i32}
  %next = aten.add.Scalar(%n) {other=1}
  aten.copy_(%n, %next)
  %y = aten.add.Tensor(%x, %one)
  return "OUTPUT" = %y
}
"""


def test_sequences_of_a_graph(client: Any, place: Daemon) -> None:
    """The flow of Triton's examples for sequences: 1 more in the first answer of each."""
    with npugraph.connect(place.address) as own:
        graph = own.graph(COUNTER)
        for ids in ((1000, 1001, "text"), (1, 2, "3")):
            got: dict[Any, list[int]] = {sequence: [] for sequence in ids}
            for turn, value in enumerate([0, 11, 7, 5]):
                for sequence in ids:
                    x = tensor("INPUT", np.full((1, 1), value, np.int32), "INT32")
                    answer = client.infer("simple_sequence", [x], sequence_id=sequence, sequence_start=turn == 0,
                                          sequence_end=turn == 3)
                    got[sequence].append(int(answer.as_numpy("OUTPUT")[0][0]))
            assert all(answers == [1, 11, 7, 5] for answers in got.values()), got
        with pytest.raises(triton.InferenceServerException, match="sequence_start"):
            client.infer("simple_sequence", [x], sequence_id=1000)
        with pytest.raises(triton.InferenceServerException, match="no states"):
            client.infer("add_sub", inputs(), sequence_id=7, sequence_start=True)
        del graph


def test_sequences_of_a_language_model(client: Any, place: Daemon) -> None:
    with npugraph.connect(place.address) as own, own.open("bible", PROMPT.tolist()) as sequence:
        expected = list(sequence.generate(12, ignore_stop=True))
    got: list[int] = []
    for turn in range(3):
        ids = tensor("input_ids", PROMPT if turn == 0 else np.zeros(0, np.int64), "INT64")
        answer = client.infer("bible", [ids], sequence_id="chat", sequence_start=turn == 0, sequence_end=turn == 2,
                              parameters={"max_tokens": 4, "ignore_stop": True})
        got += answer.as_numpy("output_ids").tolist()
    assert got == expected


def test_example_of_the_page() -> None:
    """The example of docs/oip.md, on a daemon of the test."""
    page = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "oip.md").read_text()
    code = page.split("```python\n")[1].split("```")[0]
    with tempfile.TemporaryDirectory(prefix="npugraph-oip-") as folder:
        daemon = Daemon(pathlib.Path(folder))
        printed: list[Any] = []
        assert "unix:///run/npugraphd/npugraphd.sock" in code and "npugraph.connect()" in code
        code = code.replace("unix:///run/npugraphd/npugraphd.sock", daemon.address)
        code = code.replace("npugraph.connect()", f"npugraph.connect({daemon.address!r})")
        exec(code, {"print": printed.append})
        assert np.array_equal(printed[0], np.full((2, 3), 4, np.float32))
        daemon.stop()
