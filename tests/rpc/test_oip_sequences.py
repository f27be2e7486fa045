#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Open Inference Protocol: sequences of requests, of graphs with states and of language models, and single requests to language models."""
import queue

from harness import *
from oip_client import *

# OUTPUT is the input, and 1 more in the first request of a sequence; SUM is the sum of all inputs so far.
COUNTER = """npugraph 1
graph "simple_sequence" {
  state %n : i32[1,1] = "n"
  state %s : i32[1,1] = "s"
  input %x : i32[1,1] = "INPUT"
  %first = aten.eq.Scalar(%n) {other=0}
  %one = aten._to_copy(%first) {dtype=i32}
  %next = aten.add.Scalar(%n) {other=1}
  aten.copy_(%n, %next)
  %sum = aten.add.Tensor(%s, %x)
  aten.copy_(%s, %sum)
  %y = aten.add.Tensor(%x, %one)
  return "OUTPUT" = %y, "SUM" = %sum
}
"""


def of(sequence, start=False, end=False, **more):
    return {"sequence_id": sequence, "sequence_start": start, "sequence_end": end, **more}


def count(value, sequence=None, start=False, end=False, **kwargs):
    return request("simple_sequence", inputs=[("INPUT", "INT32", [1, 1], pack([value], "i"))], parameters=of(sequence, start, end) if sequence else {}, **kwargs)


def values(answer):
    return tuple(unpack(raw, "i")[0] for raw in answer.raw_output_contents)


def register_counter(c):
    return c.register(COUNTER, {"n": c.allocate(4), "s": c.allocate(4)}).graph


def with_counter(fn):
    def wrapped(daemon):
        with Client(daemon) as c, Oip(daemon) as o:
            c.counter = register_counter(c)
            fn(daemon, c, o)
    wrapped.__name__ = fn.__name__
    return wrapped


def quota(daemon, name):
    with Client(daemon, session=False) as c:
        mine = [s for s in c.call("Admin/ListShares", pb.ListSharesRequest()).shares if s.identity == f"uid:{os.getuid()}"]
        return sum(q.used for s in mine for q in s.quotas if q.name == name)  # without a share it has nothing


@test("sequences of a graph have states of their own, zero at the beginning; ids are numbers or text; an end frees them")
@with_counter
def graph_sequences(daemon, c, o):
    assert values(o.infer(count(5))) == (6, 5) and values(o.infer(count(5))) == (5, 10)  # the session's own states
    before = {name: quota(daemon, name) for name in ("sequences", "bytes")}
    for ids in ((1000, 1001, "a"), ("1000", "x" * 128, 2**62)):
        sums = dict.fromkeys(ids, 0)
        for turn, value in enumerate([11, 7, -5, 0, 1]):
            for sequence in ids:
                sums[sequence] += value
                got = o.infer(count(value, sequence, start=turn == 0, end=turn == 4))
                assert values(got) == (value + (turn == 0), sums[sequence]), (sequence, turn, got)
            if turn == 2:
                assert quota(daemon, "sequences") == before["sequences"] + 3 and quota(daemon, "bytes") == before["bytes"] + 3 * 8
        assert {name: quota(daemon, name) for name in before} == before
    version = o.infer(count(1, 5, start=True)).model_version
    assert o.infer(count(1, 5, model_version=version)).model_version == version and values(o.infer(count(1, 5, start=True))) == (2, 1)
    assert values(o.infer(count(1, 5, start=True, end=True))) == (2, 1)  # a sequence of one request; the kept one is as it was
    assert values(o.infer(count(1, 5, end=True))) == (1, 2)
    q = count(1)
    q.parameters["sequence_id"].uint64_param = 2**64 - 1
    q.parameters["sequence_start"].bool_param = True
    assert values(o.infer(q)) == (2, 1)
    assert values(o.infer(count(5))) == (5, 15)


@test("a request without a beginning is refused, and so is what is no sequence; a refused request leaves its sequence as it was")
@with_counter
def refusals(daemon, c, o):
    def no(what, q):
        assert what in refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", o.infer, q).text
    no("sequence_start", count(1, 7))
    o.infer(count(3, 7, start=True))
    no("sequence_start", count(1, "7"))  # text is another id than a number
    no("go with a sequence_id", request("simple_sequence", parameters={"sequence_start": True}))
    no("go with a sequence_id", request("simple_sequence", parameters={"sequence_id": 0, "sequence_end": True}))
    no("at most 128 bytes", count(1, "x" * 129, start=True))
    no("at most 128 bytes", count(1, -5, start=True))
    bad = count(1, 7, end=True)
    bad.inputs[0].datatype = "FP32"
    no("datatype", bad)
    refused("MODEL_NOT_FOUND", "NOT_FOUND", o.infer, count(1, 7, model_version="x"))
    register_mlp(c)
    no("no states", mlp(parameters=of(1, start=True)))
    assert values(o.infer(count(4, 7))) == (4, 7)
    for ends in (True, False):
        o.infer(count(1, 8, start=True))
        if ends:
            c.call("Graphs/Release", pb.ReleaseRequest(graph=c.counter))
            refused("MODEL_NOT_FOUND", "NOT_FOUND", o.infer, count(1, 8))
            assert quota(daemon, "sequences") == 0
            c.counter = register_counter(c)
            no("sequence_start", count(1, 8))
        else:  # a newer graph of the name does not take the sequence's place, but new weights end it
            with Client(daemon) as other:
                register_counter(other)
                assert values(o.infer(count(2, 8))) == (2, 3)
                newer = o.infer(count(1)).model_version
                no("another version", count(2, 8, model_version=newer))
            bind = pb.BindRequest(graph=c.counter)
            bind.bindings.add(name="s", buffer=c.allocate(4))
            c.call("Graphs/Bind", bind)
            assert "begin the sequence again" in refused("MODEL_NOT_FOUND", "NOT_FOUND", o.infer, count(1, 8)).text
            no("sequence_start", count(1, 8))


@test("a sequence belongs to an identity, and to the session that its calls name; over plaintext TCP it needs that session")
def strangers(_daemon):
    with Daemon("--listen=tcp:127.0.0.1:0", "--allow-plaintext=yes", f"--token-file={token_file('sequences', 'a', 'b')}") as d:
        tcp = d.listening("tcp")
        with Client(d, bearer=token("a")) as a, Client(d, bearer=token("b")) as b, Client(d, address=tcp) as plain, Oip(d, metadata=bearer("a")) as mine, \
                Oip(d, metadata=bearer("b")) as other, Oip(d, metadata=a.metadata()) as named, Oip(d, tcp, metadata=plain.metadata()) as open_tcp, Oip(d, tcp) as nobody:
            for c in (a, b, plain):
                register_counter(c)
            assert values(mine.infer(count(1, 9, start=True))) == (2, 1) and values(open_tcp.infer(count(1, 9, start=True))) == (2, 1)
            for o in (other, named):
                refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", o.infer, count(1, 9))
            refused("MODEL_NOT_FOUND", "NOT_FOUND", nobody.infer, count(1, 9))
            assert values(mine.infer(count(1, 9))) == (1, 2) and values(open_tcp.infer(count(1, 9))) == (1, 2)


@test("requests of a stream that belong to a sequence run in their order; one that fails behind its acceptance ends it for those behind it")
@with_counter
def stream_order(daemon, c, o):
    answers = o.stream(*(count(i, f"s{i % 3}", start=i < 3, end=i >= 27, id=str(i)) for i in range(30)))
    got = {int(a.infer_response.id): values(a.infer_response) for a in answers}
    assert got == {i: (i + (i < 3), sum(range(i % 3, i + 1, 3))) for i in range(30)}, got
    q = count(1, "late", start=True)
    q.parameters["timeout"].int64_param = 1
    first, second = o.stream(q, count(2, "late"))
    assert first.error_message and second.error_message, (first, second)


@test("a sequence that is idle for oip-sequence-timeout is gone, and what it held is free; max-sequences-per-identity bounds them")
def idle(_daemon):
    with Daemon("--oip-sequence-timeout=150ms", "--max-sequences-per-identity=2") as d, Client(d) as c, Oip(d) as o:
        register_counter(c)
        o.infer(count(1, 1, start=True))
        until("the sequence is gone", lambda: quota(d, "sequences") == 0)
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", o.infer, count(1, 1))
        assert quota(d, "bytes") == 8
    with Daemon("--max-sequences-per-identity=2") as d, Client(d) as c, Oip(d) as o:
        register_counter(c)
        for i in (1, 2):
            o.infer(count(1, i, start=True))
        refused("QUOTA", "RESOURCE_EXHAUSTED", o.infer, count(1, 3, start=True))
        o.infer(count(1, 2, end=True))
        o.infer(count(1, 3, start=True))
        c.end_session()  # the graph goes, and its sequences with it
        until("they are gone", lambda: quota(d, "sequences") == 0 and quota(d, "bytes") == 0)


# ---- language models -------------------------------------------------------------------------------------------------------

def ask(tokens, sequence=None, start=False, end=False, n=8, id="", **parameters):
    return request("lm", inputs=[("input_ids", "INT64", [len(tokens)], pack(tokens, "q"))], id=id,
                   parameters={"max_tokens": n, "ignore_stop": True, **(of(sequence, start, end) if sequence else {}), **parameters})


def tokens_of(answer):
    return [t for raw in answer.raw_output_contents for t in unpack(raw, "q")]


def expected(daemon, *turns):
    """What steps and generations of a sequence give: (tokens that are appended, number that are generated)."""
    answers = []
    with Client(daemon) as c:
        for tokens, n in turns:
            if not answers:
                sequence = c.call("Sequences/Open", pb.OpenRequest(model="lm", prompt=tokens)).sequence
            elif tokens:
                c.call("Sequences/Step", pb.StepRequest(sequence=sequence, append=[answers[-1][-1], *tokens]))
            generate = pb.GenerateRequest(sequence=sequence, max_tokens=n, ignore_stop=True)
            answers.append([t for m in c.call("Sequences/Generate", generate) for t in m.tokens])
    return answers


def with_model(fn):
    def wrapped(daemon):
        load(daemon, "lm")
        try:
            with Oip(daemon) as o:
                fn(daemon, o)
            until("no sequence and no session is left", lambda: daemon.stats()["sequences"]["open"] == 0 and daemon.stats()["sessions"]["open"] == 0)
        finally:
            unload(daemon, "lm")
    wrapped.__name__ = fn.__name__
    return wrapped


@test("ModelInfer to a language model answers with all tokens in one response, with the reason why it ends")
@with_model
def once(daemon, o):
    (alone,) = expected(daemon, ([5, 6, 7], 24))
    got = o.infer(ask([5, 6, 7], n=24, id="q"))
    assert tokens_of(got) == alone and (got.id, got.model_name, got.model_version) == ("q", "lm", "1")
    assert list(got.outputs[0].shape) == [24] and got.parameters["finish_reason"].string_param == "length" and got.parameters["triton_final_response"].bool_param
    for reason, code, q in (("TOKEN_RANGE", "INVALID_ARGUMENT", ask([5, -1])), ("PROMPT_TOO_LONG", "INVALID_ARGUMENT", ask([5] * 3000)), ("INVALID_ARGUMENT", "INVALID_ARGUMENT", ask([]))):
        refused(reason, code, o.infer, q)
    text = request("lm", inputs=[("text_input", "BYTES", [1], b"\x02\0\0\0hi")])
    assert "no tokenizer" in refused("UNIMPLEMENTED", "UNIMPLEMENTED", o.infer, text).text
    call = o.method("ModelInfer").future(ask([5], n=2000), timeout=PATIENCE)
    until("it runs", lambda: daemon.stats()["sequences"]["open"] == 1)
    call.cancel()


@test("a sequence of a language model goes on behind all tokens that it has given, by ModelInfer and on streams, also without new tokens")
@with_model
def conversation(daemon, o):
    turns = [([5, 6, 7], 6), ([9, 10], 5), ([], 4), ([3], 7)]
    answers = expected(daemon, *turns)
    for name, infer in (("one", o.infer), (2, lambda q: joined(o.stream(q)))):
        for i, ((tokens, n), answer) in enumerate(zip(turns, answers)):
            assert tokens_of(infer(ask(tokens, name, start=i == 0, end=i == 3, n=n))) == answer, (name, i)
            assert daemon.stats()["sequences"]["open"] == (0 if i == 3 else 1) or i == 3
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", o.infer, ask([1], name))
    sampled = [tokens_of(o.infer(ask([5, 6], "s", start=True, temperature=0.9, seed=4))), tokens_of(o.infer(ask([7], "s", end=True)))]
    again = [tokens_of(o.infer(ask([5, 6], "t", start=True, temperature=0.9, seed=4))), tokens_of(o.infer(ask([7], "t", end=True)))]
    assert sampled == again


@test("timeout bounds a generation, from its arrival to its last token; the sequence that it belongs to ends")
@with_model
def timeouts(daemon, o):
    got = refused("DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED", o.infer, ask([5], n=2000, timeout=1))
    assert "1 us" in got.text
    *_, last = o.stream(ask([5], n=2000, timeout=20_000, id="s"))
    assert "20000 us" in last.error_message and last.infer_response.id == "s"
    assert len(tokens_of(o.infer(ask([5, 6], "c", start=True, timeout=10**10)))) == 8
    refused("DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED", o.infer, ask([7], "c", n=2000, timeout=1))
    refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", o.infer, ask([7], "c"))


def joined(answers):
    """The answers of a stream as one."""
    assert not any(a.error_message for a in answers), answers
    whole = oip.ModelInferResponse()
    for a in answers:
        whole.raw_output_contents.extend(a.infer_response.raw_output_contents)
    return whole


@test("a language model's sequence takes one request at a time; a refused one leaves it, a cancelled one and an unloaded model end it")
@with_model
def conversation_ends(daemon, o):
    first, second = expected(daemon, ([5, 6, 7], 6), ([8], 6))
    assert tokens_of(o.infer(ask([5, 6, 7], "a", start=True, n=6))) == first
    assert "whole sequence" in refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", o.infer, ask([8], "a", temperature=1.0)).text
    refused("TOKEN_RANGE", "INVALID_ARGUMENT", o.infer, ask([8, 1 << 20], "a"))
    refused("CONTEXT_FULL", "OUT_OF_RANGE", o.infer, ask([8] * 1500, "a"))
    assert tokens_of(o.infer(ask([8], "a", n=6))) == second
    requests = queue.Queue()
    call = o.method("ModelStreamInfer")(iter(requests.get, None), timeout=PATIENCE)
    requests.put(ask([1], "a", n=2000))
    next(call)
    refused("SEQUENCE_BUSY", "FAILED_PRECONDITION", o.infer, ask([8], "a"))
    call.cancel()
    requests.put(None)
    until("it has ended", lambda: daemon.stats()["sequences"]["open"] == 0)
    refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", o.infer, ask([8], "a"))
    o.infer(ask([5], "b", start=True))
    with Client(daemon, session=False) as c:
        refused("BUSY", "FAILED_PRECONDITION", c.call, "Sequences/UnloadModel", pb.UnloadModelRequest(name="lm"))
    full = daemon.used_bytes()
    unload(daemon, "lm")
    refused("MODEL_NOT_FOUND", "NOT_FOUND", o.infer, ask([8], "b"))
    until("the model's memory is free, though the sequence was not idle for long", lambda: daemon.used_bytes() < full)
    load(daemon, "lm")
    refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", o.infer, ask([8], "b"))


main(f"--models-dir={MODEL}")
