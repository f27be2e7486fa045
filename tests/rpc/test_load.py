#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""LoadSafetensors: good files, files with wrong contents, and paths that lead elsewhere."""
import json
import os
import struct
import threading

from harness import *

MODELS = SCRATCH / "models"
OUTSIDE = SCRATCH / "outside"
MODELS.mkdir()
OUTSIDE.mkdir()
MIB = 1 << 20


def safetensors(path, tensors, header=None, data=None, length=None, metadata=None):
    """Writes a file. tensors: {name: (dtype, shape, bytes)}; the other arguments replace correct parts of the file."""
    entries, blob = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(blob), len(blob) + len(content)]}
        blob += content
    if metadata:
        entries["__metadata__"] = metadata
    text = json.dumps(entries).encode() if header is None else header
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text) if length is None else length) + text + (blob if data is None else data))
    return path


def entry(begin, end, dtype="F32", shape=(2,)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


@test("a file's tensors are loaded as they are, with dtype and shape, in file order or as named")
def loads(daemon):
    path = safetensors(MODELS / "good.safetensors", {
        "a": ("F32", [2, 3], struct.pack("<6f", *range(6))), "b": ("BF16", [4], b"\1\2\3\4\5\6\7\x08"),
        "c": ("I64", [], struct.pack("<q", -5)), "empty": ("F16", [0, 7], b"")}, metadata={"format": "pt"})
    with Client(daemon) as c:
        done = c.load(path)
        got = {t.name: t for t in done.tensors}
        assert set(got) == {"a", "b", "c", "empty"} and not done.shared
        assert (got["a"].dtype, list(got["a"].shape), got["a"].bytes) == ("f32", [2, 3], 24)
        assert c.read(got["a"].buffer) == struct.pack("<6f", *range(6)) and c.read(got["b"].buffer) == b"\1\2\3\4\5\6\7\x08"
        assert list(got["c"].shape) == [] and got["empty"].bytes == 0
        assert [t.name for t in c.load("good.safetensors", ["c", "a"]).tensors] == ["c", "a"]
        got = refused("TENSOR_MISSING", "NOT_FOUND", c.load, path, ["a", "zzz"])
        assert "zzz" in got.text


@test("slices of tensors are loaded: rows, columns, of any dimension; shared among themselves, and what is no slice is refused")
def slices(daemon):
    rows, columns = 40, 300_000  # a row is longer than one read; the test below has short rows
    wide = os.urandom(rows * columns)
    cube = bytes(range(2 * 3 * 5))
    path = safetensors(MODELS / "slices.safetensors", {
        "wide": ("U8", [rows, columns], wide), "w": ("F32", [6, 4], struct.pack("<24f", *range(24))), "cube": ("U8", [2, 3, 5], cube),
        "huge": ("U8", [3, 9 * MIB], (b"a" * 9 + b"b" * 9 + b"c" * 9) * MIB), "none": ("F32", [0, 7], b""), "one": ("F32", [], b"abcd")})

    def load(c, names, *slices):
        request = pb.LoadSafetensorsRequest(path=str(path), tensors=names)
        for name, dim, begin, end, *of in slices:
            request.slices.add(name=name, dim=dim, begin=begin, end=end, of=of[0] if of else 0)
        done = list(c.call("Memory/LoadSafetensors", request))[-1].done
        return {t.name: t for t in done.tensors}, done.shared

    with Client(daemon) as c:
        before = daemon.used_bytes()
        for dim, begin, end in ((0, 0, 2), (0, 5, 6), (1, 0, 1), (1, 1, 3), (1, 3, 4), (1, 0, 4)):
            got, _ = load(c, ["w"], ("w", dim, begin, end))
            w = [[4.0 * i + k for k in range(4)] for i in range(6)]
            w = w[begin:end] if dim == 0 else [r[begin:end] for r in w]
            assert list(got["w"].shape) == [len(w), len(w[0])] and got["w"].bytes == 4 * len(w) * len(w[0])
            assert c.read(got["w"].buffer) == b"".join(struct.pack(f"<{len(r)}f", *r) for r in w), (dim, begin, end)
        assert list(load(c, ["w"], ("w", 0, 1, 3, 6))[0]["w"].shape) == [2, 4]
        for bad in (("w", 0, 1, 3, 5), ("w", 1, 0, 2, 2), ("w", 0, 0, 7, 7), ("w", 0, 0, 1, -1)):
            assert f"it must be {bad[4]}" in refused("FILE_CORRUPT", "INVALID_ARGUMENT", load, c, ["w"], bad).text
        got, shared = load(c, ["wide", "cube", "w"], ("wide", 1, 1000, 299_000), ("cube", 1, 1, 3))
        assert c.read(got["wide"].buffer) == b"".join(wide[i * columns + 1000:i * columns + 299_000] for i in range(rows))
        assert c.read(got["cube"].buffer) == cube[5:15] + cube[20:30] and list(got["cube"].shape) == [2, 2, 5]
        assert list(got["w"].shape) == [6, 4] and not shared
        got, _ = load(c, ["huge"], ("huge", 1, 1, 9 * MIB - 1))
        assert c.read(got["huge"].buffer, 0, 100) == (b"a" * 9 + b"b" * 9 + b"c" * 9).__mul__(5)[1:101]
        assert got["huge"].bytes == 3 * (9 * MIB - 2)
        c.call("Memory/Free", pb.FreeRequest(buffers=[got["huge"].buffer]))
        again, shared = load(c, ["cube"], ("cube", 1, 1, 3))
        assert shared and not load(c, ["cube"], ("cube", 1, 0, 2))[1] and not load(c, ["cube"])[1]
        for bad in (("w", 2, 0, 1), ("w", 0, 0, 7), ("w", 0, 3, 3), ("w", 0, -1, 3), ("w", 1, 4, 5), ("one", 0, 0, 1), ("none", 0, 0, 1),
                    ("w", 0, 2**62, 2**63 - 1), ("w", 2**31, 0, 1)):
            assert bad[0] in refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", load, c, ["w", "one", "none"], bad).text
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", load, c, ["w"], ("w", 0, 0, 1), ("w", 0, 1, 2))
        refused("TENSOR_MISSING", "NOT_FOUND", load, c, ["w"], ("cube", 0, 0, 1))
        got = refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", load, c, ["w"], *[(f"x{i}", 0, 0, 1) for i in range(7)])
        assert "6 tensors" in got.text and "7 slices" in got.text
        got, _ = load(c, ["none"], ("none", 1, 2, 5))
        assert list(got["none"].shape) == [0, 3] and got["none"].bytes == 0
    until("everything is freed", lambda: daemon.used_bytes() <= before)


@test("int4 numbers plus 8 become two's complement when they are loaded: whole, rows and columns; never shared with those as they lie")
def int4(daemon):
    packed = os.urandom(4 * 6 * 8)
    turned = bytes(b ^ 0x88 for b in packed)
    path = safetensors(MODELS / "int4.safetensors", {"w": ("I32", [6, 8], packed), "f": ("F32", [2], bytes(8))})

    def load(c, name, dim, begin, end, change):
        request = pb.LoadSafetensorsRequest(path=str(path), tensors=[name])
        request.slices.add(name=name, dim=dim, begin=begin, end=end, change=change)
        done = list(c.call("Memory/LoadSafetensors", request))[-1].done
        return c.read(done.tensors[0].buffer), done.shared

    with Client(daemon) as c:
        for change, content in ((0, packed), (pb.TENSOR_CHANGE_OFFSET_INT4, turned)):
            assert load(c, "w", 0, 0, 6, change) == (content, False)
            assert load(c, "w", 0, 2, 5, change) == (content[64:160], False)
            assert load(c, "w", 1, 3, 5, change) == (b"".join(content[32 * r + 12:32 * r + 20] for r in range(6)), False)
        for change, content in ((0, packed), (pb.TENSOR_CHANGE_OFFSET_INT4, turned)):
            assert load(c, "w", 0, 0, 6, change) == (content, True)
        assert "packed int4" in refused("FILE_CORRUPT", "INVALID_ARGUMENT", load, c, "f", 0, 0, 2, 1).text


@test("progress is told, and ends at the total")
def progress(daemon):
    path = safetensors(MODELS / "big.safetensors", {f"t{i}": ("U8", [MIB], os.urandom(MIB)) for i in range(40)})
    with Client(daemon) as c:
        messages = list(c.call("Memory/LoadSafetensors", pb.LoadSafetensorsRequest(path=str(path))))
        assert messages[-1].HasField("done") and messages[-1].bytes_done == messages[-1].bytes_total == 40 * MIB
        assert not any(m.HasField("done") for m in messages[:-1])


@test("the same file loaded twice is in memory once; it is free when nobody holds it")
def shared(daemon):
    path = safetensors(MODELS / "shared.safetensors", {"w": ("F32", [MIB], os.urandom(4 * MIB))})
    daemon.settle()
    until("no weights are left of earlier tests", lambda: daemon.stats()["weight_bytes"] == 0)
    before = daemon.used_bytes()
    with Client(daemon) as a, Client(daemon) as b:
        first = a.load(path)
        used = daemon.used_bytes()
        second = b.load(path)
        assert second.shared and daemon.used_bytes() == used
        assert a.read(first.tensors[0].buffer) == b.read(second.tensors[0].buffer)
        a.close()
        assert daemon.used_bytes() == used and len(b.read(second.tensors[0].buffer)) == 4 * MIB
    until("the memory is free", lambda: daemon.used_bytes() <= before)
    until("no weights are left", lambda: daemon.stats()["weight_bytes"] == 0)


@test("loads of one file at the same time read it once")
def at_once(daemon):
    path = safetensors(MODELS / "race.safetensors", {f"t{i}": ("U8", [MIB], os.urandom(MIB)) for i in range(64)})
    before = daemon.used_bytes()
    peak = [0]
    stop = threading.Event()

    def watch():
        while not stop.is_set():
            peak[0] = max(peak[0], daemon.used_bytes())
    watcher = threading.Thread(target=watch)
    watcher.start()
    clients = [Client(daemon) for _ in range(6)]
    loads = [threading.Thread(target=c.load, args=(path,)) for c in clients]
    for t in loads:
        t.start()
    for t in loads:
        t.join()
    stop.set()
    watcher.join()
    assert daemon.used_bytes() - before < 66 * MIB and peak[0] - before < 66 * MIB, (daemon.used_bytes(), peak)
    for c in clients:
        c.close()
    until("the memory is free", lambda: daemon.used_bytes() <= before)


@test("weights stay shared while a graph holds them, also when their loader has left")
def shared_through_graph(daemon):
    path = safetensors(MODELS / "held.safetensors", {"w": ("F32", [MIB], bytes(4 * MIB))})
    text = f'npugraph 1\ngraph "holder" {{ param %w : f32[{MIB}] = "w" input %x : f32[1] %y = aten.add.Tensor(%w, %x) return %y }}'
    with Client(daemon) as a, Client(daemon) as b:
        buffer = a.load(path).tensors[0].buffer
        a.register(text, {"w": buffer})
        a.call("Memory/Free", pb.FreeRequest(buffers=[buffer]))
        assert b.load(path).shared


@test("shared tensors are read-only: neither an upload nor a state may change them")
def read_only(daemon):
    path = safetensors(MODELS / "ro.safetensors", {"w": ("F32", [4, 4], bytes(64)), "i": ("I64", [1], bytes(8))})
    with Client(daemon) as c:
        done = {t.name: t.buffer for t in c.load(path).tensors}
        refused("PERMISSION_DENIED", "PERMISSION_DENIED", c.write, done["w"], b"x")
        text = 'npugraph 1\ngraph "g" { state %s : f32[4,4] = "s" input %x : f32[4,4] %y = aten.add.Tensor(%s, %x) return %y }'
        refused("BINDING_MISMATCH", "INVALID_ARGUMENT", c.register, text, {"s": done["w"]})


@test("a file that was written again is another file")
def changed(daemon):
    path = safetensors(MODELS / "changed.safetensors", {"w": ("U8", [4], b"old!")})
    with Client(daemon) as c:
        old = c.load(path).tensors[0].buffer
        safetensors(MODELS / "new", {"w": ("U8", [4], b"new!")})
        os.replace(MODELS / "new", path)
        done = c.load(path)
        assert not done.shared and c.read(done.tensors[0].buffer) == b"new!" and c.read(old) == b"old!"


LIES = {  # what is wrong: (reason, file contents)
    "header of 2^60 bytes": ("FILE_CORRUPT", struct.pack("<Q", 1 << 60) + b"{}"),
    "header beyond the file": ("FILE_TRUNCATED", struct.pack("<Q", 5000) + b"{}"),
    "header of 101 MB": ("FILE_CORRUPT", struct.pack("<Q", 106_000_000) + b"{}"),
    "empty file": ("FILE_TRUNCATED", b""),
    "seven bytes": ("FILE_TRUNCATED", b"\2\0\0\0\0\0\0"),
    "no JSON": ("FILE_CORRUPT", struct.pack("<Q", 4) + b"!!!!"),
    "a JSON list": ("FILE_CORRUPT", struct.pack("<Q", 2) + b"[]"),
    "JSON of a thousand levels": ("FILE_CORRUPT", struct.pack("<Q", 200000) + b"[" * 200000),
}
ENTRIES = {  # what is wrong: (reason, entries, bytes of data)
    "offsets outside the file": ("FILE_TRUNCATED", {"t": entry(0, 8)}, 4),
    "offsets far outside": ("FILE_TRUNCATED", {"t": entry(1 << 60, (1 << 60) + 8)}, 8),
    "offsets backwards": ("FILE_CORRUPT", {"t": entry(8, 0)}, 8),
    "negative offsets": ("FILE_CORRUPT", {"t": entry(-8, 0)}, 8),
    "offsets that are no integers": ("FILE_CORRUPT", {"t": {"dtype": "F32", "shape": [2], "data_offsets": [0, "8"]}}, 8),
    "three offsets": ("FILE_CORRUPT", {"t": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8, 16]}}, 16),
    "overlap": ("FILE_CORRUPT", {"t": entry(0, 8), "u": entry(4, 12)}, 12),
    "fewer bytes than the shape": ("FILE_CORRUPT", {"t": entry(0, 8, shape=[3])}, 8),
    "shape that overflows": ("OVERFLOW", {"t": entry(0, 8, shape=[1 << 40, 1 << 40])}, 8),
    "negative size": ("FILE_CORRUPT", {"t": entry(0, 8, shape=[-2])}, 8),
    "rank 9": ("FILE_CORRUPT", {"t": entry(0, 4, shape=[1] * 9)}, 4),
    "unknown dtype": ("FILE_UNSUPPORTED", {"t": entry(0, 8, dtype="F8_E4M3", shape=[8])}, 8),
    "no dtype": ("FILE_CORRUPT", {"t": {"shape": [2], "data_offsets": [0, 8]}}, 8),
    "an entry that is a number": ("FILE_CORRUPT", {"t": 5}, 8),
}


@test("a truncated or lying file is refused with what is wrong, and nothing stays in memory")
def lies(daemon):
    before = daemon.used_bytes()
    with Client(daemon) as c:
        for what, (reason, content) in LIES.items():
            (MODELS / "lie").write_bytes(content)
            check(c, what, reason)
        for what, (reason, entries, n) in ENTRIES.items():
            safetensors(MODELS / "lie", {}, header=json.dumps(entries).encode(), data=bytes(n))
            check(c, what, reason)
    assert daemon.used_bytes() <= before


def check(client, what, reason):
    try:
        refused(reason, "INVALID_ARGUMENT", client.load, MODELS / "lie")
    except AssertionError as e:
        raise AssertionError(f"{what}: {e}") from None


@test("a path outside the allowed directories is refused, however it gets there")
def paths(daemon):
    secret = safetensors(OUTSIDE / "secret.safetensors", {"w": ("U8", [1], b"s")})
    good = safetensors(MODELS / "in.safetensors", {"w": ("U8", [1], b"i")})
    (MODELS / "sub").mkdir()
    (MODELS / "sub" / "inside").symlink_to("../in.safetensors")
    (MODELS / "link").symlink_to(secret)
    (MODELS / "relative").symlink_to("../outside/secret.safetensors")
    (MODELS / "dir").symlink_to(OUTSIDE)
    (MODELS / "proc").symlink_to("/proc/self/root")
    with Client(daemon) as c:
        assert c.load(good) and c.load(MODELS / "sub" / "inside").shared  # a link that stays inside
        for path in (secret, "/etc/passwd", "../outside/secret.safetensors", MODELS / "../outside/secret.safetensors",
                     MODELS / "link", MODELS / "relative", MODELS / "dir/secret.safetensors", f"{MODELS}x/secret", f"{MODELS}/proc{secret}",
                     "/proc/self/environ", MODELS, "/", "", "."):
            try:
                refused("PATH_NOT_ALLOWED", "PERMISSION_DENIED", c.load, path)
            except AssertionError as e:
                # A directory may also be reported as one.
                if "FILE_UNSUPPORTED" not in str(e) and "FILE_NOT_FOUND" not in str(e) or path == secret:
                    raise AssertionError(f"{path}: {e}") from None
        refused("FILE_NOT_FOUND", "NOT_FOUND", c.load, MODELS / "nothing.safetensors")
        os.mkfifo(MODELS / "fifo")
        refused("FILE_UNSUPPORTED", "INVALID_ARGUMENT", c.load, MODELS / "fifo")
        refused("FILE_UNSUPPORTED", "INVALID_ARGUMENT", c.load, MODELS / "sub")


@test("a file larger than the device is refused before anything is allocated")
def no_room(daemon):
    size = 300 * MIB
    header = json.dumps({"huge.weight": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    with open(MODELS / "huge.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header)
        f.truncate(8 + len(header) + size)  # a hole: it takes no disk
    before = daemon.used_bytes()
    with Client(daemon) as c:
        got = refused("NO_DEVICE_MEMORY", "RESOURCE_EXHAUSTED", c.load, MODELS / "huge.safetensors")
        assert "host:0" in got.text
    assert daemon.used_bytes() <= before


@test("a client that vanishes in the middle of a load leaves nothing")
def vanish(daemon):
    path = MODELS / "hole.safetensors"
    size = 200 * MIB
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header)
        f.truncate(8 + len(header) + size)
    before = daemon.used_bytes()
    child = Child(daemon, f"""
c = Client(daemon)
stream = c.call("Memory/LoadSafetensors", pb.LoadSafetensorsRequest(path={str(path)!r}))
next(stream)
print("started")
for _ in stream: pass
import time; time.sleep(60)
""")
    child.line()
    child.kill()
    until("the memory is free", lambda: daemon.used_bytes() <= before)


if __name__ == "__main__":
    main(f"--models-dir={MODELS}")
