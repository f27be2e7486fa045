#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A tenant that fills the store on disk evicts its own entries, not those of others."""
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from tenants import *  # noqa: E402,F403
from tenants import NOBODY, Client, Tenant, open_daemon  # noqa: E402

OTHER = NOBODY - 1
THIRD = NOBODY - 2
BUDGET = 256 << 10
LIMIT = BUDGET - BUDGET // 4
# Captures graphs that no other client has, reports it, and keeps its session. Each makes two entries: the graph and its plan.
CAPTURE = """
client = Client(daemon)
def capture(first, n):
    for i in range(first, first + n):
        text = 'npugraph 1\\ngraph "g%d" { input %%x : f32[%d] %%y = aten.neg(%%x) return %%y }' % (i, i)
        client.replay(client.register(text).graph, [bytes(4 * i)])
capture(FIRST, N)
print("captured", flush=True)
sys.stdin.readline()
"""


def capture(daemon, uid, first, n):
    tenant = Tenant(daemon, CAPTURE.replace("FIRST", str(first)).replace("N)", f"{n})"), uid=uid)
    assert tenant.line() == "captured"
    return tenant


def counter(daemon, name):
    return sum(int(float(line.split()[-1])) for line in daemon.http("/metrics")[1].splitlines() if line.startswith(f"npugraphd_{name}"))


def written(daemon, entries, least=None):
    """Waits until so many entries were written or refused, which happens after the captures. A slow disk takes its time for
    hundreds of them, but each comes within the usual patience. least: then no more than so many need come."""
    def more(done):
        now = counter(daemon, "store_writes_total") + counter(daemon, "store_write_failures_total")
        return now > done and now

    done = 0
    while done < entries:
        try:
            done = until(f"more than {done} of {entries} entries are written", lambda before=done: more(before))
        except AssertionError:
            if least is None or done < least:
                raise
            return


def quota(client, uid):
    """(held, limit, refused)"""
    for share in client.call("Admin/ListShares", pb.ListSharesRequest()).shares:
        for q in share.quotas:
            if share.identity == f"uid:{uid}" and q.name == "store_bytes":
                return q.used, q.limit, q.refused
    raise AssertionError(f"uid:{uid} has no quota of the store")


def on_disk(store, uid):
    """Returns the names of an owner's entries, and their bytes."""
    mine = [path for path in (store / "entries").iterdir() if f"owner uid:{uid}\n".encode() in path.read_bytes()]
    return {path.name for path in mine}, sum(path.stat().st_size for path in mine)


def store_of(name):
    path = SCRATCH / name
    path.mkdir(mode=0o700)
    return path / "store"


@test("a tenant that captures without end fills its part of the store, and a neighbour's entries stay and are found again")
def fill():
    need_two_users()
    store = store_of("fill")
    options = (f"--store-dir={store}", f"--store-budget={BUDGET}")
    with open_daemon(*options) as daemon, Client(daemon) as admin:
        capture(daemon, OTHER, 1, 5)
        written(daemon, 10)
        kept, bytes_kept = on_disk(store, OTHER)
        assert len(kept) == 10
        attacker = capture(daemon, NOBODY, 100, 300)
        written(daemon, 610, least=400)  # plans are not stored while too many wait, as on a busy machine
        assert counter(daemon, "store_evictions_total") > 100
        assert on_disk(store, OTHER) == (kept, bytes_kept), "nothing of the neighbour is evicted"
        names, held = on_disk(store, NOBODY)
        assert LIMIT // 2 < held <= LIMIT and quota(admin, NOBODY) == (held, LIMIT, 0), (held, quota(admin, NOBODY))
        said = subprocess.run([CTL, "--address", daemon.address, "quota", f"uid:{NOBODY}"], capture_output=True, text=True, check=True)
        assert "store_bytes" in said.stdout, said.stdout
        attacker.kill()
    with open_daemon(*options) as daemon, Client(daemon) as admin:
        capture(daemon, OTHER, 1, 5)
        assert counter(daemon, 'graph_plans_total{source="store"}') + counter(daemon, 'warm_captures_total{result="captured"}') >= 5
        assert quota(admin, OTHER)[0] == bytes_kept, "what a former process wrote counts"
        capture(daemon, NOBODY, 400, 1)
        written(daemon, 2)
        assert quota(admin, NOBODY)[0] == on_disk(store, NOBODY)[1] > LIMIT // 2
        assert on_disk(store, OTHER) == (kept, bytes_kept)


@test("several tenants that fill the store together leave a neighbour his entries: who has most gives first")
def together():
    need_two_users()
    store = store_of("together")
    with open_daemon(f"--store-dir={store}", f"--store-budget={BUDGET}") as daemon, Client(daemon) as admin:
        capture(daemon, OTHER, 1, 5)
        written(daemon, 10)
        kept = on_disk(store, OTHER)
        capture(daemon, NOBODY, 100, 200)
        written(daemon, 410)
        capture(daemon, THIRD, 300, 200)
        written(daemon, 810)
        assert on_disk(store, OTHER) == kept
        first, second = (quota(admin, uid)[0] for uid in (NOBODY, THIRD))
        assert min(first, second) > BUDGET // 4 and first + second + kept[1] <= BUDGET, (first, second, kept[1])


@test("an entry that alone is larger than the limit is refused and counted, and the replay works")
def too_large():
    need_two_users()
    store = store_of("too_large")
    with open_daemon(f"--store-dir={store}", "--max-store-bytes-per-identity=16") as daemon, Client(daemon) as admin:
        tenant = capture(daemon, NOBODY, 1, 1)
        until("the graph and the plan are refused", lambda: quota(admin, NOBODY) == (0, 16, 2))
        assert on_disk(store, NOBODY) == (set(), 0)
        tenant.kill()


if __name__ == "__main__":
    main()
