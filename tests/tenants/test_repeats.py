#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A user repeats calls while the first one is under way: the device does not wait while they are answered."""
import mmap
import pathlib
import signal
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from tenants import *  # noqa: E402,F403

NEG = 'npugraph 1\ngraph "g" {\n  input %a : f32[4]\n  %b = aten.neg(%a)\n  return "b" = %b\n}\n'
N, FLOATS, ROUNDS = 80, 3900000, 3
MIB = 1 << 20
# The first call waits for captures of the same user, not on the device, until all calls have arrived.
REPEATER = f"N, FLOATS = {N}, {FLOATS}\n" + r"""
lines = ["  input %v0 : f32[64]"] + [f"  %v{k + 1} = aten.add.Tensor(%v{k}, %v{max(0, k - 3)})" for k in range(20000)]
client = Client(daemon)
slow = client.register('npugraph 1\ngraph "slow" {\n' + "\n".join(lines) + '\n  return "o" = %v20000\n}\n').graph
capture, replay = client.method("Graphs/Capture"), client.method("Graphs/Replay")
for line in sys.stdin:
    size, request_id = FLOATS + int(line), "r" + line.strip()
    text = f'npugraph 1\ngraph "big" {{ input %x : f32[1] %y = aten.expand(%x) {{size=[{size}]}} %z = aten.neg(%y) return %z }}'
    request = pb.ReplayRequest(graph=client.register(text).graph, inputs=[bytes(4)])
    captures = [capture.future(pb.CaptureRequest(graph=slow, dry_run=True), metadata=client.metadata()) for _ in range(8)]
    time.sleep(0.1)
    calls = [replay.future(request, metadata=client.metadata(request_id), timeout=10 * PATIENCE) for _ in range(N)]
    print("sent", flush=True)
    answers = [call.result().outputs[0] for call in calls]
    assert len(answers[0]) == 4 * size and all(a == answers[0] for a in answers)
    for c in captures:
        c.result()
    print("answered", flush=True)
    del answers, calls
"""


def copy_seconds():
    """Returns the time of copying one answer to memory that was not used before."""
    answer, times = bytes(4 * FLOATS), []
    for _ in range(9):
        began = time.monotonic()
        with mmap.mmap(-1, len(answer)) as copy:
            copy.write(answer)
        times.append(time.monotonic() - began)
    return statistics.median(times)


def captures_of(client):
    for share in client.call("Admin/ListShares", pb.ListSharesRequest()).shares:
        if share.identity == f"uid:{NOBODY}":
            return next(q.used for q in share.quotas if q.name == "captures")
    return 0


def longest_wait(client, graph, seconds):
    """Replays for so many seconds, and returns the longest wait for the device."""
    longest, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        longest = max(longest, client.call("Graphs/Replay", pb.ReplayRequest(graph=graph, inputs=[bytes(16)])).queue_ns / 1e9)
        time.sleep(0.001)
    return longest


@test("while many repetitions of a call with a large answer are answered the device goes on, and the answer is in memory once")
def answered():
    with open_daemon() as daemon, Client(daemon, name="neighbour") as client:
        graph = client.register(NEG).graph
        client.replay(graph, [bytes(16)])
        repeater = Tenant(daemon, REPEATER)
        in_flight = lambda: daemon.stats()["requests"]["in_flight"]
        copies, waits, more = [], [], []
        for k in range(ROUNDS):
            repeater.say(str(k))
            assert repeater.line() == "sent"
            until("all of them wait", lambda: in_flight() >= N)
            assert captures_of(client), "the first call did not wait for long enough"
            # No client reads the answers, so each copy would stay in memory.
            repeater.process.send_signal(signal.SIGSTOP)
            before, wait = rss_mib(daemon), 0
            while captures_of(client):
                wait = max(wait, longest_wait(client, graph, 0.05))
            wait = max(wait, longest_wait(client, graph, 1.0))
            more.append(rss_mib(daemon) - before)
            repeater.process.send_signal(signal.SIGCONT)
            assert repeater.line() == "answered"
            waits.append(wait)
            copies.append(copy_seconds())
        print(f"# waited {[round(w * 1e3, 1) for w in waits]} ms; {N} copies take {[round(N * c * 1e3) for c in copies]} ms; "
              f"{more} MiB more")
        repeater.process.stdin.close()
        repeater.process.stdin = None
        repeater.wait()
        if SANITIZER:
            return
        all_copies = N * statistics.median(copies)
        assert statistics.median(waits) < all_copies / 4, f"a neighbour waited {waits} s; {N} copies take {all_copies} s"
        assert max(more) < N * 4 * FLOATS / MIB / 4, f"{more} MiB more for one answer"


if __name__ == "__main__":
    main()
