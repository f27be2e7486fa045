#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files that a client names: files that change, links that lead out, and names that are no files; with and without openat2."""
import json
import mmap
import os
import socket
import struct
import subprocess
import threading

from harness import *

MODELS = SCRATCH / "models"
OUTSIDE = SCRATCH / "outside"
DUMPS = SCRATCH / "dumps"
MIB = 1 << 20
WALKING = {"NPUGRAPHD_FAULT": "no-openat2:0:1000000"}
TEXT = 'npugraph 1\ngraph "g" { input %x : f32[4] %y = aten.neg(%x) return %y }'
for directory in (MODELS, OUTSIDE, DUMPS):
    directory.mkdir()


def image(content, name="w"):
    header = json.dumps({name: {"dtype": "U8", "shape": [len(content)], "data_offsets": [0, len(content)]}}).encode()
    return struct.pack("<Q", len(header)) + header + content


def overwrite(path, data):
    """Writes in place and keeps the file's times, as rsync --inplace --times and cp --preserve do."""
    before = os.stat(path)
    with open(path, "r+b") as f:
        f.write(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = os.stat(path)
    assert (after.st_mtime_ns, after.st_ino, after.st_size) == (before.st_mtime_ns, before.st_ino, before.st_size)


@test("a file that is overwritten in place, with its size and its old time, is loaded anew")
def restored_time(daemon):
    path = MODELS / "restored"
    path.write_bytes(image(b"old weights"))
    with Client(daemon) as c:
        old = c.load(path).tensors[0].buffer
        assert c.load(path).shared
        overwrite(path, image(b"new weights"))
        done = c.load(path)
        assert c.read(done.tensors[0].buffer) == b"new weights" and not done.shared and c.read(old) == b"old weights"


@test("changes that follow one another within one step of the file system's clock are seen, each of them")
def same_step(daemon):
    path = MODELS / "steps"
    path.write_bytes(image(b"%08d" % 0))
    with Client(daemon) as c:
        for i in range(60):
            overwrite(path, image(b"%08d" % i))
            done = c.load(path)
            assert c.read(done.tensors[0].buffer) == b"%08d" % i and not done.shared, i
        assert c.load(path).shared


@test("a file that somebody has open for writing, or mapped so, is refused until it is closed")
def open_for_writing(daemon):
    path = MODELS / "written"
    path.write_bytes(image(b"old weights"))
    with Client(daemon) as c:
        assert c.load(path).tensors
        with open(path, "r+b") as writer:
            refused("FILE_CORRUPT", "INVALID_ARGUMENT", c.load, path)
            mapping = mmap.mmap(writer.fileno(), 0)
        refused("FILE_CORRUPT", "INVALID_ARGUMENT", c.load, path)
        mapping[-3:] = b"new"  # the first write through a mapping sets the times, later writes do not
        mapping.close()
        with open(path, "rb"):
            assert c.read(c.load(path).tensors[0].buffer).endswith(b"new")


@test("a file that shrinks while it is loaded is refused; the daemon reads files and maps none")
def shrinks(daemon):
    path = MODELS / "shrinks"
    size = 128 * MIB
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    with Client(daemon) as c:
        for _ in range(3):
            with open(path, "wb") as f:
                f.write(struct.pack("<Q", len(header)) + header)
                f.truncate(8 + len(header) + size)
            time.sleep(0.05)  # its time has settled, so reading starts at once
            stream = c.call("Memory/LoadSafetensors", pb.LoadSafetensorsRequest(path=str(path)))
            timer = threading.Timer(0.01, os.truncate, (path, 4096))
            timer.start()
            try:
                last = None
                for last in stream:
                    pass
                c.call("Memory/Free", pb.FreeRequest(buffers=[t.buffer for t in last.done.tensors]))  # the load was faster than the write
            except grpc.RpcError as error:
                assert Refusal(error).reason in ("FILE_TRUNCATED", "FILE_CORRUPT"), error
            timer.join()
        maps = pathlib.Path(f"/proc/{daemon.process.pid}/maps").read_text()
        assert str(MODELS) not in maps
        assert c.load(MODELS / "restored")


def lead_out(client, walking):
    good = MODELS / "real" / "in"
    if not good.exists():
        good.parent.mkdir()
        good.write_bytes(image(b"in"))
        (OUTSIDE / "secret").write_bytes(image(b"secret"))
        (MODELS / "out").symlink_to(OUTSIDE)
        (MODELS / "real" / "out").symlink_to("../../outside")
        (MODELS / "real" / "up").symlink_to("..")
        (MODELS / "alias").symlink_to("real")
        (MODELS / "real" / "last").symlink_to("in")
        os.mkfifo(MODELS / "real" / "fifo")
    for path in (good, "real/in", "real//in", "./real/./in", f"{MODELS}//real/in"):
        assert client.load(path).tensors[0].bytes == 2, path
    # Links that stay below the directory; only the kernel (openat2) can follow them safely.
    for path in ("alias/in", "real/last", "real/up/real/in"):
        if walking:
            refused("PATH_NOT_ALLOWED", "PERMISSION_DENIED", client.load, path)
        else:
            assert client.load(path).tensors[0].bytes == 2, path
    for path in ("out/secret", "real/out/secret", "real/up/out/secret", "../outside/secret", "real/../../outside/secret",
                 f"{MODELS}/out/secret", OUTSIDE / "secret", f"{MODELS}/../outside/secret", "out/../models/real/in"):
        refused("PATH_NOT_ALLOWED", "PERMISSION_DENIED", client.load, path)
    refused("FILE_NOT_FOUND", "NOT_FOUND", client.load, "real/nothing")
    refused("FILE_NOT_FOUND", "NOT_FOUND", client.load, "real/in/")
    refused("FILE_NOT_FOUND", "NOT_FOUND", client.load, "real/in/more")
    refused("FILE_UNSUPPORTED", "INVALID_ARGUMENT", client.load, "real/fifo")
    refused("FILE_UNSUPPORTED", "INVALID_ARGUMENT", client.load, "real/")
    refused("FILE_UNSUPPORTED", "INVALID_ARGUMENT", client.load, "real")
    for path in ("a" * 300, "real/" + "b" * 300):
        assert "too long" in refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", client.load, path).text
    long = ("FILE_NOT_FOUND", "NOT_FOUND") if walking else ("INVALID_ARGUMENT", "INVALID_ARGUMENT")
    refused(*long, client.load, "/".join(["real", *["x"] * 3000]))


@test("a path leads nowhere else: links in the middle, at the end, up and out, FIFOs, directories, long names")
def kernel_walks(daemon):
    with Client(daemon) as c:
        lead_out(c, walking=False)


@test("the same where the kernel has no openat2: then no link is followed at all")
def without_openat2():
    with Daemon(f"--models-dir={MODELS}", env=WALKING) as daemon, Client(daemon) as c:
        lead_out(c, walking=True)


@test("files that others rename meanwhile do not make a link lead out of models-dir")
def renames_meanwhile():
    good = MODELS / "blobs" / "weights"
    good.parent.mkdir()
    good.write_bytes(image(b"in"))
    (MODELS / "snapshots").mkdir()
    (MODELS / "snapshots" / "w").symlink_to("../blobs/weights")
    with Daemon(f"--models-dir={MODELS}", env={"NPUGRAPHD_FAULT": "openat2-again:0:500"}) as d, Client(d) as c:
        assert c.load("snapshots/w").tensors[0].bytes == 2
    with Daemon(f"--models-dir={MODELS}", env={"NPUGRAPHD_FAULT": "openat2-again:0:1000000"}) as d, Client(d) as c:
        refused("UNAVAILABLE", "UNAVAILABLE", c.load, "snapshots/w")


@test("a socket is not a regular file, also to the kernel that cannot open it")
def sockets(daemon):
    with socket.socket(socket.AF_UNIX) as s, Client(daemon) as c:
        s.bind(str(MODELS / "socket"))
        assert "not a regular file" in refused("FILE_UNSUPPORTED", "INVALID_ARGUMENT", c.load, "socket").text
        assert "not a regular file" in refused("FILE_UNSUPPORTED", "INVALID_ARGUMENT", c.load, MODELS / "socket").text


@test("a file that cannot be read is told so, and not that its path is not allowed; the other directories are looked at too")
def unreadable():
    # Runs root without the capabilities that bypass file modes.
    through = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--"] if os.geteuid() == 0 else []
    first, second = MODELS / "first", MODELS / "second"
    for directory in (first, second):
        directory.mkdir()
        (directory / "both").write_bytes(image(b"in"))
    (first / "one").write_bytes(image(b"in"))
    for name in ("one", "both"):
        (first / name).chmod(0)
    if b"denied" not in subprocess.run([*through, "cat", first / "one"], capture_output=True).stderr:
        raise Skip("nothing is unreadable here")
    with Daemon(f"--models-dir={first}", f"--models-dir={second}", through=through) as d, Client(d) as c:
        assert "cannot be opened: Permission denied" in refused("PERMISSION_DENIED", "PERMISSION_DENIED", c.load, "one").text
        assert c.load("both").tensors[0].bytes == 2


@test("a device is not a file of weights")
def devices(daemon):
    node = MODELS / "null"
    try:
        os.mknod(node, 0o600 | 0o020000, os.makedev(1, 3))
    except PermissionError:
        raise Skip("no device nodes can be made here") from None
    with Client(daemon) as c:
        refused("FILE_UNSUPPORTED", "INVALID_ARGUMENT", c.load, node)


@test("headers that ask for much: of 100 MB, of a million tensors, of values without end; the daemon stays small")
def large_headers(daemon):
    def resident():
        status = pathlib.Path(f"/proc/{daemon.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) // 1024

    def write(name, text):
        (MODELS / name).write_bytes(struct.pack("<Q", len(text)) + text)
        return MODELS / name
    before = resident()
    numbers = b'{"t":{"dtype":"U8","shape":[' + b"1," * (45 * MIB) + b'1],"data_offsets":[0,1]}}'
    entry = '"t%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
    tensors = ("{" + ",".join(entry % i for i in range(1_000_000)) + "}").encode()
    with Client(daemon) as c:
        for path in (write("numbers", numbers), write("tensors", tensors)):
            assert "values" in refused("FILE_UNSUPPORTED", "INVALID_ARGUMENT", c.load, path).text
    assert SANITIZER or resident() - before < 250, resident()  # the file's text, and what was there


@test("names with control characters are refused; many names and slices are looked up quickly")
def names(daemon):
    path = MODELS / "names"
    path.write_bytes(image(b"x", name="a\x1b[2Jb"))
    with Client(daemon) as c:
        assert "0x1b" in refused("FILE_CORRUPT", "INVALID_ARGUMENT", c.load, path).text
        path.write_bytes(image(b"x", name="a"))
        assert "2 names" in refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", c.load, path, ["a", "a"]).text
        n = 40_000  # comparing each with each other would take more than a minute
        header = json.dumps({f"t{i}": {"dtype": "U8", "shape": [1], "data_offsets": [i, i + 1]} for i in range(n)}).encode()
        path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(n))
        request = pb.LoadSafetensorsRequest(path=str(path), tensors=[f"t{i}" for i in range(n)])
        for i in reversed(range(n)):
            request.slices.add(name=f"t{i}", dim=0, begin=1, end=2)
        assert "no slice" in refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", c.call, "Memory/LoadSafetensors", request).text


@test("a dump goes below dump-dir: not through links, not over files, FIFOs or devices, and it does not wait for them")
def dumps(daemon):
    (DUMPS / "link").symlink_to(OUTSIDE)
    os.mkfifo(DUMPS / "fifo")
    (DUMPS / "file").write_text("mine")
    with Client(daemon) as c:
        for directory in ("link", "link/more", "fifo", "fifo/more", "file", "file/more", "../outside", str(OUTSIDE), f"{DUMPS}/../outside"):
            for option in ("data_dump_dir", "debug_dump_dir"):
                on = "dump_tensor_data" if option == "data_dump_dir" else "debug_dump"
                try:
                    c.register(TEXT, options={on: "true", option: directory})
                except grpc.RpcError as error:
                    assert error.code() in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.INVALID_ARGUMENT), error
                else:
                    raise AssertionError(f"{option} {directory} was taken")
    assert not [f for f in OUTSIDE.iterdir() if f.name != "secret"] and (DUMPS / "file").read_text() == "mine"


if __name__ == "__main__":
    main(f"--models-dir={MODELS}", f"--dump-dir={DUMPS}")
