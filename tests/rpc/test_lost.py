#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A stream's message for which there is no memory: its call never ends as if nothing were missing."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import *  # noqa: E402,F403

MODEL = SOURCE / "examples" / "model"
TOKENS = 24
FIRST = 12  # more messages than a load sends


def open_daemon(lost=None):
    """lost: the number of the message that finds no memory; 0 is the first."""
    env = {"NPUGRAPHD_FAULT": f"send-lost:{lost}:1"} if lost is not None else None
    return Daemon(f"--models-dir={MODEL}", env=env)


def load(daemon):
    subprocess.run([CTL, "--address", daemon.address, "--quiet", "load", str(MODEL), "--name", "m", "--kv-bytes", "8M"], check=True,
                   timeout=PATIENCE, stdout=subprocess.DEVNULL)


def generate(client, **kwargs):
    """Returns the tokens, or the refusal that ended the call."""
    sequence = client.call("Sequences/Open", pb.OpenRequest(model="m", prompt=[5, 6, 7])).sequence
    tokens = []
    try:
        for message in client.call("Sequences/Generate", pb.GenerateRequest(sequence=sequence, max_tokens=TOKENS, ignore_stop=True, **kwargs)):
            tokens += message.tokens
    except grpc.RpcError as error:
        return tokens, Refusal(error)
    return tokens, None


@test("whichever message of a generation finds no memory, its client gets all tokens or an error")
def generations():
    with open_daemon() as daemon:
        load(daemon)
        with Client(daemon) as c:
            whole, error = generate(c)
            assert error is None and len(whole) == TOKENS, (whole, error)
    cut = 0
    for lost in range(FIRST, FIRST + 10):
        error = None
        with open_daemon(lost) as daemon:
            load(daemon)
            with Client(daemon) as c:
                for turn in range(2 * FIRST):  # each sends two messages or more
                    if error:
                        break
                    tokens, error = generate(c, logprobs=pb.LogprobsRequest(top=2) if turn % 2 else None)
                    if error is None:
                        assert tokens == whole, f"message {lost}, turn {turn}: ended with OK and {len(tokens)} tokens"
                    else:
                        assert error.reason == "NO_MEMORY", error.text
                        assert tokens == whole[:len(tokens)], f"message {lost}: a hole"
                        cut += len(tokens) < TOKENS
        assert error, f"message {lost} was not lost: the fault was not met"
    assert cut, "no generation was cut"


@test("a session whose first message is lost is an error, not a stream that says nothing")
def session():
    with open_daemon(0) as daemon:
        refused("NO_MEMORY", "RESOURCE_EXHAUSTED", Client, daemon)
        with Client(daemon) as c:
            assert c.ping(3).pong.value == 3
        until("no session is left", lambda: daemon.stats()["sessions"]["open"] == 0)


@test("so is a lost answer to a ping")
def ping():
    with open_daemon(1) as daemon:
        c = Client(daemon)
        refused("NO_MEMORY", "RESOURCE_EXHAUSTED", c.ping)
        c.channel.close()


@test("a health watch that could not be told of a change ends")
def watch():
    with open_daemon(0) as daemon, daemon.channel() as channel:
        call = channel.unary_stream("/grpc.health.v1.Health/Watch", request_serializer=encode,
                                    response_deserializer=health.HealthCheckResponse.FromString)
        refused("NO_MEMORY", "RESOURCE_EXHAUSTED", call, health.HealthCheckRequest(), timeout=PATIENCE)
        assert next(call(health.HealthCheckRequest(), timeout=PATIENCE)).status == health.HealthCheckResponse.SERVING


@test("loading weights with a lost message fails, and can be tried again")
def loading():
    for lost in (1, 2):
        with open_daemon(lost) as daemon, Client(daemon) as c:
            weights = next(MODEL.glob("*.safetensors"))
            try:
                c.load(weights)
            except grpc.RpcError as error:
                assert Refusal(error).reason == "NO_MEMORY", error
            assert c.load(weights).tensors


if __name__ == "__main__":
    main()
