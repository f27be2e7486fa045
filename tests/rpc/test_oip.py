#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Open Inference Protocol: what each method answers, each refusal, and malformed requests."""
import itertools
import queue
import random
import struct

from harness import *
from oip_client import *
from shared import locked

# ---- the server and its models -----------------------------------------------------------------------------------------

@test("a server that serves is live and ready, and says what it is")
@with_mlp
def server(daemon, c, o):
    assert o("ServerLive").live and o("ServerReady").ready
    meta = o("ServerMetadata")
    assert meta.name == "npugraphd" and meta.version and "statistics" in meta.extensions and "system_shared_memory" not in meta.extensions


@test("a graph is a model of its name while its session has it; its versions are its registrations, the newest last")
def names(daemon):
    with Client(daemon) as c, Client(daemon) as other, Oip(daemon) as o:
        assert not o("ModelReady", name="mlp").ready
        first, second = register_mlp(c), register_mlp(other, [2 * w for w in WEIGHTS])
        assert o("ModelReady", name="mlp").ready
        versions = list(o("ModelMetadata", name="mlp").versions)
        assert len(versions) == 2 and int(versions[0]) < int(versions[1])
        old, new = (unpack(o.infer(mlp(model_version=v)).raw_output_contents[0]) for v in versions)
        assert old == linear(rows(2)) and new == [2 * y for y in old]
        got = o.infer(mlp())
        assert got.model_version == versions[1] and unpack(got.raw_output_contents[0]) == new
        mine = Oip(daemon, metadata=c.metadata())  # a call that names a session has the graphs of that session alone
        assert list(mine("ModelMetadata", name="mlp").versions) == versions[:1]
        mine.channel.close()
        other.call("Graphs/Release", pb.ReleaseRequest(graph=second))
        assert o.infer(mlp()).model_version == versions[0]
        for version in (versions[1], "0", "x", "99999999999999999999999"):
            got = refused("MODEL_NOT_FOUND", "NOT_FOUND", o.infer, mlp(model_version=version))
            assert "has no version" in got.text
        c.call("Graphs/Release", pb.ReleaseRequest(graph=first))
        assert not o("ModelReady", name="mlp").ready
        refused("MODEL_NOT_FOUND", "NOT_FOUND", o, "ModelMetadata", name="mlp")
        register_mlp(c)
        c.end_session()
        until("the graph goes with its session", lambda: not o("ModelReady", name="mlp").ready)
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", o, "ModelMetadata", name="")


@test("bound anew, a graph has a new version")
def bound_anew(daemon):
    with Client(daemon) as c, Oip(daemon) as o:
        graph = register_mlp(c)
        before = o.infer(mlp()).model_version
        w = c.allocate(48)
        c.write(w, pack([1.0] * 12))
        bind = pb.BindRequest(graph=graph)
        bind.bindings.add(name="w", buffer=w)
        c.call("Graphs/Bind", bind)
        got = o.infer(mlp())
        assert int(got.model_version) > int(before) and unpack(got.raw_output_contents[0]) == [6.0] * 3 + [22.0] * 3
        refused("MODEL_NOT_FOUND", "NOT_FOUND", o.infer, mlp(model_version=before))


@test("metadata and configuration of a graph: labels, datatypes, -1 for sizes that vary, its digest and the ranges of its symbols")
@with_mlp
def metadata(daemon, c, o):
    meta = o("ModelMetadata", name="mlp")
    assert (meta.name, meta.platform) == ("mlp", "npugraph_graph")
    assert [(t.name, t.datatype, list(t.shape)) for t in meta.inputs] == [("x", "FP32", [-1, 4])]
    assert [(t.name, t.datatype, list(t.shape)) for t in meta.outputs] == [("y", "FP32", [-1, 3]), ("z", "FP32", [-1, 3])]
    assert meta.properties["symbol.B"] == "1..16" and len(meta.properties["digest"]) == 64 and meta.properties["device"].startswith("host")
    config = o("ModelConfig", name="mlp").config
    assert (config.name, config.max_batch_size, config.backend) == ("mlp", 0, "npugraph") and not config.model_transaction_policy.decoupled
    assert [(t.name, t.data_type, list(t.dims)) for t in config.input] == [("x", oip.TYPE_FP32, [-1, 4])]
    assert [(t.name, t.data_type, list(t.dims)) for t in config.output] == [("y", oip.TYPE_FP32, [-1, 3]), ("z", oip.TYPE_FP32, [-1, 3])]


@test("other identities neither see nor run a graph; over plaintext TCP only the session's token shows it")
def strangers(_daemon):
    with Daemon("--listen=tcp:127.0.0.1:0", "--allow-plaintext=yes", f"--token-file={token_file('strangers', 'a', 'b')}") as d:
        tcp = d.listening("tcp")
        with Client(d, bearer=token("a")) as a, Client(d, address=tcp) as plain, Oip(d, metadata=bearer("a")) as mine, \
                Oip(d, metadata=bearer("b")) as other, Oip(d) as root, Oip(d, tcp) as open_tcp, Oip(d, tcp, metadata=plain.metadata()) as with_token, \
                Oip(d, tcp, metadata=bearer("a")) as a_tcp:
            register_mlp(a)
            assert mine.infer(mlp()).outputs and a_tcp.infer(mlp()).outputs
            for o in (other, root, open_tcp, with_token):
                assert not o("ModelReady", name="mlp").ready and not o("RepositoryIndex").models and not o("ModelStatistics").model_stats
                refused("MODEL_NOT_FOUND", "NOT_FOUND", o.infer, mlp())
            register_mlp(plain)
            assert with_token.infer(mlp()).outputs
            got = refused("MODEL_NOT_FOUND", "NOT_FOUND", open_tcp.infer, mlp())
            assert "npugraph-session-token-bin" in got.text


# ---- infer ----------------------------------------------------------------------------------------------------------------

@test("results are exact at each size; the id comes back; outputs are those asked for, in their order, else all")
@with_mlp
def numerics(daemon, c, o):
    for n in (1, 2, 5, 16):
        got = o.infer(mlp(n, id=f"request {n}"))
        assert (got.id, got.model_name) == (f"request {n}", "mlp") and not got.parameters
        assert [(t.name, t.datatype, list(t.shape)) for t in got.outputs] == [("y", "FP32", [n, 3]), ("z", "FP32", [n, 3])]
        assert unpack(got.raw_output_contents[0]) == linear(rows(n)) and unpack(got.raw_output_contents[1]) == [-y for y in linear(rows(n))]
    got = o.infer(mlp(2, outputs=["z"]))
    assert [t.name for t in got.outputs] == ["z"] and len(got.raw_output_contents) == 1
    assert unpack(got.raw_output_contents[0]) == [-y for y in linear(rows(2))]
    assert [t.name for t in o.infer(mlp(2, outputs=["z", "y"])).outputs] == ["z", "y"]


@test("elements one by one are taken, packed and not packed, and with the fields of the message in any order")
@with_mlp
def typed(daemon, c, o):
    q = request(inputs=[("x", "FP32", [2, 4], None)])
    q.inputs[0].contents.fp32_contents.extend(rows(2))
    assert unpack(o.infer(q).raw_output_contents[0]) == linear(rows(2))
    apart = b"".join(b"\x35" + pack([v]) for v in rows(2))  # field 6, fixed32, each alone
    tensor = b"\x0a\x01x\x12\x04FP32\x18\x02\x18\x04\x2a" + bytes([len(apart)]) + apart  # shape is not packed either
    assert unpack(o.infer(b"\x0a\x03mlp\x2a" + bytes([len(tensor)]) + tensor).raw_output_contents[0]) == linear(rows(2))
    raw = b"\x3a\x20" + pack(rows(2))  # raw contents in front of all that they belong to
    assert unpack(o.infer(raw + encode(request(inputs=[("x", "FP32", [2, 4], None)]))).raw_output_contents[0]) == linear(rows(2))


@test("each type goes in and out with its bits, raw and, but for FP16 and BF16, one by one")
def types(daemon):
    values = {"f32": [1.5, -2.0, 3.25], "f16": [1.5, -2.0, 3.25], "bf16": [], "i8": [-128, 0, 127], "u8": [0, 5, 255], "i32": [-2**31, 0, 2**31 - 1],
              "i64": [-2**63, 0, 2**63 - 1], "bool": [True, False, True]}
    fields = {"f32": "fp32_contents", "i8": "int_contents", "u8": "uint_contents", "i32": "int_contents", "i64": "int64_contents", "bool": "bool_contents"}
    with Client(daemon) as c, Oip(daemon) as o:
        for dtype, (datatype, code) in TYPES.items():
            c.register(f'npugraph 1\ngraph "t_{dtype}" {{\n  input %x : {dtype}[3]\n  %y = aten.clone(%x)\n  return "y" = %y\n}}\n')
            data = pack(values[dtype], code) if code else struct.pack("<3H", 0x3fc0, 0xc000, 0x4050)
            got = o.infer(request(f"t_{dtype}", inputs=[("x", datatype, [3], data)]))
            assert got.outputs[0].datatype == datatype and got.raw_output_contents[0] == data, dtype
            assert o("ModelMetadata", name=f"t_{dtype}").inputs[0].datatype == datatype
            assert oip.DataType.Name(o("ModelConfig", name=f"t_{dtype}").config.input[0].data_type) == f"TYPE_{datatype}"
            q = request(f"t_{dtype}", inputs=[("x", datatype, [3], None)])
            q.inputs[0].contents.SetInParent()
            if dtype in fields:
                getattr(q.inputs[0].contents, fields[dtype]).extend(values[dtype])
                assert o.infer(q).raw_output_contents[0] == data, dtype
            else:
                q.inputs[0].contents.fp32_contents.extend([1.0] * 3)
                got = refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", o.infer, q)
                assert "only raw" in got.text
        for dtype, bad in (("i8", 128), ("i8", -129), ("u8", 256)):
            q = request(f"t_{dtype}", inputs=[("x", TYPES[dtype][0], [3], None)])
            getattr(q.inputs[0].contents, fields[dtype]).extend([0, 0, bad])
            assert "element 2 does not fit" in refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", o.infer, q).text


@test("host parameters are inputs of INT64; sizes come from shapes, from expressions of them, or from a parameter")
def sizes(daemon):
    text = """npugraph 1
graph "sizes" {
  sym B 1..8
  sym N 1..64
  input %x : f32[B*2,N+1]
  host %k : i64[]
  %y = aten.mul.Scalar(%x, %k)
  return "y" = %y
}
"""
    with Client(daemon) as c, Oip(daemon) as o:
        try:
            c.register(text)
        except grpc.RpcError:
            text = text.replace("  host %k : i64[]\n", "").replace("aten.mul.Scalar(%x, %k)", "aten.neg(%x)")
            c.register(text)
        host = "host %k" in text
        inputs = [("x", "FP32", [6, 5], pack([1.0] * 30)), *([("k", "INT64", [1], pack([2], "q"))] if host else [])]
        got = o.infer(request("sizes", inputs=inputs))
        assert list(got.outputs[0].shape) == [6, 5] and unpack(got.raw_output_contents[0]) == [2.0 if host else -1.0] * 30
        for shape in ([5, 5], [6, 0], [18, 5], [6, 66]):
            bad = [("x", "FP32", shape, bytes(4 * shape[0] * shape[1])), *inputs[1:]]
            refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", o.infer, request("sizes", inputs=bad))


@test("a size that no input tells is a parameter of the request")
def free_symbol(daemon):
    text = """npugraph 1
graph "free" {
  sym N 1..64
  input %x : f32[1]
  %y = aten.expand(%x) {size=[N]}
  return "y" = %y
}
"""
    with Client(daemon) as c, Oip(daemon) as o:
        c.register(text)
        q = [("x", "FP32", [1], pack([3.0]))]
        assert "symbol.N" in refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", o.infer, request("free", inputs=q)).text
        got = o.infer(request("free", inputs=q, parameters={"symbol.N": 7}))
        assert unpack(got.raw_output_contents[0]) == [3.0] * 7
        for bad in ({"symbol.N": 65}, {"symbol.N": -1}, {"symbol.M": 7}, {"symbol.N": "7"}):
            refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", o.infer, request("free", inputs=q, parameters=bad))


@test("sizes are not looked for in expressions without end: what takes too long is a parameter of the request")
@with_mlp
def hard_sizes(daemon, c, o):
    def graph(name, n):
        inputs = "".join(f"  input %x{i} : f32[{','.join(f'mod(max(mod(S, {8 * i + d + 3}), mod(S, {8 * i + d + 4})), 2) + 1' for d in range(8))}]\n" for i in range(n))
        c.register(f'npugraph 1\ngraph "{name}" {{\n  sym S 1..{2**31 - 1}\n{inputs}  input %y : f32[1]\n  %z = aten.neg(%y)\n  return "z" = %z\n}}\n')
        return request(name, inputs=[*((f"x{i}", "FP32", [0] * 8, b"") for i in range(n)), ("y", "FP32", [1], bytes(4))])

    few, many = graph("few", 2), graph("many", 200)
    assert "do not tell" in refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", o.infer, few).text
    assert "takes too long" in refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", o.infer, many).text
    assert daemon.alive()


X = ("x", "FP32", [2, 4], pack(rows(2)))


def contents(q, *values):
    q.inputs[0].contents.fp32_contents.extend(values)
    return q


def wrong_requests():
    """Yields (what the refusal says, request)."""
    yield "has no input", request(inputs=[("q", "FP32", [2, 4], pack(rows(2)))])
    yield "0 inputs", request()
    yield "2 inputs", request(inputs=[X, X])
    yield "datatype", request(inputs=[("x", "INT32", [2, 4], pack(rows(2)))])
    yield "dimensions", request(inputs=[("x", "FP32", [8], pack(rows(2)))])
    yield "negative", request(inputs=[("x", "FP32", [-2, 4], pack(rows(2)))])
    yield "too large", request(inputs=[("x", "FP32", [2**62, 8], pack(rows(2)))])
    yield "overflows", request(inputs=[("x", "FP32", [2**61, 4], pack(rows(2)))])
    yield "bytes in raw_input_contents", request(inputs=[("x", "FP32", [3, 4], pack(rows(2)))])
    yield "x", request(inputs=[("x", "FP32", [2, 5], pack([0.0] * 10))])
    yield "B", request(inputs=[("x", "FP32", [17, 4], pack(rows(17)))])
    yield "no data", request(inputs=[("x", "FP32", [2, 4], None)])
    yield "raw_input_contents has 2", (lambda q: (q.raw_input_contents.append(b"extra"), q)[1])(mlp())
    yield "in one way only", contents(mlp(), *rows(2))
    yield "contents have 7 elements", contents(request(inputs=[("x", "FP32", [2, 4], None)]), *rows(2)[:7])
    yield "of other types", (lambda q: (q.inputs[0].contents.int_contents.append(1), q)[1])(contents(request(inputs=[("x", "FP32", [2, 4], None)]), *rows(2)))
    yield "requested twice", mlp(outputs=["y", "y"])
    yield "classification", mlp(outputs=[("y", {"classification": 3})])
    yield "not known", mlp(parameters={"nonsense": 1})
    yield "not known", mlp(parameters={"triton_nonsense": 1})
    yield "not known", mlp(parameters={"temperature": 1.0})
    yield "has no states", mlp(parameters={"sequence_id": 5, "sequence_start": True})
    yield "must be an integer", mlp(parameters={"timeout": "soon"})
    yield "it must be 0 to", mlp(parameters={"priority": -1})
    yield "must be a boolean", mlp(parameters={"triton_enable_empty_final_response": 1})
    yield "go together", request(inputs=[("x", "FP32", [2, 4], None, {"shared_memory_region": "r"})])
    yield "go together", request(inputs=[("x", "FP32", [2, 4], None, {"shared_memory_byte_size": 32})])
    yield "go together", mlp(outputs=[("y", {"shared_memory_offset": 32})])
    yield "only shared_memory_region", request(inputs=[("x", "FP32", [2, 4], pack(rows(2)), {"binary_data": True})])
    yield "is not valid", request(inputs=[("x", "FP32", [2, 4], None, {"shared_memory_region": 7, "shared_memory_byte_size": 32})])
    yield "more than 256 elements", mlp(outputs=["y"] * 257)
    yield "more than 256 elements", mlp(raw_input_contents=[b""] * 257)
    yield "more than 8 elements", request(inputs=[("x", "FP32", [1] * 9, pack(rows(2)))])


@test("each wrong request is refused with INVALID_ARGUMENT and a sentence; on a stream the next one is served all the same")
@with_mlp
def wrong(daemon, c, o):
    for what, q in wrong_requests():
        got = refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", o.infer, q)
        assert what in got.text, (what, got.text)
        bad, good = o.stream(q, mlp())
        assert bad.error_message == got.text and not good.error_message, (bad, got.text)
        assert unpack(good.infer_response.raw_output_contents[0]) == linear(rows(2))
    got = refused("OUTPUT_UNKNOWN", "INVALID_ARGUMENT", o.infer, mlp(outputs=["nobody"]))
    assert "nobody" in got.text
    refused("NOT_FOUND", "NOT_FOUND", o.infer, request(inputs=[("x", "FP32", [2, 4], None, {"shared_memory_region": "r", "shared_memory_byte_size": 32})]))
    refused("MODEL_NOT_FOUND", "NOT_FOUND", o.infer, mlp(model="nobody"))
    refused("MALFORMED_MESSAGE", "INVALID_ARGUMENT", o.infer, b"\x0a\xff")
    refused("MALFORMED_MESSAGE", "INVALID_ARGUMENT", o.infer, b"\x38\x01")
    refused("MESSAGE_TOO_LARGE", "RESOURCE_EXHAUSTED", o.infer, mlp(id="x" * (5 << 20)))
    assert daemon.alive()


@test("requests to a graph with states run one after another, also with several slots")
def states(_daemon):
    text = '''npugraph 1
graph "counter" {
  state %s : i32[65536] = "s"
  input %x : i32[1]
  %next = aten.add.Tensor(%s, %x)
  aten.copy_(%s, %next)
  %y = aten.amax(%next) {dim=[0]}
  return "y" = %y
}
'''
    with Daemon("--slots=2", "--inline-limit=0") as d, Client(d) as c, Oip(d) as o:
        buffer = c.allocate(4 * 65536)
        c.register(text, {"s": buffer})
        infer, q = o.method("ModelInfer"), request("counter", inputs=[("x", "INT32", [1], pack([1], "i"))])
        calls = [infer.future(q, timeout=PATIENCE) for _ in range(300)]
        assert sorted(unpack(call.result().raw_output_contents[0], "i")[0] for call in calls) == list(range(1, 301))
        assert set(unpack(c.read(buffer), "i")) == {300}


@test("timeout is a deadline, in microseconds; priority is taken")
@with_mlp
def parameters(daemon, c, o):
    refused("DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED", o.infer, mlp(7, parameters={"timeout": 1}))  # a size that was not captured yet
    for priority in (0, 1, 2, 3, 2**40):
        assert o.infer(mlp(parameters={"priority": priority, "timeout": 10**9})).outputs
    q = mlp()
    q.parameters["priority"].uint64_param = 1
    assert o.infer(q).outputs
    q.parameters["priority"].uint64_param = 2**63
    refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", o.infer, q)


@test("a request id makes a repetition in a session the first one's answer")
@with_mlp
def repeated(daemon, c, o):
    data = [("npugraph-request-id", "r1"), *c.metadata()]
    assert o.infer(mlp(1), metadata=data) == o.infer(mlp(1), metadata=data)
    assert o("ModelStatistics", name="mlp").model_stats[0].inference_count == 1
    assert o.infer(mlp(1)) == o.infer(mlp(1)) and o("ModelStatistics", name="mlp").model_stats[0].inference_count == 3


# ---- streams -----------------------------------------------------------------------------------------------------------

@test("requests of a stream are answered with their ids and triton_final_response, however many are sent before the first answer is read")
@with_mlp
def stream(daemon, c, o):
    answers = o.stream(*(mlp(1 + i % 16, first=i, id=str(i)) for i in range(50)))
    assert sorted(int(a.infer_response.id) for a in answers) == list(range(50))
    for a in answers:
        i = int(a.infer_response.id)
        assert not a.error_message and a.infer_response.parameters["triton_final_response"].bool_param
        assert unpack(a.infer_response.raw_output_contents[0]) == linear(rows(1 + i % 16, i))
    assert o.stream() == []


@test("an error of a stream has the request's id and an OK status; with triton_grpc_error the stream ends with the status")
@with_mlp
def stream_errors(daemon, c, o):
    bad = mlp(model="nobody", id="7")
    first, second = o.stream(bad, mlp(id="8"))
    assert "nobody" in first.error_message and first.infer_response.id == "7" and second.infer_response.id == "8"
    refused("MODEL_NOT_FOUND", "NOT_FOUND", o.stream, bad, mlp(), metadata=[("triton_grpc_error", "true")])
    first, = o.stream(b"\x0a\xff")
    assert "ModelInferRequest" in first.error_message
    until("the streams are over", lambda: daemon.stats()["requests"]["in_flight"] <= 1)


@test("a client that goes away in the middle of a stream leaves nothing behind")
@with_mlp
def stream_gone(daemon, c, o):
    for _ in range(5):
        requests = queue.Queue()
        call = o.method("ModelStreamInfer")(iter(requests.get, None), timeout=PATIENCE)
        for i in range(10):
            requests.put(mlp(1 + i))
        next(call)
        call.cancel()
        requests.put(None)
    until("all calls are over", lambda: daemon.stats()["requests"]["in_flight"] <= 1)
    assert unpack(o.infer(mlp()).raw_output_contents[0]) == linear(rows(2))


# ---- language models -------------------------------------------------------------------------------------------------------

PROMPT = [5, 6, 7]


def prompt(tokens=PROMPT, datatype="INT64", shape=None, model="lm", **kwargs):
    code = "q" if datatype == "INT64" else "i"
    return request(model, inputs=[("input_ids", datatype, shape or [len(tokens)], pack(tokens, code))], **kwargs)


def tokens_of(answers):
    assert not any(a.error_message for a in answers), answers
    return [t for a in answers for raw in a.infer_response.raw_output_contents for t in unpack(raw, "q")]


def with_model(fn):
    def wrapped(daemon):
        load(daemon)
        try:
            with Oip(daemon) as o:
                fn(daemon, o)
            until("no sequence and no session is left", lambda: daemon.stats()["sequences"]["open"] == 0 and daemon.stats()["sessions"]["open"] == 0)
        finally:
            unload(daemon)
    wrapped.__name__ = fn.__name__
    return wrapped


@test("a language model streams the tokens that Sequences.Generate has; the last response says so, and why it ends")
@with_model
def generation(daemon, o):
    with Client(daemon) as c:
        sequence = c.call("Sequences/Open", pb.OpenRequest(model="lm", prompt=PROMPT)).sequence
        expected = [t for m in c.call("Sequences/Generate", pb.GenerateRequest(sequence=sequence, max_tokens=24, ignore_stop=True)) for t in m.tokens]
    how = {"max_tokens": 24, "ignore_stop": True, "triton_enable_empty_final_response": True}
    for q in (prompt(parameters=how), prompt(datatype="INT32", parameters=how), prompt(shape=[1, 3], parameters=how)):
        answers = o.stream(q)
        assert tokens_of(answers) == expected
        finals = [a.infer_response.parameters["triton_final_response"].bool_param for a in answers]
        assert finals == [False] * (len(finals) - 1) + [True]
        assert answers[-1].infer_response.parameters["finish_reason"].string_param == "length"
        assert all(t.name == "output_ids" and t.datatype == "INT64" for a in answers for t in a.infer_response.outputs)
    q = request("lm", inputs=[("input_ids", "INT64", [3], None)], parameters=how)
    q.inputs[0].contents.int64_contents.extend(PROMPT)
    assert tokens_of(o.stream(q)) == expected
    del how["triton_enable_empty_final_response"]
    answers = o.stream(prompt(parameters=how))
    assert tokens_of(answers) == expected and all(a.infer_response.outputs for a in answers)
    assert len(tokens_of(o.stream(prompt(parameters={"ignore_stop": True})))) == 16  # the default


@test("requests of a stream to a language model and to a graph run side by side, each with the tokens that it has alone")
@with_model
def side_by_side(daemon, o):
    prompts = [[5 + i, 6, 7 + i] for i in range(12)]
    how = {"max_tokens": 20, "ignore_stop": True, "temperature": 0.8, "top_k": 40, "seed": 9}
    alone = [tokens_of(o.stream(prompt(p, parameters=how))) for p in prompts]
    assert len({tuple(a) for a in alone}) > 6
    with Client(daemon) as c:
        register_mlp(c)
        answers = o.stream(*(prompt(p, id=str(i), parameters=how) for i, p in enumerate(prompts)), mlp(id="graph"))
    for i in range(12):
        assert tokens_of([a for a in answers if a.infer_response.id == str(i)]) == alone[i]
    graph, = [a for a in answers if a.infer_response.id == "graph"]
    assert unpack(graph.infer_response.raw_output_contents[0]) == linear(rows(2))


@test("what a language model does not take is refused")
@with_model
def generation_refusals(daemon, o):
    for what, q in (("input_ids", mlp(model="lm")), ("shape", prompt(shape=[3, 1])), ("shape", prompt([], shape=[0])), ("datatype", prompt(datatype="FP32", shape=[3])),
                    ("data of 4 tokens", prompt(shape=[4])), ("-1", prompt([5, -1])), (str(2**40), prompt([2**40])), ("output_ids", prompt(outputs=["text"])),
                    ("max_tokens", prompt(parameters={"max_tokens": 0})), ("not known", prompt(parameters={"symbol.B": 1})),
                    ("finite", prompt(parameters={"temperature": float("nan")})), ("top_p", prompt(parameters={"top_p": 1.5})), ("sequence_start", prompt(parameters={"sequence_id": 3})),
                    ("2047", prompt([99999])), ("context", prompt([5] * 2000)), ("has no version", prompt(model_version="2")), ("shared", prompt(outputs=[("output_ids", {"shared_memory_region": "r", "shared_memory_byte_size": 8})]))):
        answer, = o.stream(q)
        assert what in answer.error_message and not answer.infer_response.outputs, (what, answer)
    meta = o("ModelMetadata", name="lm")
    assert (meta.platform, list(meta.versions)) == ("npugraph_language_model", ["1"])
    assert [(t.name, t.datatype, list(t.shape)) for t in (*meta.inputs, *meta.outputs)] == [("input_ids", "INT64", [-1]), ("output_ids", "INT64", [-1])]
    assert o("ModelConfig", name="lm").config.model_transaction_policy.decoupled


@test("a cancelled stream ends its generations; so does a model that is unloaded by force, which the client is told")
def generation_ends(daemon):
    load(daemon)
    with Oip(daemon) as o:
        how = {"max_tokens": 900, "ignore_stop": True}
        call = o.method("ModelStreamInfer")(itertools.chain([prompt(parameters=how)] * 3, iter(queue.Queue().get, None)), timeout=PATIENCE)
        next(call)
        call.cancel()
        until("all sequences are closed", lambda: daemon.stats()["sequences"]["open"] == 0 and daemon.stats()["sessions"]["open"] == 0)
        requests = queue.Queue()
        call = o.method("ModelStreamInfer")(iter(requests.get, None), timeout=PATIENCE)
        requests.put(prompt(parameters=how))
        answers = [next(call)]
        unload(daemon)
        requests.put(None)
        answers += list(call)
        assert len(tokens_of([a for a in answers if not a.error_message])) == 900 or answers[-1].error_message, answers[-1]
        until("the session is over", lambda: daemon.stats()["sessions"]["open"] == 0)


# ---- statistics and the repository ---------------------------------------------------------------------------------------

@test("statistics count requests that named a graph, good and bad, and the tokens of a language model")
@with_mlp
def statistics(daemon, c, o):
    for _ in range(3):
        o.infer(mlp())
    refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", o.infer, mlp(outputs=["y", "y"]))
    s, = o("ModelStatistics", name="mlp").model_stats
    assert (s.name, s.inference_count, s.execution_count, s.inference_stats.success.count, s.inference_stats.fail.count) == ("mlp", 3, 3, 3, 1)
    assert s.last_inference > 0 and s.inference_stats.success.ns >= s.inference_stats.compute_infer.ns > 0
    assert [x.name for x in o("ModelStatistics").model_stats] == ["mlp"]
    assert [x.version for x in o("ModelStatistics", name="mlp", version=s.version).model_stats] == [s.version]
    refused("MODEL_NOT_FOUND", "NOT_FOUND", o, "ModelStatistics", name="nobody")
    load(daemon)
    o.stream(prompt(parameters={"max_tokens": 5, "ignore_stop": True}))
    lm, = o("ModelStatistics", name="lm").model_stats
    assert lm.inference_count >= 7 and lm.execution_count >= 2
    unload(daemon)


@test("the index lists graphs and language models; load finds what is loaded, and unload unloads a language model")
@with_mlp
def repository(daemon, c, o):
    load(daemon)
    assert sorted((m.name, m.state) for m in o("RepositoryIndex").models if m.name in ("lm", "mlp")) == [("lm", "READY"), ("mlp", "READY")]
    o("RepositoryModelLoad", model_name="lm")
    o("RepositoryModelLoad", model_name="mlp")
    got = refused("UNIMPLEMENTED", "UNIMPLEMENTED", o, "RepositoryModelLoad", model_name="nobody")
    assert "npugraphctl load" in got.text
    q = oip.RepositoryModelLoadRequest(model_name="lm")
    q.parameters["config"].string_param = "{}"
    refused("UNIMPLEMENTED", "UNIMPLEMENTED", o, "RepositoryModelLoad", q)
    refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", o, "RepositoryIndex", repository_name="elsewhere")
    refused("UNIMPLEMENTED", "UNIMPLEMENTED", o, "RepositoryModelUnload", model_name="mlp")
    q = oip.RepositoryModelUnloadRequest(model_name="lm")
    q.parameters["unload_dependents"].bool_param = True
    refused("UNIMPLEMENTED", "UNIMPLEMENTED", o, "RepositoryModelUnload", q)
    q.parameters["unload_dependents"].bool_param = False
    o("RepositoryModelUnload", q)
    assert "lm" not in [m.name for m in o("RepositoryIndex").models]
    refused("MODEL_NOT_FOUND", "NOT_FOUND", o, "RepositoryModelUnload", model_name="lm")


@test("traces, logs and CUDA shared memory are refused with a sentence")
def refusals(daemon):
    with Oip(daemon) as o:
        for method in ("TraceSetting", "LogSettings", "CudaSharedMemoryRegister"):
            refused("UNIMPLEMENTED", "UNIMPLEMENTED", o, method)
        for method in ("CudaSharedMemoryStatus", "CudaSharedMemoryUnregister"):
            refused("UNIMPLEMENTED", "UNIMPLEMENTED", o, method, name="r")
        o("CudaSharedMemoryUnregister")  # clients that use none remove all, to begin with
        assert not o("CudaSharedMemoryStatus").regions


# ---- shared memory -----------------------------------------------------------------------------------------------------------

class Shm:
    """An object of POSIX shared memory, as shm_open makes it."""
    count = 0

    def __init__(self, size, mode=0o600, uid=None):
        Shm.count += 1
        self.key = f"/npugraphd-test-p{os.getpid()}-{Shm.count}"
        self.path = pathlib.Path("/dev/shm" + self.key)
        self.path.touch(mode)
        os.truncate(self.path, size)
        if uid is not None:
            os.chown(self.path, uid, uid)
        self.path.chmod(mode)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.path.unlink(missing_ok=True)


def regions(o, name=""):
    return {k: (v.key, v.offset, v.byte_size) for k, v in o("SystemSharedMemoryStatus", name=name).regions.items()}


def in_region(region, size, offset=0):
    return {"shared_memory_region": region, "shared_memory_byte_size": size, **({"shared_memory_offset": offset} if offset else {})}


def need_shm():
    if not os.access("/dev/shm", os.W_OK):
        raise Skip("/dev/shm cannot be written")


@test("regions are registered, listed and removed; inputs and outputs go through them")
def shared_memory(_daemon):
    need_shm()
    with Daemon("--oip-shared-memory=yes") as d, Client(d) as c, Oip(d) as o, Shm(4096) as a, Shm(4096) as b:
        register_mlp(c)
        assert "system_shared_memory" in o("ServerMetadata").extensions and regions(o) == {}
        o("SystemSharedMemoryRegister", name="in", key=a.key, offset=64, byte_size=1024)
        o("SystemSharedMemoryRegister", name="out", key=b.key, byte_size=4096)
        assert regions(o) == {"in": (a.key, 64, 1024), "out": (b.key, 0, 4096)} and regions(o, "in") == {"in": (a.key, 64, 1024)}
        with open(a.path, "r+b") as f:
            f.seek(64 + 32)
            f.write(pack(rows(3)))
        q = request(inputs=[("x", "FP32", [3, 4], None, in_region("in", 48, 32))], outputs=["y", ("z", in_region("out", 100, 200))])
        for ask in (lambda: o.infer(q), lambda: o.stream(q)[0].infer_response):
            answer = ask()
            assert unpack(answer.raw_output_contents[0]) == linear(rows(3)) and answer.raw_output_contents[1] == b""
            assert unpack(b.path.read_bytes()[200:236]) == [-y for y in linear(rows(3))], b.path.read_bytes()[200:236]
            b.path.write_bytes(bytes(4096))
        for what, bad in (("need 48", in_region("in", 44, 32)), ("outside", in_region("in", 48, 1000)), ("outside", in_region("in", 48, 2**62))):
            got = refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", o.infer, request(inputs=[("x", "FP32", [3, 4], None, bad)]))
            assert what in got.text, got.text
        for bad in (in_region("out", 35), in_region("out", 36, 4090)):
            refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", o.infer, mlp(3, outputs=[("y", bad)]))
        refused("NOT_FOUND", "NOT_FOUND", o.infer, mlp(3, outputs=[("y", in_region("nobody", 36))]))
        refused("ALREADY_EXISTS", "ALREADY_EXISTS", o, "SystemSharedMemoryRegister", name="in", key=b.key, byte_size=8)
        o("SystemSharedMemoryUnregister", name="in")
        refused("NOT_FOUND", "NOT_FOUND", o, "SystemSharedMemoryUnregister", name="in")
        refused("NOT_FOUND", "NOT_FOUND", o, "SystemSharedMemoryStatus", name="in")
        refused("NOT_FOUND", "NOT_FOUND", o.infer, q)
        o("SystemSharedMemoryUnregister")
        assert regions(o) == {}


@test("an object that becomes shorter is an error of the requests that use it, and is not made longer")
def shorter(_daemon):
    need_shm()
    with Daemon("--oip-shared-memory=yes") as d, Client(d) as c, Oip(d) as o, Shm(4096) as a:
        register_mlp(c)
        o("SystemSharedMemoryRegister", name="r", key=a.key, byte_size=4096)
        os.truncate(a.path, 0)
        q = request(inputs=[("x", "FP32", [3, 4], None, in_region("r", 48))])
        assert "shorter" in refused("IO", "INTERNAL", o.infer, q).text
        assert "shorter" in refused("IO", "INTERNAL", o.infer, mlp(3, outputs=[("y", in_region("r", 36))])).text
        assert a.path.stat().st_size == 0
        a.path.unlink()
        assert unpack(o.infer(mlp()).raw_output_contents[0]) == linear(rows(2))


@test("a client that holds the lock of its object stops no thread of the daemon")
def held_lock(_daemon):
    need_shm()
    with Daemon("--oip-shared-memory=yes") as d, Client(d) as c, Oip(d) as o, Shm(12288) as a, open(a.path, "rb+") as f:
        register_mlp(c)
        o("SystemSharedMemoryRegister", name="r", key=a.key, offset=4100, byte_size=4096)
        with locked(f.fileno()):
            for _ in range(5):
                o.infer(mlp(3, outputs=[("y", in_region("r", 36, 8))]))
        assert unpack(a.path.read_bytes()[4108:4144]) == linear(rows(3))


@test("keys that are no objects, ranges outside them, and too many regions are refused")
def wrong_regions(_daemon):
    need_shm()
    with Daemon("--oip-shared-memory=yes", "--max-shared-buffers-per-identity=2") as d, Oip(d) as o, Shm(4096) as a:
        register = lambda **fields: o("SystemSharedMemoryRegister", **{"name": "r", "key": a.key, "byte_size": 8, **fields})  # noqa: E731
        for bad in ({"name": ""}, {"name": "n" * 256}, {"key": ""}, {"key": "/"}, {"key": "/.."}, {"key": "../etc/passwd"}, {"key": "/a/b"}, {"key": "k" * 300},
                    {"byte_size": 0}, {"byte_size": 4097}, {"offset": 4096}, {"offset": 2**64 - 4, "byte_size": 8}, {"byte_size": 2**64 - 1}):
            refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", register, **bad)
        refused("NOT_FOUND", "NOT_FOUND", register, key="/npugraphd-nobody")
        link = pathlib.Path(f"/dev/shm/npugraphd-test-p{os.getpid()}-link")
        link.symlink_to("/etc/passwd")
        try:
            refused("PERMISSION_DENIED", "PERMISSION_DENIED", register, key="/" + link.name)
        finally:
            link.unlink()
        register(name="a")
        register(name="b")
        refused("QUOTA", "RESOURCE_EXHAUSTED", register, name="c")
        o("SystemSharedMemoryUnregister", name="a")
        until("the region's place is free", lambda: not _fails(register, name="c"))


def _fails(fn, **kwargs):
    try:
        fn(**kwargs)
    except grpc.RpcError:
        return True
    return False


@test("regions are for users of the Unix socket, for their own objects, and each identity has its own")
def others_regions(_daemon):
    need_shm()
    if os.getuid() != 0:
        raise Skip("needs root, to be two users")
    with Daemon("--oip-shared-memory=yes", "--listen=tcp:127.0.0.1:0", "--allow-plaintext=yes", "--socket-mode=666", f"--token-file={token_file('regions', 'a')}") as d, \
            Oip(d) as o, Oip(d, d.listening("tcp")) as tcp, Oip(d, metadata=bearer("a")) as a, Shm(64) as mine, Shm(64, uid=1234) as theirs, \
            Shm(64, mode=0o666) as everybody:
        for stranger in (tcp, a):
            refused("PERMISSION_DENIED", "PERMISSION_DENIED", stranger, "SystemSharedMemoryRegister", name="r", key=mine.key, byte_size=64)
            assert regions(stranger) == {}
        o("SystemSharedMemoryRegister", name="r", key=mine.key, byte_size=64)
        for directory in (SCRATCH, d.dir):
            directory.chmod(0o755)
        code = f"""
oip = importlib.import_module("proto.inference_pb2")
os.setgroups([]); os.setgid(1234); os.setuid(1234)
c = grpc.insecure_channel({d.address!r})
call = lambda m, q, r: getattr(c, 'unary_unary')('/{SERVICE}/' + m, request_serializer=encode, response_deserializer=r.FromString)(q, timeout=PATIENCE)
register = lambda name, key: call('SystemSharedMemoryRegister', oip.SystemSharedMemoryRegisterRequest(name=name, key=key, byte_size=64), oip.SystemSharedMemoryRegisterResponse)
got = refused('PERMISSION_DENIED', 'PERMISSION_DENIED', register, 'x', {mine.key!r})
assert 'another user' in got.text, got.text
register('r', {theirs.key!r})
register('s', {everybody.key!r})
call('SystemSharedMemoryUnregister', oip.SystemSharedMemoryUnregisterRequest(), oip.SystemSharedMemoryUnregisterResponse)
left = call('SystemSharedMemoryStatus', oip.SystemSharedMemoryStatusRequest(), oip.SystemSharedMemoryStatusResponse)
print('left', len(left.regions))
"""
        child = Child(d, code)
        assert child.wait().strip() == "left 0"
        assert set(regions(o)) == {"r"}


@test("without the option no region is registered")
def off(daemon):
    with Oip(daemon) as o:
        got = refused("PERMISSION_DENIED", "PERMISSION_DENIED", o, "SystemSharedMemoryRegister", name="r", key="/r", byte_size=8)
        assert "oip-shared-memory" in got.text


# ---- the rest -------------------------------------------------------------------------------------------------------------

@test("while the daemon drains it is not ready, and refuses requests")
def draining(_daemon):
    with Daemon() as d, Client(d) as c, Oip(d) as o:
        register_mlp(c)
        assert o.infer(mlp()).outputs
        requests = queue.Queue()
        call = o.method("ModelStreamInfer")(iter(requests.get, None), timeout=PATIENCE)
        requests.put(mlp())
        next(call)
        c.call("Admin/Drain", pb.DrainRequest(stay=True))
        until("the drain has begun", lambda: not o("ServerReady").ready)
        assert o("ServerLive").live and not o("ModelReady", name="mlp").ready
        refused("DRAINING", "UNAVAILABLE", o.infer, mlp())
        requests.put(mlp())
        assert "draining" in next(call).error_message
        requests.put(None)
        assert list(call) == []


@test("the service is in the list of reflection, with its file")
def reflected(daemon):
    channel = daemon.channel()
    ask = channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", request_serializer=encode,
                                response_deserializer=reflection.ServerReflectionResponse.FromString)
    one, two = ask(iter([reflection.ServerReflectionRequest(list_services=""), reflection.ServerReflectionRequest(file_containing_symbol=f"{SERVICE}.ModelInfer")]))
    assert SERVICE in [s.name for s in one.list_services_response.service] and b"proto/inference.proto" in two.file_descriptor_response.file_descriptor_proto[0]
    channel.close()


def mutate(rng, data):
    """Changes a message in one of the ways in which they break."""
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(data) + 1)
        how = rng.randrange(5)
        if how == 0 and at < len(data):
            data[at] = rng.randrange(256)
        elif how == 1 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif how == 2:
            data[at:at] = rng.randbytes(rng.choice((1, 2, 9)))
        elif how == 3:
            del data[at:at + rng.choice((1, 2, 9))]
        else:
            data[at:at] = data[at // 2:at]
    return bytes(data)


@test("mutated requests of every method get an answer or a refusal with a reason, and the next good request is served")
@with_mlp
def fuzz(daemon, c, o):
    rng = random.Random(53)
    seeds = {"ModelInfer": [encode(q) for _, q in wrong_requests() if q.ByteSize() < 4096] + [encode(mlp(3, id="i", outputs=["y"], parameters={"timeout": 10**6, "priority": 2}))],
             "RepositoryModelLoad": [encode(oip.RepositoryModelLoadRequest(model_name="mlp"))]}
    typed_request = request(inputs=[("x", "FP32", [2, 4], None)])
    seeds["ModelInfer"].append(encode(contents(typed_request, *rows(2))))
    seeds["ModelStreamInfer"] = seeds["ModelInfer"]
    fine = {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.RESOURCE_EXHAUSTED,
            grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.FAILED_PRECONDITION}
    answered = 0
    for turn in range(60):
        for name in METHODS_OF:
            data = mutate(rng, rng.choice(seeds.get(name, [b"\x0a\x03mlp\x12\x011", b""])))
            try:
                if name == "ModelStreamInfer":
                    answers = o.stream(data, encode(mlp()))
                    assert len(answers) == 2 and sum(a.infer_response.raw_output_contents[:1] == [pack(linear(rows(2)))] for a in answers) >= 1, (data, answers)
                else:
                    o(name, data)
                answered += 1
            except grpc.RpcError as e:
                assert e.code() in fine and Refusal(e).reason, (name, data, e)
    assert answered > 100 and unpack(o.infer(mlp()).raw_output_contents[0]) == linear(rows(2))
    until("all calls are over", lambda: daemon.stats()["requests"]["in_flight"] <= 1)


main(f"--models-dir={MODEL}")
