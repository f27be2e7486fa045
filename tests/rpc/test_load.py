#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""LoadSafetensors: good files, files with wrong contents, and paths that lead elsewhere."""
import json
import os
import random
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
        for name, dim, begin, end, *shape in slices:
            request.slices.add(name=name, dim=dim, begin=begin, end=end, shape=shape)
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
        assert list(load(c, ["w"], ("w", 0, 1, 3, 6, 4))[0]["w"].shape) == [2, 4]
        for bad in ((5, 4), (6, 2), (7, 4), (-1, 4), (6,), (6, 4, 1), (6, 4, 1, 1, 1, 1, 1, 1)):
            got = refused("FILE_CORRUPT", "INVALID_ARGUMENT", load, c, ["w"], ("w", 0, 1, 3, *bad))
            assert f"tensor w is [6,4]; it must be [{','.join(map(str, bad))}]" in got.text, got.text
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", load, c, ["w"], ("w", 0, 1, 3, *[1] * 9))
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
        assert list(load(c, ["one"], ("one", 0, 0, 1, 1))[0]["one"].shape) == []  # a scalar, for who wants one element
        assert "must be [2]" in refused("FILE_CORRUPT", "INVALID_ARGUMENT", load, c, ["one"], ("one", 0, 0, 1, 2)).text
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", load, c, ["w"], ("w", 0, 0, 1), ("w", 0, 1, 2))
        refused("TENSOR_MISSING", "NOT_FOUND", load, c, ["w"], ("cube", 0, 0, 1))
        got = refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", load, c, ["w"], *[(f"x{i}", 0, 0, 1) for i in range(7)])
        assert "6 tensors" in got.text and "7 slices" in got.text
        names = ["wide", "cube", "w", "huge", "none", "one", "more"]
        assert "no tensor more" in refused("TENSOR_MISSING", "NOT_FOUND", load, c, names).text
        got, _ = load(c, ["none"], ("none", 1, 2, 5))
        assert list(got["none"].shape) == [0, 3] and got["none"].bytes == 0
    until("everything is freed", lambda: daemon.used_bytes() <= before)


# ---- changes -----------------------------------------------------------------------------------------------------------------

AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]
# word: how numbers lie in the i32s of a tensor, their bits, whether the result is transposed; what zero points are less
WEIGHTS = {"OFFSET_INT4": ("columns", 4, False), "OFFSET_INT8": ("columns", 8, False), "GPTQ_INT4": ("rows", 4, True),
           "GPTQ_INT8": ("rows", 8, True), "AWQ_INT4": ("awq", 4, True)}
ZEROS = {"OFFSET_INT4_ZEROS": ("rows", 4, False, 0), "OFFSET_INT8_ZEROS": ("rows", 8, False, 0), "I8_ZEROS": ("i8", 8, False, 0),
         "GPTQ_INT4_ZEROS": ("columns", 4, True, 0x11111111), "GPTQ_INT8_ZEROS": ("columns", 8, True, 0x01010101),
         "GPTQ_V2_INT4_ZEROS": ("columns", 4, True, 0), "GPTQ_V2_INT8_ZEROS": ("columns", 8, True, 0),
         "AWQ_INT4_ZEROS": ("awq", 4, True, 0)}


def change_value(name):
    return getattr(pb, "TENSOR_CHANGE_" + name)


def numbers_of(content, rows, columns, lies, bits, more=0):
    """Returns the matrix of unsigned numbers that a tensor of rows x columns elements has."""
    if lies == "i8":
        return [[b ^ 0x80 for b in content[r * columns:r * columns + columns]] for r in range(rows)]
    words = [(w + more) & 0xffffffff for w in struct.unpack(f"<{rows * columns}I", content)]
    each = 32 // bits
    parts = [[w >> bits * i & (1 << bits) - 1 for i in range(each)] for w in words]
    if lies == "awq":
        parts = [[p[AWQ_ORDER.index(i)] for i in range(8)] for p in parts]
    if lies == "rows":
        return [[parts[r // each * columns + c][r % each] for c in range(columns)] for r in range(rows * each)]
    return [sum(parts[r * columns:r * columns + columns], []) for r in range(rows)]


def packed_row(row, bits):
    """A row of weights: numbers less their middle, in two's complement."""
    if bits == 8:
        return bytes(n ^ 0x80 for n in row)
    return bytes(a ^ 8 | (b ^ 8) << 4 for a, b in zip(row[::2], row[1::2]))


def wanted_matrix(name, content, rows, columns):
    """Returns the dtype, the elements of a row, and rows of bytes that a change makes of a tensor."""
    if name == "TRANSPOSE":
        size = len(content) // (rows * columns)
        return None, rows, [b"".join(content[(r * columns + c) * size:][:size] for r in range(rows)) for c in range(columns)]
    lies, bits, transposed, *more = {**WEIGHTS, **ZEROS}[name]
    m = numbers_of(content, rows, columns, lies, bits, *more)
    m = [list(row) for row in zip(*m)] if transposed else m
    if name in ZEROS:
        return "f16", len(m[0]), [struct.pack(f"<{len(row)}e", *((1 << bits - 1) - z for z in row)) for row in m]
    return "i32" if bits == 4 else "i8", len(m[0]) // (8 if bits == 4 else 1), [packed_row(row, bits) for row in m]


def load_slice(c, path, name, dim, begin, end, change, shape=(), device=""):
    request = pb.LoadSafetensorsRequest(path=str(path), tensors=[name], device=device)
    request.slices.add(name=name, dim=dim, begin=begin, end=end, shape=shape, change=change)
    done = list(c.call("Memory/LoadSafetensors", request))[-1].done
    t = done.tensors[0]
    return t.dtype, list(t.shape), c.read(t.buffer), done.shared


def check_change(c, path, name, content, rows, columns, dtype=None, step=1, device="", change=None):
    """step: what a slice must be a multiple of, by dimension of the result."""
    wanted_dtype, elements, wanted = wanted_matrix(name, content, rows, columns)
    wanted_dtype = wanted_dtype or dtype
    size = len(wanted[0]) // elements
    shape = [len(wanted), elements]
    for dim in (0, 1):
        n, by = shape[dim], step[dim]
        for begin, end in {(0, n), (0, by), (n - by, n), (by, n - by)}:
            if begin >= end:
                continue
            part = wanted[begin:end] if dim == 0 else [row[begin * size:end * size] for row in wanted]
            got = load_slice(c, path, change or name, dim, begin, end, change_value(name), shape, device)[:3]
            assert got == (wanted_dtype, [end - begin if d == dim else shape[d] for d in (0, 1)], b"".join(part)), (name, dim, begin, end)
        if by > 1:
            said = refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", load_slice, c, path, change or name, dim, 1, n, change_value(name)).text
            assert "cut an i32" in said, said


def changes_on(daemon, device):
    """Each change, on a device; GPTQ and AWQ also with more than the loader moves at once."""
    rng = random.Random(1)
    tensors, checks = {}, []
    for name in [*WEIGHTS, *ZEROS, "TRANSPOSE"]:
        lies, bits = {**WEIGHTS, **ZEROS}.get(name, ("floats", 0))[:2]
        rows, columns = {"awq": (24, 3), "i8": (9, 5)}.get(lies, (7, 5)) if name != "OFFSET_INT8" else (5, 6)
        content = rng.randbytes(rows * columns * (1 if lies == "i8" else 4))
        tensors[name] = ("I8" if lies == "i8" else "I32" if bits else "F32", [rows, columns], content)
        each = 1 if lies in ("i8", "floats") else 32 // bits
        step = [each, 1] if name in ZEROS or lies == "awq" else [1, 4] if name == "GPTQ_INT8" else [1, 1]
        checks.append((name, content, rows, columns, "f32" if not bits else None, step))
    half = rng.randbytes(2 * 11 * 3)
    tensors["half"] = ("BF16", [11, 3], half)
    wide, broad = rng.randbytes(4 * 1000 * 1100), rng.randbytes(4 * 9 * 131_200)
    tensors["wide"], tensors["broad"] = ("I32", [1000, 1100], wide), ("I32", [9, 131_200], broad)
    path = safetensors(MODELS / f"changes{device.replace(':', '')}.safetensors", tensors)
    with Client(daemon) as c:
        for name, content, rows, columns, dtype, step in checks:
            check_change(c, path, name, content, rows, columns, dtype, step, device)
        check_change(c, path, "TRANSPOSE", half, 11, 3, "bf16", [1, 1], device, "half")
        dtype, shape, got, _ = load_slice(c, path, "wide", 0, 0, 1100, change_value("GPTQ_INT4"), (1100, 1000), device)
        words = memoryview(bytes(b ^ 0x88 for b in wide)).cast("I")
        assert shape == [1100, 1000] and got == b"".join(bytes(words[n::1100]) for n in range(1100))
        got = load_slice(c, path, "broad", 0, 10, 131_200, change_value("GPTQ_INT4"), (131_200, 9), device)[2]
        words = memoryview(bytes(b ^ 0x88 for b in broad)).cast("I")
        assert got == b"".join(bytes(words[n::131_200]) for n in range(10, 131_200))
        dtype, shape, got, _ = load_slice(c, path, "wide", 0, 800, 8000, change_value("AWQ_INT4"), (8800, 125), device)
        assert shape == [7200, 125]
        for n in (0, 1, 7, 5000, 7199):
            column = (800 + n) // 8
            row = numbers_of(b"".join(wide[4 * (k * 1100 + column):][:4] for k in range(1000)), 1000, 1, "awq", 4)
            assert got[500 * n:500 * n + 500] == packed_row([r[(800 + n) % 8] for r in row], 4), n


@test("weights and zero points of GPTQ, AWQ and compressed-tensors become the operator's, whole and in slices")
def changes(daemon):
    changes_on(daemon, "")


@test("the same on a device whose memory the CPU cannot address")
def changes_elsewhere():
    libs = BUILD / "devices" / "ascend" / "sim" / ".libs"
    if not (libs / "libascendcl.so").exists():
        raise Skip("the simulator was not built")
    with Daemon(f"--ascend-libs={libs}", "--device=ascend:0", f"--models-dir={MODELS}", env={"NGD_ACLSIM_DEVICES": "1"}) as d:
        changes_on(d, "ascend:0")


@test("a tensor that does not fit its change is refused before anything is allocated; changed tensors are not shared with others")
def changes_refused(daemon):
    content = os.urandom(4 * 6 * 8)
    path = safetensors(MODELS / "wrong.safetensors", {
        "w": ("I32", [6, 8], content), "f": ("F32", [6, 8], content), "cube": ("I32", [6, 4, 2], content), "line": ("I32", [48], content),
        "none": ("I32", [0, 5], b""), "tall": ("I8", [2**20, 1], bytes(2**20)), "long": ("F16", [2**19, 1], bytes(2**20)),
        "z": ("I8", [1, 2**20], bytes(2**20)), "vast": ("I32", [2**62, 0], b"")})
    before = daemon.used_bytes()
    with Client(daemon) as c:
        def says(reason, name, change, what, dim=0, begin=0, end=1, shape=()):
            got = refused(reason, "INVALID_ARGUMENT", load_slice, c, path, name, dim, begin, end, change_value(change), shape)
            assert what in got.text and name in got.text, got.text

        for change in [*WEIGHTS, *ZEROS]:
            says("FILE_CORRUPT", "f", change, "f32")
            if change not in ("I8_ZEROS", "OFFSET_INT4"):
                says("FILE_CORRUPT", "cube", change, "3 dimensions")
            if change != "I8_ZEROS":
                says("FILE_CORRUPT", "line", change, "1 dimensions")
        says("FILE_CORRUPT", "w", "TRANSPOSE", "must be f32, f16 or bf16")
        says("FILE_CORRUPT", "w", "AWQ_INT4", "multiple of 8")
        says("FILE_CORRUPT", "w", "GPTQ_INT4", "w is [8,6] once it is changed; it must be [8,7]", shape=(8, 7))
        says("INVALID_ARGUMENT", "w", "GPTQ_INT4", "no slice", end=9)
        says("INVALID_ARGUMENT", "w", "GPTQ_INT4", "no slice", dim=1, end=7)
        says("INVALID_ARGUMENT", "none", "GPTQ_INT4", "no slice", dim=1)
        says("FILE_UNSUPPORTED", "long", "TRANSPOSE", "262144")
        says("FILE_UNSUPPORTED", "z", "I8_ZEROS", "262144")
        says("FILE_CORRUPT", "vast", "GPTQ_INT4", "too large")
        for value in (99, -1):
            got = refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", load_slice, c, path, "w", 0, 0, 1, value)
            assert f"TensorSlice.change is {value}" in got.text, got.text
        assert load_slice(c, path, "none", 0, 0, 5, change_value("GPTQ_INT4"))[1] == [5, 0]
        assert not load_slice(c, path, "w", 0, 0, 8, change_value("GPTQ_INT4"))[3]
        assert not load_slice(c, path, "w", 0, 0, 8, change_value("GPTQ_INT8"))[3]
        assert not load_slice(c, path, "w", 0, 0, 48, change_value("OFFSET_INT4_ZEROS"))[3]
        assert load_slice(c, path, "w", 0, 0, 8, change_value("GPTQ_INT4"))[3]
        stacked = load_slice(c, path, "cube", 0, 1, 3, change_value("OFFSET_INT4"), (6, 4, 2))
        assert stacked[1] == [2, 4, 2] and stacked[2] == bytes(b ^ 0x88 for b in content[32:96]), stacked
    until("everything is freed", lambda: daemon.used_bytes() <= before)


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
    "unknown dtype": ("FILE_UNSUPPORTED", {"t": entry(0, 8, dtype="F8_E5M2", shape=[8])}, 8),
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
