#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SIGKILL before the n-th system call that changes a file; the next start serves, trusts no part of an entry, and cleans up."""
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from alloc import *  # noqa: E402,F403

SIZES = (1, 2, 3, 5)


def replays(client):
    graph = client.register(TOGETHER, options={"merge_replays": "false"}).graph
    more = client.register(TOGETHER.replace("buckets 1, 32", "buckets 2, 8, 64").replace("1..32", "1..64")).graph
    return [list(client.replay(g, [ROWS[:16 * n]], [n]).outputs) for g in (graph, more) for n in SIZES]


def work(daemon, store, imports):
    """All that writes the store: plans, the budget's evictions, an import, a bad entry that is set aside, a clear, the note."""
    with Client(daemon) as c:
        got = replays(c)
        until("plans are stored", lambda: not daemon.alive() or len(list((store / "entries").glob("*.plan"))) >= 3)
        if imports:
            c.call("Admin/ImportStore", iter([pb.ImportStoreRequest(data=imports, total=len(imports))]))
        listed = c.call("Admin/ListStore", pb.ListStoreRequest()).entries
        for entry in [e for e in listed if e.kind == pb.STORE_ENTRY_KIND_PLAN][:1]:
            with open(store / "entries" / entry.name, "r+b") as f:
                f.write(b"not an entry any more")
        c.call("Admin/VerifyStore", pb.VerifyStoreRequest())
        c.call("Admin/ClearStore", pb.ClearStoreRequest(name=listed[-1].name))
    daemon.signal(signal.SIGTERM)
    daemon.process.wait(PATIENCE)
    return got


class Kills:
    def __init__(self, args, total):
        self.args, self.sum, self.failing = args, total, Failing()
        self.template = SCRATCH / "template"
        with self.daemon(self.template) as daemon, Client(daemon) as c:
            self.reference = replays(c)
            until("plans are stored", lambda: len(list((self.template / "entries").glob("*.plan"))) >= 4)
            listed = c.call("Admin/ListStore", pb.ListStoreRequest()).entries
            name = next(e.name for e in listed if e.kind == pb.STORE_ENTRY_KIND_PLAN)
            self.imports = b"".join(p.data for p in c.call("Admin/ReadStore", pb.ReadStoreRequest(name=name)))

    def daemon(self, store, **kwargs):
        return self.failing.daemon(f"--store-dir={store}", "--store-budget=64K", "--admin-identities=*", **kwargs)

    def kill_at(self, n, empty):
        """False: it has fewer such calls."""
        store = SCRATCH / "store"
        shutil.rmtree(store, ignore_errors=True)
        if not empty:
            shutil.copytree(self.template, store)
        self.failing.arm(KILLS, OWN, n)
        what = f"kill {n}" + (", of a store that is new" if empty else "")
        try:
            daemon = self.daemon(store)
            work(daemon, store, self.imports)
        except (AssertionError, grpc.RpcError, IndexError, FileNotFoundError) as error:
            if not self.failing.page.failed:
                self.sum.check(what, False, f"without a kill: {error!r}")
        died = self.failing.disarm()
        for left in list(Daemon.running):
            left.kill()
        where = self.failing.where() if died else "it was not killed"
        self.sum.notes["killed at " + where.split(" ")[0]] += 1 if died else 0
        try:
            self.again(store)
            self.sum.passed += 1
        except (AssertionError, grpc.RpcError) as error:
            self.sum.check(what, False, f"{str(error)[:1500]}: {where}")
            for left in list(Daemon.running):
                left.kill()
        return bool(died)

    def again(self, store):
        """The next start."""
        with self.daemon(store) as daemon:
            left = [f for f in (store / "tmp").iterdir() if not f.name.startswith(f"{daemon.process.pid}-")]  # its own are under way
            assert not left, f"in tmp: {left}"
            with Client(daemon) as c:
                verified = c.call("Admin/VerifyStore", pb.VerifyStoreRequest())
                # What this test broke itself is found by its checksum, if the daemon was killed before it looked.
                bad = [b.reason for b in verified.bad if b.reason not in ("checksum", "truncated", "format")]
                assert not bad and len(verified.bad) <= 1, verified
                got = replays(c)
                assert got == self.reference, "other results"

    def run(self):
        if self.args.seconds:
            while time.monotonic() < self.args.end:
                self.kill_at(self.args.random.randint(1, 150), self.args.random.random() < 0.3)
            return
        for empty in (True, False):
            n = 1
            while self.kill_at(n, empty):
                n += 1
            print(f"{n - 1} kills" + (", of a store that is new" if empty else ""), flush=True)


if __name__ == "__main__":
    ARGS, TOTAL = arguments(__doc__), Sum()
    Kills(ARGS, TOTAL).run()
    TOTAL.end()
