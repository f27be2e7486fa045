# SPDX-License-Identifier: Apache-2.0
"""Clients and requests of the Open Inference Protocol for tests, and a graph that they ask."""
import hashlib
import importlib
import struct

from harness import *

oip = importlib.import_module("proto.inference_pb2")
SERVICE = "inference.GRPCInferenceService"
METHODS_OF = {m.name: m for m in oip.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods}
MODEL = SOURCE / "examples" / "model"

MLP = """npugraph 1
graph "mlp" {
  sym B 1..16
  param %w : f32[3,4] = "w"
  input %x : f32[B,4]
  %y = aten.linear(%x, %w) : f32[B,3]
  %z = aten.neg(%y) : f32[B,3]
  return "y" = %y, "z" = %z
}
"""
WEIGHTS = [float(i) for i in range(12)]
TYPES = {"f32": ("FP32", "f"), "f16": ("FP16", "e"), "bf16": ("BF16", None), "i8": ("INT8", "b"), "u8": ("UINT8", "B"), "i32": ("INT32", "i"),
         "i64": ("INT64", "q"), "bool": ("BOOL", "?")}


# ---- helpers -------------------------------------------------------------------------------------------------------------

class Oip:
    """Calls of one channel, with the metadata of a session or a token if asked for."""

    def __init__(self, daemon, address=None, metadata=(), **kwargs):
        self.channel = daemon.channel(address, **kwargs)
        self.metadata = tuple(metadata)

    def method(self, name):
        streams = "stream_stream" if name == "ModelStreamInfer" else "unary_unary"
        reply = getattr(oip, METHODS_OF[name].output_type.name)
        return getattr(self.channel, streams)(f"/{SERVICE}/{name}", request_serializer=encode, response_deserializer=reply.FromString)

    def __call__(self, method, request=None, metadata=(), **fields):
        request = getattr(oip, METHODS_OF[method].input_type.name)(**fields) if request is None else request
        return self.method(method)(request, metadata=self.metadata + tuple(metadata), timeout=PATIENCE)

    def infer(self, request, **kwargs):
        return self("ModelInfer", request, **kwargs)

    def stream(self, *requests, metadata=()):
        return list(self.method("ModelStreamInfer")(iter(requests), metadata=self.metadata + tuple(metadata), timeout=PATIENCE))

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.channel.close()


def pack(values, code="f"):
    return struct.pack(f"<{len(values)}{code}", *values)


def unpack(data, code="f"):
    return list(struct.unpack(f"<{len(data) // struct.calcsize('<' + code)}{code}", data))


def linear(x):
    return [float(sum(x[r * 4 + k] * WEIGHTS[c * 4 + k] for k in range(4))) for r in range(len(x) // 4) for c in range(3)]


def set_parameters(target, parameters):
    for key, value in parameters.items():
        if isinstance(value, bool):
            target[key].bool_param = value
        elif isinstance(value, int):
            target[key].int64_param = value
        elif isinstance(value, float):
            target[key].double_param = value
        else:
            target[key].string_param = value


def request(model="mlp", inputs=(), outputs=(), parameters=None, **fields):
    """inputs: (name, datatype, shape, raw bytes or None, parameters...)"""
    q = oip.ModelInferRequest(model_name=model, **fields)
    for name, datatype, shape, raw, *rest in inputs:
        t = q.inputs.add(name=name, datatype=datatype, shape=shape)
        if rest:
            set_parameters(t.parameters, rest[0])
        if raw is not None:
            q.raw_input_contents.append(raw)
    for output in outputs:
        name, more = output if isinstance(output, tuple) else (output, {})
        set_parameters(q.outputs.add(name=name).parameters, more)
    set_parameters(q.parameters, parameters or {})
    return q


def rows(n, first=0):
    return [float(first + i) for i in range(4 * n)]


def mlp(n=2, first=0, **kwargs):
    return request(inputs=[("x", "FP32", [n, 4], pack(rows(n, first)))], **kwargs)


def register_mlp(c, weights=WEIGHTS):
    w = c.allocate(48)
    c.write(w, pack(weights))
    return c.register(MLP, {"w": w}).graph


def with_mlp(fn):
    """Gives the test a session that has the graph, and a client of the protocol."""
    def wrapped(daemon):
        with Client(daemon) as c, Oip(daemon) as o:
            register_mlp(c)
            fn(daemon, c, o)
    wrapped.__name__ = fn.__name__
    return wrapped


def load(daemon, name="lm"):
    if CTL is None or not (MODEL / "model.safetensors").exists():
        raise Skip("npugraphctl or the bundled model is missing")
    subprocess.run([CTL, "--quiet", "--address", daemon.address, "load", str(MODEL), "--name", name], check=True, capture_output=True)


def unload(daemon, name="lm"):
    with Client(daemon, session=False) as c:
        c.call("Sequences/UnloadModel", pb.UnloadModelRequest(name=name, force=True))


def token(name):
    return name * 4 + "x" * 24


def token_file(name, *names):
    path = SCRATCH / name
    path.touch(0o600)
    path.write_text("".join(f"{n} sha256:{hashlib.sha256(token(n).encode()).hexdigest()} never user\n" for n in names))
    return path


def bearer(name):
    return (("authorization", f"Bearer {token(name)}"),)
