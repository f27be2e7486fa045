#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Long work for one user (a slow store, freeing large memory) does not delay other users' requests."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from tenants import *  # noqa: E402,F403

MIB = 1 << 20
NEG = 'npugraph 1\ngraph "g" {\n  input %a : f32[4]\n  %b = aten.neg(%a)\n  return "b" = %b\n}\n'
SLOW = 800  # hundredths of a second


def large_text():
    """Returns a text that is too long to be parsed on the receiving thread."""
    lines = ["  input %v0 : f32[4]"] + [f"  %v{i + 1} = aten.neg(%v{i})" for i in range(4000)]
    return 'npugraph 1\ngraph "large" {\n' + "\n".join(lines) + '\n  return "o" = %v4000\n}\n'


@test("while the store is slow and others list it, graphs are registered and captured at once")
def slow_store():
    store = SCRATCH / "slow"
    with open_daemon(f"--store-dir={store}", env={"NPUGRAPHD_FAULT": f"store-slow:0:{SLOW}"}) as daemon:
        code = """
client = Client(daemon, session=False)
futures = [client.method("Admin/ListStore").future(pb.ListStoreRequest()) for _ in range(4)]
time.sleep(0.5)
print("asked", flush=True)
for future in futures:
    future.result(PATIENCE)
print("answered", flush=True)
"""
        strangers = [Tenant(daemon, code, uid) for uid in (NOBODY, NOBODY - 1)]
        for stranger in strangers:
            assert stranger.line() == "asked"
        with Client(daemon) as c:
            other = c.method("Admin/ListStore").future(pb.ListStoreRequest(), metadata=c.metadata())
            graph = c.register(large_text()).graph
            c.call("Graphs/Capture", pb.CaptureRequest(graph=graph), timeout=PATIENCE)
            assert not other.done(), "they waited for the store, or it was not slow for long enough"
            assert other.result(PATIENCE).budget
        for stranger in strangers:
            assert stranger.line() == "answered"
            stranger.wait()


@test("while large memory is being freed, others are served, and who needs the room waits instead of being refused")
def large_free():
    with open_daemon(env={"NPUGRAPHD_FAULT": f"free-slow:0:{SLOW}"}) as daemon:
        with Client(daemon, name="owner") as owner, Client(daemon, name="neighbour") as neighbour:
            graph = neighbour.register(NEG).graph
            neighbour.replay(graph, [bytes(16)])
            buffer = owner.allocate(160 * MIB)
            freed = owner.method("Memory/Free").future(pb.FreeRequest(buffers=[buffer]), metadata=owner.metadata())
            until("the buffer is none of the session's any more", lambda: not owner.call("Memory/ListBuffers", pb.ListBuffersRequest()).buffers or
                  all(b.buffer != buffer for b in owner.call("Memory/ListBuffers", pb.ListBuffersRequest()).buffers))
            for _ in range(5):
                neighbour.replay(graph, [bytes(16)])
            room = neighbour.method("Memory/Allocate").future(pb.AllocateRequest(bytes=200 * MIB), metadata=neighbour.metadata())
            neighbour.replay(graph, [bytes(16)])
            used = daemon.used_bytes()
            assert not freed.done() and not room.done(), "they waited for the memory, or it was not slow for long enough"
            assert used >= 160 * MIB, used
            freed.result(PATIENCE)
            assert room.result(PATIENCE).buffer
        daemon.settle()
        assert daemon.used_bytes() == 0, daemon.used_bytes()


@test("a graph that is released, and a session that ends, free what is large beside the calls; what it held is free at its end")
def last_holders():
    with open_daemon(env={"NPUGRAPHD_FAULT": f"free-slow:0:{SLOW // 2}"}) as daemon:
        with Client(daemon, name="neighbour") as neighbour:
            graph = neighbour.register(NEG).graph
            neighbour.replay(graph, [bytes(16)])
            with Client(daemon, name="owner") as owner:
                n = 64 * MIB // 4
                buffer = owner.allocate(4 * n)
                text = f'npugraph 1\ngraph "s" {{\n  state %s : f32[{n}] = "s"\n  input %x : f32[1]\n  return "x" = %x\n}}\n'
                held = owner.register(text, {"s": buffer}).graph
                owner.call("Memory/Free", pb.FreeRequest(buffers=[buffer]))  # the graph still holds it
                owner.call("Graphs/Release", pb.ReleaseRequest(graph=held))
                neighbour.replay(graph, [bytes(16)])
                assert daemon.used_bytes() >= 4 * n, "they waited for the memory, or it was not slow for long enough"
            assert daemon.used_bytes() == 0, daemon.used_bytes()


if __name__ == "__main__":
    main()
