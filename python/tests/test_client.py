# SPDX-License-Identifier: Apache-2.0
"""The client: memory, graphs, models, errors."""
from __future__ import annotations

import ctypes
import functools
import gc
import os
import pathlib
import re
import threading

import numpy as np
import pytest
from conftest import MODEL, Daemon

import npugraph

LINEAR = """npugraph 1
graph "linear" {
  sym B 1..8 buckets 8
  param %w : f32[4,16] = "w"
  input %x : f32[B,16]
  %y = aten.linear(%x, %w)
  %z = aten.neg(%y)
  return "y" = %y, "z" = %z
}
"""
COUNTER = """npugraph 1
graph "counter" {
  state %n : i64[1] = "n"
  %more = aten.add.Scalar(%n) {other=1}
  aten.copy_(%n, %more)
  return "n" = %more
}
"""


def test_buffers_keep_what_is_written(client: npugraph.Client) -> None:
    values = np.arange(1000, dtype=np.float32)
    buffer = client.upload(values, label="values")
    assert np.array_equal(buffer.read_into(np.empty(1000, np.float32)), values)
    buffer.write(b"\0" * 8, offset=4)
    assert buffer.read(4, 8) == b"\0" * 8
    assert np.frombuffer(buffer.read(12), np.float32)[0] == 3
    part = client.upload(values[::2])  # not contiguous: it is copied first
    assert np.array_equal(np.frombuffer(part.read(), np.float32), values[::2])
    with pytest.raises(npugraph.OutOfRange) as caught:
        buffer.write(b"\0" * 8, offset=4000)
    assert caught.value.reason == "BUFFER_RANGE"


def test_buffers_of_any_memory(client: npugraph.Client) -> None:
    torch = pytest.importorskip("torch")
    for data in (b"abcd", bytearray(b"abcd"), memoryview(b"abcd"), np.frombuffer(b"abcd", np.uint8),
                 torch.tensor(list(b"abcd"), dtype=torch.uint8)):
        assert client.upload(data).read() == b"abcd"
    half = torch.tensor([1.5, -2.0], dtype=torch.bfloat16)
    target = torch.zeros(2, dtype=torch.bfloat16)
    assert torch.equal(client.upload(half).read_into(target), half)

    class OnlyDlpack:
        def __dlpack__(self, **options: object) -> object:
            return np.arange(3, dtype=np.int32).__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    assert np.frombuffer(client.upload(OnlyDlpack()).read(), np.int32).tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="contiguous"):
        client.upload(b"12345678").read_into(np.zeros((4, 2), np.uint8)[:, 0])
    with pytest.raises(ValueError, match="writable"):
        client.upload(b"12345678").read_into(b"12345678")


def test_graphs_replay(client: npugraph.Client) -> None:
    rng = np.random.default_rng(1)
    w, x = rng.standard_normal((4, 16), np.float32), rng.standard_normal((3, 16), np.float32)
    graph = client.graph(LINEAR, {"w": client.upload(w)}, {"capture_limit": 4, "clone_output": True})
    assert graph.capture([3]).captured
    assert not graph.capture([5]).captured  # the same bucket
    y, z = graph.replay([x], symbols=[3])
    assert np.allclose(np.frombuffer(y, np.float32).reshape(3, 4), x @ w.T, atol=1e-5)
    assert np.array_equal(np.frombuffer(z, np.float32), -np.frombuffer(y, np.float32))
    targets = [np.empty((3, 4), np.float32) for _ in range(2)]
    stream = client.replay_stream()
    assert stream.replay(graph, [x], symbols=[3], into=targets)[1] is targets[1]
    assert targets[0].tobytes() == y and targets[1].tobytes() == z
    with pytest.raises(npugraph.InvalidArgument) as caught:
        stream.replay(graph, [x[:2]], symbols=[3])
    assert caught.value.reason == "INPUT_SIZE"
    assert stream.replay(graph, [x], symbols=[3])[0] == y  # the stream goes on
    with pytest.raises(ValueError, match="2 outputs"):
        graph.replay([x], symbols=[3], into=targets[:1])
    with pytest.raises(ValueError, match="48 bytes, and its target 4"):
        graph.replay([x], symbols=[3], into=[np.empty(1, np.float32), targets[1]])


def test_shared_buffers(client: npugraph.Client) -> None:
    rng = np.random.default_rng(2)
    w, x = rng.standard_normal((4, 16), np.float32), rng.standard_normal((3, 16), np.float32)
    shared = client.shared(4096)
    at = shared.array.view(np.float32)
    inputs, targets = at[:48].reshape(3, 16), [at[64:76].reshape(3, 4), np.empty((3, 4), np.float32)]
    inputs[:] = x
    uploaded = client.upload(w)
    graph = client.graph(LINEAR, {"w": uploaded})
    stream = client.replay_stream()
    for streamed in (False, True):
        at[64:76] = 0
        if streamed:
            assert stream.replay(graph, [inputs], symbols=[3], into=targets)[0] is targets[0]
        else:
            assert graph.replay([inputs], symbols=[3], into=targets)[0] is targets[0]
        assert np.allclose(targets[0], x @ w.T, atol=1e-5) and np.array_equal(targets[1], -targets[0])
    with pytest.raises(npugraph.OutOfRange):
        graph.replay([inputs], symbols=[3], into=[at[64:75], targets[1]])
    uploaded.read_into(at[:64])
    assert np.array_equal(at[:64].reshape(4, 16), w)
    at[:64] *= 2
    uploaded.write(at[:64])
    assert np.array_equal(np.frombuffer(uploaded.read(), np.float32).reshape(4, 16), 2 * w)
    shared.free()
    inputs[:] = x  # the memory is still there, and its contents are sent
    assert np.allclose(np.frombuffer(graph.replay([inputs], symbols=[3])[0], np.float32), (x @ (2 * w).T).ravel(), atol=1e-5)
    with pytest.raises(npugraph.ResourceExhausted):
        client.shared(1 << 40)


def test_rings(client: npugraph.Client) -> None:
    w, x = np.ones((4, 16), np.float32), np.ones((3, 16), np.float32)
    with npugraph.connect(local_transport=False) as plain:
        results = []
        for c in (client, plain):
            graph = c.graph(LINEAR, {"w": c.upload(w)})
            streams = [c.replay_stream() for _ in range(20)]  # more than a ring has lanes
            results.append([s.replay(graph, [x], symbols=[3]) for s in streams])
            big = np.ones((8, 16), np.float32)
            with pytest.raises(npugraph.InvalidArgument):
                streams[0].replay(graph, [big], symbols=[3])
            streams[0].replay(graph, [x], symbols=[3])
            for s in streams:
                s.close()
        assert client.has_ring and not plain.has_ring
        assert results[0] == results[1]


def test_work_while_the_daemon_computes(client: npugraph.Client) -> None:
    def refuse() -> None:
        raise KeyError("meant")
    with npugraph.connect(local_transport=False) as plain:
        for c in (client, plain):
            graph = c.graph(COUNTER, {"n": c.allocate(8)})
            prepared = c.replay_stream().prepare(graph, 0, 0)
            seen: list[int] = []
            for n in range(1, 5):
                outs = prepared.run(functools.partial(seen.append, n))
                assert int.from_bytes(ctypes.string_at(outs[0].data, 8), "little") == n and len(seen) == n
            with pytest.raises(KeyError, match="meant"):
                prepared.run(refuse)
            outs = prepared.run()  # the replay before was done
            assert int.from_bytes(ctypes.string_at(outs[0].data, 8), "little") == 6 and len(seen) == 4


def test_shared_memory_outlives_its_client(daemon: object) -> None:
    client = npugraph.connect()
    array = client.shared(4096).array
    client.close()
    array[:] = 1
    assert array.sum() == 4096


def test_states_and_lifetimes(client: npugraph.Client) -> None:
    graph = client.graph(COUNTER, {"n": client.allocate(8)})  # only the graph holds the buffer
    gc.collect()
    counts = [int.from_bytes(graph.replay()[0], "little") for _ in range(3)]
    assert counts == [1, 2, 3]
    number = graph.number
    graph.release()
    with pytest.raises(npugraph.Error) as caught:
        graph.replay()
    assert caught.value.reason in ("STALE_ID", "UNKNOWN_ID") and number


def test_refusals_have_reasons(client: npugraph.Client) -> None:
    with pytest.raises(npugraph.GraphRefused) as caught:
        client.graph(COUNTER.replace("aten.add.Scalar", "aten.ad.Scalar"))
    assert caught.value.reason == "GRAPH_UNKNOWN_OP" and "aten.add.Scalar" in str(caught.value)
    with pytest.raises(npugraph.InvalidArgument, match="no_such"):
        client.graph(COUNTER, options={"no_such": 1})
    with pytest.raises(ValueError, match="NUL"):
        client.graph("npugraph 1\0")
    with pytest.raises(npugraph.NotFound):
        client.device("host:77")
    with pytest.raises(npugraph.NotFound) as missing:
        client.open("no-such-model", [1])
    assert missing.value.reason == "MODEL_NOT_FOUND"


def test_closed_objects_refuse(daemon: Daemon) -> None:
    client = npugraph.connect(daemon.address)
    graph, stream, buffer = client.graph(COUNTER, {"n": client.allocate(8)}), client.replay_stream(), client.allocate(8)
    prepared = stream.prepare(graph, 0, 0)
    prepared.run()
    client.close()
    client.close()
    for use in (graph.replay, lambda: stream.replay(graph), prepared.run, buffer.read, client.device,
                lambda: client.session):
        with pytest.raises(npugraph.Error) as caught:
            use()
        assert caught.value.reason == "SESSION_GONE"
    stream.close()
    graph.release()
    buffer.free()


def test_no_daemon_is_said() -> None:
    with pytest.raises(npugraph.Unreachable, match="is npugraphd running"):
        npugraph.connect("unix:/nonexistent/socket", timeout=5)


def test_a_kv_cache_has_the_dtype_that_load_is_given(client: npugraph.Client) -> None:
    client.load_model(str(MODEL), name="int8", max_batch=1, kv_dtype="int8", keep=False)
    (model,) = (m for m in client.models() if m.name == "int8")
    assert model.description.endswith("KV int8")
    with client.open("int8", [5, 6, 7]) as sequence:
        assert len(list(sequence.generate(8))) == 8
    with pytest.raises(npugraph.InvalidArgument, match="kv_dtype is int4"):
        client.load_model(str(MODEL), name="int4", kv_dtype="int4", keep=False)


def test_a_model_generates(client: npugraph.Client) -> None:
    seen: list[tuple[int, int]] = []
    client.load_model(str(MODEL), name="bible", keep=False, progress=lambda done, total: seen.append((done, total)))
    assert seen and 0 < seen[-1][0] == seen[-1][1]  # also if the daemon has the weights already
    (model,) = (m for m in client.models() if m.name == "bible")
    assert model.vocab == 2048 and model.max_context == 1024 and model.sequences == 0 and model.parameters == 2829504
    tokenizer = npugraph.Tokenizer(str(MODEL))
    prompt = tokenizer.encode("In the beginning")
    assert tokenizer.decode(prompt) == "In the beginning"
    with client.open("bible", prompt) as sequence:
        tokens = list(sequence.generate(20))
        assert len(tokens) == 20 and sequence.finish == "length"
        assert sequence.position == len(prompt)  # of the last step; a generation does not change it
    with client.open("bible", prompt) as sequence:
        stepped = [sequence.token, *(sequence.step().token for _ in range(19))]
        assert stepped == tokens
        step = sequence.step(token=5, want_logits=True)
        assert step.logits.shape == (len(tokenizer),) and int(step.logits.argmax()) == step.token
        assert sequence.fork().token == step.token
    with client.open("bible", prompt) as sequence:  # leaving the loop ends the generation, and the sequence goes on
        few = []
        for token in sequence.generate(200):
            few.append(token)
            if len(few) == 3:
                break
        assert few == tokens[:3] and sequence.step().position > len(prompt)
    sampled = client.open("bible", prompt, npugraph.Sampling(temperature=0.9, top_k=20, seed=7))
    again = client.open("bible", prompt, npugraph.Sampling(temperature=0.9, top_k=20, seed=7))
    assert list(sampled.generate(12)) == list(again.generate(12))
    first = tokens[0]
    others = [client.open("bible", prompt, npugraph.Sampling(logit_bias={first: -1e6})),
              client.open("bible", prompt, npugraph.Sampling(bad_words=((first,),)))]
    assert others[0].token == others[1].token != first
    biased = client.open("bible", prompt).fork(npugraph.Sampling(logit_bias={9: 1e6}))
    assert biased.token == 9
    with pytest.raises(npugraph.Error, match="min_p is 2"):
        client.open("bible", prompt, npugraph.Sampling(min_p=2))


def test_a_forked_child_leaves_the_connection_alone(client: npugraph.Client) -> None:
    buffer = client.allocate(8)
    child = os.fork()
    if child == 0:
        del buffer
        os._exit(0)
    os.waitpid(child, 0)
    assert len(buffer.read()) == 8


def test_the_readme_works(client: npugraph.Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    client.load_model(str(MODEL), name="bible", keep=False)
    monkeypatch.chdir(MODEL.parents[1])
    lines = re.findall(r"```python\n(.*?)```", (MODEL.parents[1] / "python" / "README.md").read_text(), re.S)
    exec(lines[0], {})
    assert len(capsys.readouterr().out) > 60 and len(lines[0].splitlines()) == 5
    exec(lines[1], {"npugraph": npugraph})  # the third one needs torch: test_compile.py has such
    assert len(capsys.readouterr().out.split()) == 60


def test_streams_of_text() -> None:
    tokenizer = npugraph.Tokenizer(str(MODEL))
    words = "He said: «é — 水»"
    ids = tokenizer.encode(words)
    stream = tokenizer.stream()
    assert "".join([*map(stream.add, ids), stream.end()]) == words
    assert tokenizer.encode("") == [] and tokenizer.decode([]) == ""
    with pytest.raises(npugraph.Error):
        npugraph.Tokenizer("/nonexistent")


def test_templates_and_stops_and_bytes() -> None:
    tokenizer = npugraph.Tokenizer(str(MODEL))
    assert b"".join(map(tokenizer.token_bytes, tokenizer.encode("a\0 水"))) == "a\0 水".encode()
    assert tokenizer.token_bytes(1 << 30) == b""
    stops = npugraph.Stops(["水b", "c\n"])
    assert [stops.add("a水"), stops.add("b "), stops.end()] == [("a", False), ("", True), ("", True)]
    stops = npugraph.Stops(["abc"])
    assert [stops.add("\0ab"), stops.end()] == [("\0", False), ("ab", False)]
    with pytest.raises(npugraph.InvalidArgument, match="empty"):
        npugraph.Stops([""])
    with pytest.raises(npugraph.NotFound, match="no chat template"):
        npugraph.ChatTemplate(MODEL)


def test_a_chat_template_renders(tmp_path: pathlib.Path) -> None:
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}|{{ add_generation_prompt }}|{{ tools }}")
    template = npugraph.ChatTemplate(tmp_path)
    for words in ("hi", "\0 水 \U0001f642", "{{ 1 }}"):
        assert template.render([{"role": "user", "content": words}]) == f"{words}|True|None"
    assert template.render([{"content": "a"}], tools=[{"b": 1}], generation_prompt=False) == "a|False|[{'b': 1}]"
    template.close()


def test_threads_share_a_client(client: npugraph.Client) -> None:
    graph = client.graph(LINEAR, {"w": client.upload(np.eye(4, 16, dtype=np.float32))})
    wrong: list[object] = []

    def work(seed: int) -> None:
        x = np.full((1, 16), seed, np.float32)
        for _ in range(50):
            y = np.frombuffer(graph.replay([x], symbols=[1])[0], np.float32)
            if not (y == seed).all():
                wrong.append(y)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
