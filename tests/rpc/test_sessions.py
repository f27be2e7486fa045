#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sessions: opening, ending, resuming, ownership, idempotence."""
import queue
import time

from harness import *

MIB = 1 << 20


@test("a session gets an id and a token, and answers pings")
def opens(daemon):
    with Client(daemon) as c:
        assert c.id != 0 and len(c.token) == 16 and not c.opened.resumed and c.opened.server_version
        assert c.ping(42).pong.value == 42
        assert [s.client_name for s in c.call("Admin/ListSessions", pb.ListSessionsRequest()).sessions] == ["test"]


@test("half-closing the stream frees what the session owns: all of it, when the stream has ended")
def half_close_frees():
    with Daemon(env={"NPUGRAPHD_FAULT": "reap-late:0:1"}) as daemon:
        before = daemon.used_bytes()
        c = Client(daemon)
        c.allocate(MIB)
        assert daemon.used_bytes() >= before + MIB
        c.end_session()
        assert daemon.used_bytes() == before
        refused("SESSION_GONE", "NOT_FOUND", c.allocate, MIB)
        c.close()


# One attention layer. rows: name of the row symbol; seqs: number of sequences. A prompt's chunk has logits of its last row only.
LAYER = """npugraph 1
graph "layer" {
  sym %(rows)s 1..4 buckets 4
  param %%e : f32[24,8] = "e"
  state %%kc : f32[8,2,1,8] = "kc"
  state %%vc : f32[8,2,1,8] = "vc"
  input %%tokens : i32[%(rows)s]
  input %%positions : i32[%(rows)s]
  input %%slots : i32[%(rows)s]
  input %%table : i32[%(seqs)s,8]
%(last)s  host %%ql : i64[%(seqs)s]
  host %%kl : i64[%(seqs)s]
  %%p = aten.embedding(%%e, %%positions)
  %%t = aten.embedding(%%e, %%tokens)
  %%x = aten.add.Tensor(%%t, %%p)
  %%h = aten.view(%%x) {size=[%(rows)s,1,8]}
  npu.scatter_pa_kv_cache(%%h, %%h, %%slots, %%kc, %%vc)
  %%a = npu.fused_infer_attention_score(%%h, %%kc, %%vc, %%table, %%ql, %%kl) {num_heads=1, num_key_value_heads=1, scale=1.0, block_size=2}
  %%all = aten.view(%%a) {size=[%(rows)s,8]}
%(pick)s  %%logits = aten.linear(%(wanted)s, %%e)
  %%best = aten.argmax(%%logits) {dim=-1}
  %%token = aten._to_copy(%%best) {dtype=i32}
  return "token" = %%token
}
"""


def model_of(c):
    """A model of the session: it is not kept."""
    bound = {"e": c.allocate(24 * 8 * 4), "kc": c.allocate(8 * 2 * 8 * 4), "vc": c.allocate(8 * 2 * 8 * 4)}
    chunk = {"rows": "T", "seqs": 1, "wanted": "%last", "last": "  input %last_row : i32[1]\n",
             "pick": "  %last = aten.index.Tensor(%all, %last_row)\n"}
    step = {"rows": "B", "seqs": "B", "wanted": "%all", "last": "", "pick": ""}
    prefill, decode = (c.register(LAYER % what, bound).graph for what in (chunk, step))
    contract = pb.DecodeContract(tokens="tokens", positions="positions", slot_mapping="slots", block_table="table", query_lens="ql",
                                 context_lens="kl", logits_rows="last_row", token_output="token", kv_states=["kc", "vc"])
    return pb.RegisterModelRequest(name="m", prefill_graph=prefill, decode_graph=decode, contract=contract, block_size=2, num_blocks=8,
                                   max_context=16, vocab=24)


@test("a model that is not kept goes with its session, also if that ends while the model is registered")
def models():
    with Daemon(env={"NPUGRAPHD_FAULT": "model-late:1:1"}) as daemon, Client(daemon, session=False) as a:
        names = lambda: [m.name for m in a.call("Sequences/ListModels", pb.ListModelsRequest()).models]
        taken = lambda: [q.used for s in a.call("Admin/ListShares", pb.ListSharesRequest()).shares for q in s.quotas if q.name == "models"]
        before = daemon.used_bytes()
        with Client(daemon) as c:
            c.call("Sequences/RegisterModel", model_of(c))
            assert names() == ["m"] and sum(taken()) == 1
        assert names() == [] and daemon.used_bytes() == before
        with Client(daemon) as c:
            late = c.method("Sequences/RegisterModel").future(model_of(c), metadata=c.metadata(), timeout=PATIENCE)
            until("the model is being registered", lambda: sum(taken()) == 1)
            c.end_session()
            got = refused("SESSION_GONE", "NOT_FOUND", late.result)
            assert "never was" not in got.text, got.text  # it existed when the call arrived
        assert names() == [] and sum(taken()) == 0
        daemon.settle()
        assert daemon.used_bytes() == before


@test("a call that needs a session and names none, or not a number, is refused")
def session_required(daemon):
    with Client(daemon, session=False) as c:
        refused("SESSION_REQUIRED", "UNAUTHENTICATED", c.allocate, 1)
        for bad in ("x", "-1", "1x", "99999999999999999999999999", "9" * 100):
            got = Refusal(catch(lambda: c.method("Memory/Allocate")(pb.AllocateRequest(bytes=1), metadata=(("npugraph-session", bad),))))
            assert got.reason in ("INVALID_ARGUMENT", "SESSION_GONE"), (bad, got.reason)
        refused("SESSION_GONE", "NOT_FOUND", c.call, "Memory/Allocate", pb.AllocateRequest(bytes=1), session=12345)


def catch(fn):
    try:
        fn()
    except grpc.RpcError as e:
        return e
    raise AssertionError("was accepted")


@test("the stream's first message must open, and only the first")
def first_message(daemon):
    with Client(daemon, session=False) as c:
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", c.method("Sessions/Open"), iter([pb.SessionRequest(ping=pb.SessionPing(value=1))]))
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", c.method("Sessions/Open"), iter([pb.SessionRequest()]))
        twice = iter([pb.SessionRequest(open=pb.SessionOpen()), pb.SessionRequest(open=pb.SessionOpen())])
        refused("ALREADY_EXISTS", "ALREADY_EXISTS", c.method("Sessions/Open"), twice)
        long_name = iter([pb.SessionRequest(open=pb.SessionOpen(client_name="n" * 65))])
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", c.method("Sessions/Open"), long_name)
        long_grace = iter([pb.SessionRequest(open=pb.SessionOpen(grace_ms=60001))])
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", c.method("Sessions/Open"), long_grace)
    until("no session is left", lambda: daemon.stats()["sessions"]["open"] == 0)


@test("objects of another session are unknown, and stale ones are told from unknown ones")
def ownership(daemon):
    with Client(daemon) as a, Client(daemon) as b:
        mine = a.allocate(64)
        refused("UNKNOWN_ID", "NOT_FOUND", b.read, mine)
        a.call("Memory/Free", pb.FreeRequest(buffers=[mine]))
        refused("STALE_ID", "NOT_FOUND", a.read, mine)
        refused("UNKNOWN_ID", "NOT_FOUND", a.read, 0)
        refused("UNKNOWN_ID", "NOT_FOUND", a.read, 2**64 - 1)


@test("a broken session is kept for its grace period and can be resumed with its token")
def resume(daemon):
    child = Child(daemon, """
c = Client(daemon, grace_ms=20000, name="lost")
print(c.id, c.token.hex(), c.allocate(4096))
import time; time.sleep(60)
""")
    session, token, buffer = child.line().split()
    child.kill()
    until("the session is seen as broken", lambda: [s.broken for s in Client(daemon, session=False).call(
        "Admin/ListSessions", pb.ListSessionsRequest()).sessions if s.client_name == "lost"] == [True])
    with Client(daemon, session=False) as c:
        wrong = iter([pb.SessionRequest(open=pb.SessionOpen(resume=pb.SessionResume(session=int(session), token=b"0" * 16)))])
        refused("SESSION_TOKEN", "PERMISSION_DENIED", c.method("Sessions/Open"), wrong)
        short = iter([pb.SessionRequest(open=pb.SessionOpen(resume=pb.SessionResume(session=int(session), token=b"")))])
        refused("SESSION_TOKEN", "PERMISSION_DENIED", c.method("Sessions/Open"), short)
    with Client(daemon, resume=pb.SessionResume(session=int(session), token=bytes.fromhex(token))) as c:
        assert c.opened.resumed and c.id == int(session)
        assert len(c.read(int(buffer))) == 4096


def closed_by_itself(stream):
    """Waits for the end of a session's stream that was half-closed; False: another connection had taken the session over."""
    try:
        for _ in stream:
            pass
    except grpc.RpcError as e:
        assert Refusal(e).reason == "SESSION_GONE", e
        return False
    return True


def resume_while_closing(daemon):
    a = Client(daemon, grace_ms=0)
    others = [Client(daemon, session=False) for _ in range(8)]
    opening = pb.SessionRequest(open=pb.SessionOpen(resume=pb.SessionResume(session=a.id, token=a.token)))
    requests = [queue.Queue() for _ in others]
    a.requests.put(None)
    for q in requests:
        q.put(opening)
    streams = [c.method("Sessions/Open")(iter(q.get, None), timeout=PATIENCE) for c, q in zip(others, requests)]
    closed = closed_by_itself(a.stream)
    a.stream = None
    if closed:
        ends = [Refusal(catch(lambda: list(s))).reason for s in streams]
        assert set(ends) == {"SESSION_GONE"}, ends
    for q in requests:
        q.put(None)
    for c in [a, *others]:
        c.close()
    until("no session is left", lambda: daemon.stats()["sessions"]["open"] == 0)
    return closed


@test("resuming a session while its client half-closes it: it is refused, and no stream is left that leads nowhere")
def resume_late():
    with Daemon("--cqs=4", env={"NPUGRAPHD_FAULT": "end-late:0:1000"}) as daemon:
        assert any(resume_while_closing(daemon) for _ in range(20)), "the others were faster each time"


@test("a session that is not resumed ends when its grace period is over")
def grace_over(daemon):
    daemon.settle()
    before = daemon.used_bytes()
    child = Child(daemon, """
c = Client(daemon, grace_ms=600)
c.allocate(1 << 20)
print("there")
import time; time.sleep(60)
""")
    child.line()
    assert daemon.used_bytes() > before
    killed = time.monotonic()
    child.kill()
    until("the memory is free", lambda: daemon.used_bytes() == before)
    assert time.monotonic() - killed >= 0.6, "it was freed too early"


@test("a resume takes over from a connection that still stands")
def take_over(daemon):
    a = Client(daemon, grace_ms=5000)
    buffer = a.allocate(128)
    with Client(daemon, resume=pb.SessionResume(session=a.id, token=a.token)) as b:
        refused("SESSION_GONE", "NOT_FOUND", lambda: a.stream)
        assert len(b.read(buffer)) == 128
        assert daemon.stats()["sessions"]["open"] == 1
    a.channel.close()
    until("no session is left", lambda: daemon.stats()["sessions"]["open"] == 0)


@test("a repeated request id gets the first answer again, in its session only")
def idempotent(daemon):
    daemon.settle()
    with Client(daemon) as a, Client(daemon) as b:
        first = a.allocate(4096, request_id="r1")
        used = daemon.used_bytes()
        assert a.allocate(4096, request_id="r1") == first and daemon.used_bytes() == used
        assert a.allocate(4096, request_id="r2") != first
        b.allocate(4096, request_id="r1")
        assert len([x for x in b.call("Memory/ListBuffers", pb.ListBuffersRequest()).buffers if x.buffer]) == 1
        text = 'npugraph 1\ngraph "g" { input %x : f32[4] %y = aten.neg(%x) return %y }'
        assert a.register(text, request_id="g1").graph == a.register(text, request_id="g1").graph
        for bad in ("x" * 65,):
            refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", a.allocate, 1, request_id=bad)


@test("a client that pings and never reads does not make the daemon grow")
def unread_pongs(daemon):
    before = daemon.stats()["heap_bytes"]
    with Client(daemon, options=[("grpc.http2.bdp_probe", 0)]) as c:
        for i in range(20000):
            c.requests.put(pb.SessionRequest(ping=pb.SessionPing(value=i)))
        time.sleep(1)
        assert daemon.stats()["heap_bytes"] < before + 8 * MIB
        assert [next(c.stream).pong.value for _ in range(20000)] == list(range(20000))


@test("quotas of sessions are kept")
def quotas():
    with Daemon("--max-sessions=2", "--max-graphs-per-identity=2", "--max-bytes-per-identity=1M") as d:
        with Client(d) as a, Client(d) as b:
            refused("RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED", Client, d)
            a.allocate(1 << 19)
            got = refused("QUOTA", "RESOURCE_EXHAUSTED", b.allocate, (1 << 19) + 1)
            assert "max-bytes-per-identity" in got.text
            text = 'npugraph 1\ngraph "g" { input %x : f32[4] %y = aten.neg(%x) return %y }'
            a.register(text)
            g = b.register(text).graph
            refused("QUOTA", "RESOURCE_EXHAUSTED", a.register, text)
            b.call("Graphs/Release", pb.ReleaseRequest(graph=g))
            a.register(text)
        with Client(d) as a:
            a.allocate(1 << 20)


@test("quotas of an identity: sessions; what is used of each, and the limit, in ListShares, /stats.json and npugraphctl shares")
def usage():
    me = f"uid:{os.getuid()}"
    with Daemon("--max-sessions-per-identity=2", "--max-graphs-per-identity=3", "--max-sequences-per-identity=5",
                "--max-bytes-per-identity=1M", "--max-kv-blocks-per-identity=9") as d:
        with Client(d) as a, Client(d) as b:
            got = refused("QUOTA", "RESOURCE_EXHAUSTED", Client, d)
            assert "max-sessions-per-identity" in got.text and "2 of 2" in got.text, got.text
            a.allocate(1000)
            b.allocate(24)
            b.register('npugraph 1\ngraph "g" { input %x : f32[4] %y = aten.neg(%x) return %y }')
            share, = [s for s in a.call("Admin/ListShares", pb.ListSharesRequest()).shares if s.identity == me]
            said = {q.name: (q.used, q.limit) for q in share.quotas}
            wanted = {"sessions": (2, 2), "graphs": (1, 3), "sequences": (0, 5), "bytes": (1024, 1 << 20), "kv_blocks": (0, 9)}
            assert {k: v for k, v in said.items() if k in wanted} == wanted and said.keys() > wanted.keys(), said
            assert {q.name: q.refused for q in share.quotas}["sessions"] == 1 and [q.name for q in share.quotas if q.bytes] == ["bytes", "host_bytes", "answers", "unfinished", "store_bytes", "dump_bytes", "shared_bytes"]
            own, share = d.stats()["shares"]
            assert "quotas" not in own and share["quotas"].keys() == said.keys(), share
            assert {k: (q["used"], q["limit"]) for k, q in share["quotas"].items() if k in wanted} == wanted, share
            if CTL is not None:
                out = subprocess.run([CTL, "--address", d.address, "--json", "shares"], capture_output=True, text=True, timeout=PATIENCE)
                row, = [s for s in json.loads(out.stdout)["shares"] if s["identity"] == me]
                assert (row["sessions"], row["sessions_limit"], row["graphs"], row["graphs_limit"]) == (2, 2, 1, 3), row
                out = subprocess.run([CTL, "--address", d.address, "--json", "quota", me], capture_output=True, text=True, timeout=PATIENCE)
                rows = {q["quota"]: (q["held"], q["limit"], q["refused"]) for q in json.loads(out.stdout)["quotas"]}
                assert rows.keys() == said.keys() and rows["sessions"] == (2, 2, 1) and rows["bytes"] == (1024, 1 << 20, 0), rows
                out = subprocess.run([CTL, "--address", d.address, "quota"], capture_output=True, text=True, timeout=PATIENCE)
                assert out.returncode == 0 and "max" not in out.stdout and "kv_blocks" in out.stdout, out
        until("the sessions are gone", lambda: len(d.stats()["shares"]) == 1)


@test("the cap of an identity's device time holds though the device is idle, and what is held shows")
def capped():
    with Daemon("--max-device-share-per-identity=10") as d:
        mine = lambda: [s for s in d.stats()["shares"] if "quotas" in s][0]
        began = time.monotonic()
        with Client(d) as c:
            # Each takes some 10 ms, which is more than the cap even if this client is slow between two of them.
            n, chain = 512, "".join(f"%v{i} = aten.mm(%v{i - 1}, %x) " for i in range(1, 8))
            graph = c.register(f'npugraph 1\ngraph "g" {{ input %x : f32[{n},{n}] %v0 = aten.mm(%x, %x) {chain} return "y" = %v7 }}').graph
            x = bytes(4 * n * n)
            used = longest = 0

            def held():
                nonlocal used, longest
                c.replay(graph, [x])
                now = mine()["device_s"]
                used, longest = now, max(longest, now - used)
                return mine()["held_s"] >= 0.1
            until("replays were held for 0.1 s", held)
            passed = time.monotonic() - began
            assert used <= 0.1 * passed + 0.01 + longest, (used, passed, longest)
            assert mine()["device_percent"] == 10
            share, = [s for s in c.call("Admin/ListShares", pb.ListSharesRequest()).shares if s.identity == f"uid:{os.getuid()}"]
            assert share.device_percent == 10 and share.held_us >= 100_000, share
            if CTL is not None:
                out = subprocess.run([CTL, "--address", d.address, "--json", "shares"], capture_output=True, text=True, timeout=PATIENCE)
                row, = [s for s in json.loads(out.stdout)["shares"] if s["identity"] == share.identity]
                assert row["device_percent"] == 10 and row["held_ms"] >= 100, row


if __name__ == "__main__":
    main()
