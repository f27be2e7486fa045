#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A call of libnpugraph that connects again, to a daemon that does not answer, holds up no other call of its client."""
import importlib.util
import select
import threading

from replacing import *

CHILD = """
import json, sys, threading
import npugraph

address, model, prompt, what = json.loads(sys.argv[1])
c = npugraph.connect(address, name="connecting", timeout=60, local_transport=False)
sequence = c.open(model, prompt)
found = []

def work():
    try:
        if what == "step":
            sequence.step()
        else:
            c.open(model, prompt)
    except npugraph.Error as error:
        found.append(error.reason)

print("ready", flush=True)
sys.stdin.readline()
connects = threading.Thread(target=work)
connects.start()
sys.stdin.readline()
session = c.session
print(json.dumps({"session": session, "waits": connects.is_alive()}), flush=True)
sys.stdin.readline()
connects.join()
print(json.dumps(found), flush=True)
"""


class Relay(threading.Thread):
    """A socket between clients and a daemon. At stall it ends, or keeps, what is connected, closes the next `closes` connections, and lets
    later ones wait without an answer."""

    def __init__(self, name, target):
        super().__init__(daemon=True)
        self.path, self.target = SCRATCH / name, str(target)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.path))
        self.listener.listen()
        self.lock, self.peers, self.held, self.closes = threading.Lock(), {}, [], None
        self.start()

    def stall(self, closes, cut):
        with self.lock:
            self.closes = closes
            for one in self.peers if cut else ():
                one.shutdown(socket.SHUT_RDWR)  # the thread, which may wait for it, closes it

    def forget(self, one):
        if one in self.peers:
            other = self.peers.pop(one)
            self.peers.pop(other)
            for s in (one, other):
                s.close()

    def take(self):
        client, _ = self.listener.accept()
        if self.closes is None:
            server = socket.socket(socket.AF_UNIX)
            server.connect(self.target)
            self.peers[client], self.peers[server] = server, client
        elif self.closes > 0:
            self.closes -= 1
            client.close()
        else:
            self.held.append(client)

    def run(self):
        while self.listener.fileno() >= 0:
            ready, _, _ = select.select([self.listener, *self.peers], [], [], 0.05)
            with self.lock:
                for one in ready:
                    if one is self.listener:
                        self.take()
                    elif one in self.peers:
                        try:
                            data = one.recv(65536)
                            self.peers[one].sendall(data)
                        except OSError:
                            data = b""
                        if not data:
                            self.forget(one)

    def end(self):
        """Ends what waits, and refuses others."""
        with self.lock:
            self.path.unlink()
            for one in self.held:
                one.close()


class Connecting:
    """A process with libnpugraph, one thread of which connects again."""

    def __init__(self, relay, what):
        if importlib.util.find_spec("numpy") is None:
            raise Skip("Python's package needs numpy")
        if SANITIZER:
            raise Skip("a program without the sanitizer, as Python is, cannot load a libnpugraph with it")
        self.relay = relay
        arguments = json.dumps([f"unix:{relay.path}", "m", PROMPT, what])
        self.process = subprocess.Popen([*END_WITH_US, sys.executable, "-c", CHILD, arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, "PYTHONPATH": str(SOURCE / "python" / "src"), "NPUGRAPH_LIBRARY_PATH": str(BUILD / ".libs")})
        assert self.hear() == "ready\n"

    def hear(self):
        assert select.select([self.process.stdout], [], [], PATIENCE)[0], "nothing comes: the call waits for the one that connects"
        return self.process.stdout.readline()

    def say(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def check(self):
        self.say()
        until("it connects", lambda: self.relay.held)
        self.say()
        told = json.loads(self.hear())
        assert told["session"] != 0 and told["waits"], told
        self.relay.end()
        self.say()
        json.loads(self.hear())
        self.process.kill()  # what it has in the daemon is not asked about
        self.process.wait()


def try_to_connect(name, what, closes):
    with Line() as line:
        relay = Relay(name, line.now.socket)
        connecting = Connecting(relay, what)
        relay.stall(closes, cut=True)
        connecting.check()


@test("while a step follows its session to a daemon that does not answer, other calls go on")
def resumes():
    try_to_connect("resumes", "step", 0)


@test("while a sequence is opened in a new session of a daemon that does not answer, other calls go on")
def opens_anew():
    try_to_connect("anew", "open", 1)


@test("while a client goes over to a daemon that has replaced its own and does not answer, other calls go on")
def goes_over():
    with Line("--drain-grace=1s") as line:
        relay = Relay("over", line.now.socket)
        connecting = Connecting(relay, "open")
        relay.stall(0, cut=False)
        line.replace()
        connecting.check()


main()
