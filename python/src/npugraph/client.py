# SPDX-License-Identifier: Apache-2.0
"""A connection to npugraphd with its session: device memory, graphs, models."""
from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from . import _abi
from ._library import call, finalize, hf_library, library, strings, text
from .errors import Error
from .graphs import Graph, ReplayStream
from .memory import view_of, writable_view_of
from .sequences import Sampling, Sequence, open_sequence, tokens_of

Progress = Callable[[int, int], None]
POOLINGS = ("", "last", "mean")


@dataclasses.dataclass(frozen=True)
class Device:
    """A device of the daemon."""

    name: str
    backend: str
    memory_bytes: int
    used_bytes: int


@dataclasses.dataclass(frozen=True)
class Model:
    """A loaded model."""

    name: str
    description: str
    source: str  # its directory or GGUF file, as the daemon sees it; "": not known
    owner: str  # the identity that registered it
    parameters: int  # of its weights; 0: not known
    max_context: int  # tokens for each sequence
    vocab: int
    sequences: int  # that are open
    stop_tokens: tuple[int, ...]  # that end a generation
    embedding_size: int = 0  # numbers of an embedding; 0: it returns none
    pooling: str = ""  # of embeddings: last, mean
    unit_embeddings: bool = False  # embeddings have the length 1
    no_generation: bool = False  # it returns embeddings alone


class Buffer:
    """Device memory. It is freed with `free`, when nothing refers to it, or with the session."""

    def __init__(self, client: Client, number: int, nbytes: int, dtype: str = "", shape: tuple[int, ...] = ()) -> None:
        self.client = client
        self.number = number
        self.nbytes = nbytes
        self.dtype = dtype  # in words of graph text; "" if nobody said
        self.shape = shape
        self._free = finalize(self, client._free, number)

    def write(self, data: Any, offset: int = 0) -> None:
        """Uploads an array, a tensor or bytes. Returns when the daemon has them."""
        address, nbytes, _keep = view_of(data)
        call(library().npugraph_buffer_write, self.client._handle, self.number, offset, address, nbytes)

    def read_into(self, target: Any, offset: int = 0) -> Any:
        """Downloads as many bytes as the target has room for, into its memory, and returns it."""
        address, nbytes, _keep = writable_view_of(target)
        call(library().npugraph_buffer_read, self.client._handle, self.number, offset, address, nbytes)
        return target

    def read(self, offset: int = 0, nbytes: int | None = None) -> bytes:
        """Downloads bytes, to the end of the buffer unless `nbytes` is given."""
        target = bytearray(self.nbytes - offset if nbytes is None else nbytes)
        return bytes(self.read_into(target, offset)) if target else b""

    def free(self) -> None:
        """Drops the session's reference. Graphs that are bound to the buffer keep the memory."""
        self._free()


class SharedBuffer:
    """Memory that this process shares with a daemon on the same machine.

    What lies in it is not sent: the daemon reads inputs of replays and what is uploaded there, and writes results
    (`into`) and what is downloaded there. `array` is its bytes; arrays that are made of it keep the memory.
    """

    def __init__(self, client: Client, nbytes: int) -> None:
        shared = _abi.npugraph_shared()
        call(library().npugraph_shared_alloc, client._handle, nbytes, ctypes.byref(shared))
        memory = (ctypes.c_uint8 * nbytes).from_address(shared.data)
        finalize(memory, _free_shared, client, shared)
        self.client = client
        self.number = int(shared.buffer)
        self.nbytes = nbytes
        self.array: np.ndarray[Any, np.dtype[np.uint8]] = np.frombuffer(memoryview(memory), np.uint8)

    def free(self) -> None:
        """Drops the session's reference. The memory stays as long as arrays of it, and serves like any other."""
        self.client._free(self.number)


def _free_shared(client: Client, shared: Any) -> None:
    error = _abi.npugraph_error()  # it may be freed already
    handle = None if client.closed else client._handle
    library().npugraph_shared_free(handle, ctypes.byref(shared), ctypes.byref(error))


class Client:
    """A session of the daemon. Several threads may use it at once. `connect` makes one."""

    def __init__(self, params: _abi.npugraph_connect_params) -> None:
        self._c = ctypes.c_void_p()
        call(library().npugraph_connect, ctypes.byref(params), ctypes.byref(self._c))
        self._close = finalize(self, library().npugraph_disconnect, self._c)
        self._children: weakref.WeakSet[Any] = weakref.WeakSet()  # streams and sequences, which use its channel

    @property
    def _handle(self) -> ctypes.c_void_p:
        if self.closed:
            raise Error("SESSION_GONE", "the client is closed")
        return self._c

    @property
    def session(self) -> int:
        """The session's id, as `npugraphctl sessions` shows it."""
        return int(library().npugraph_session_id(self._handle))

    @property
    def server_version(self) -> str:
        return str(library().npugraph_server_version(self._handle).decode())

    @property
    def has_ring(self) -> bool:
        """Replays of streams and steps go through memory that is shared with a daemon on this machine."""
        return bool(library().npugraph_has_ring(self._handle))

    @property
    def closed(self) -> bool:
        return not self._close.alive

    def close(self) -> None:
        """Ends the session; the daemon frees what it owns. Later calls of its objects fail with SESSION_GONE.

        No other thread may be in a call of the client or of its objects.
        """
        for child in list(self._children):
            child.close()
        self._close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- devices and memory ----

    def device(self, name: str | None = None) -> Device:
        """Returns a device by name or number; by default the one that the daemon uses by default."""
        found = _abi.npugraph_device()
        call(library().npugraph_device_find, self._handle, text(name), ctypes.byref(found))
        return Device(found.name.decode(), found.backend.decode(), found.memory_bytes, found.used_bytes)

    def allocate(self, nbytes: int, *, label: str = "", device: str | None = None) -> Buffer:
        """Allocates zeroed device memory."""
        number = ctypes.c_uint64()
        call(library().npugraph_buffer_alloc, self._handle, text(device), nbytes, text(label), ctypes.byref(number))
        return Buffer(self, number.value, nbytes)

    def upload(self, data: Any, *, label: str = "", device: str | None = None) -> Buffer:
        """Allocates device memory and copies an array, a tensor or bytes into it."""
        address, nbytes, _keep = view_of(data)
        buffer = self.allocate(max(nbytes, 1), label=label, device=device)
        call(library().npugraph_buffer_write, self._handle, buffer.number, 0, address, nbytes)
        return buffer

    def shared(self, nbytes: int) -> SharedBuffer:
        """Makes zeroed memory that this process and the daemon share. ConnectionError: the daemon does not offer it."""
        return SharedBuffer(self, nbytes)

    def _free(self, number: int) -> None:
        if not self.closed:
            error = _abi.npugraph_error()  # ending sessions free it anyway
            library().npugraph_buffer_free(self._handle, ctypes.byref(ctypes.c_uint64(number)), 1, ctypes.byref(error))

    def load_safetensors(self, path: str, names: Iterable[str] = (), *, device: str | None = None,
                         progress: Progress | None = None) -> dict[str, Buffer]:
        """Lets the daemon read tensors of a file below its models-dir. Equal loads of all clients share memory.

        `progress(done, total)` is called with bytes.
        """
        wanted = list(names)
        load = _abi.npugraph_load(path=text(path), device=text(device), names=strings(wanted), n_names=len(wanted))
        found = ctypes.POINTER(_abi.npugraph_tensors)()
        call(library().npugraph_load_safetensors, self._handle, ctypes.byref(load), _progress(progress), None,
             ctypes.byref(found))
        try:
            tensors = [found.contents.items[i] for i in range(found.contents.n)]
            return {t.name.decode(): Buffer(self, t.buffer, t.bytes, t.dtype.decode(), tuple(t.shape[: t.rank]))
                    for t in tensors}
        finally:
            library().npugraph_tensors_free(found)

    # ---- graphs ----

    def graph(self, source: str, bindings: Mapping[str, Buffer] | None = None,
              options: Mapping[str, object] | None = None, *, device: str | None = None) -> Graph:
        """Registers a graph, given as text, with buffers for its params and states, by label.

        Options are those of docs/options.md; True and False become true and false.
        """
        return Graph(self, source, dict(bindings or {}), dict(options or {}), device)

    def replay_stream(self) -> ReplayStream:
        """Opens a stream for replays, which has a fraction of the latency of single calls. One thread at a time."""
        return ReplayStream(self)

    # ---- models ----

    def load_model(self, directory: str, *, name: str | None = None, max_context: int = 0, max_batch: int = 0,
                   kv_dtype: str | None = None, matmul_precision: str | None = None, keep: bool = True,
                   embedding: bool = False, progress: Progress | None = None) -> None:
        """Loads a Hugging Face checkpoint or a GGUF file below the daemon's models-dir, with its prefill and decode graphs.

        `keep`: the model outlives this session. 0 is the default of a size. `kv_dtype`: "int8", "fp8", "f32", "f16" or
        "bf16"; None is the dtype of the weights. `matmul_precision`: "highest" (the default), "high" or "medium".
        `embedding`: for `embed` alone, without its head; so are checkpoints that have none, or have a modules.json.
        """
        params = _abi.npugraph_model_params()
        hf_library().npugraph_model_params_init(ctypes.byref(params))
        params.name, params.keep, params.kv_dtype = text(name), keep, text(kv_dtype)
        params.max_context = max_context or params.max_context
        params.max_batch = max_batch or params.max_batch
        params.matmul_precision, params.embedding = text(matmul_precision), embedding
        call(hf_library().npugraph_model_load, self._handle, text(directory), ctypes.byref(params), _progress(progress),
             None)

    @contextlib.contextmanager
    def model_files(self, model: str) -> Iterator[str]:
        """Copies a model's config, tokenizer and chat template, which the daemon reads, while the context lasts.

        Gives a path for Tokenizer and ChatTemplate: a directory, or a GGUF file.
        """
        copy = ctypes.c_void_p()
        call(hf_library().npugraph_model_copy_open, self._handle, text(model), ctypes.byref(copy))
        try:
            yield os.fsdecode(hf_library().npugraph_checkpoint_copy_path(copy))
        finally:
            hf_library().npugraph_checkpoint_copy_close(copy)

    def unload_model(self, name: str, *, force: bool = False) -> None:
        """Unloads a model. `force` closes its sequences; without it a model in use is refused with BUSY."""
        call(library().npugraph_model_unload, self._handle, text(name), force)

    def models(self, name: str = "") -> list[Model]:
        """Returns the loaded models that this client may use, or the one that a name means to it."""
        found = ctypes.POINTER(_abi.npugraph_models)()
        call(library().npugraph_models_find, self._handle, text(name), ctypes.byref(found))
        try:
            models = [found.contents.items[i] for i in range(found.contents.n)]
            return [Model(m.name.decode(), m.description.decode(), m.source.decode(), m.owner.decode(), m.parameters,
                          m.max_context, m.vocab, m.sequences, tuple(m.stop_tokens[:m.n_stop_tokens]), m.embedding_size,
                          POOLINGS[m.pooling], m.unit_embeddings, m.no_generation) for m in models]
        finally:
            library().npugraph_models_free(found)

    def open(self, model: str, prompt: Iterable[int], sampling: Sampling | None = None, *,
             logprobs: int | None = None, allowed: bytes | None = None, restore: float = 0) -> Sequence:
        """Opens a sequence: computes the prompt and chooses a first token; greedily without `sampling`.

        `logprobs`: how many of the most probable first tokens get log-probabilities; None: not even the chosen one.
        `allowed`: tokens that the first one may be, as in Sequence.step.
        `restore`: if the daemon is killed or restarted, a call of the sequence waits for at most so many seconds for one
        that has the same model, where the sequence is restored, and goes on; 0: it fails.
        """
        return open_sequence(self, model, prompt, sampling, logprobs, allowed, restore)


    def embed(self, model: str, prompts: Iterable[Iterable[int]], *, dimensions: int = 0,
              unit: bool = False) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Returns the embeddings of prompts, a row for each: hidden states of the model, pooled. Up to 2,048 prompts.

        `dimensions`: only the first so many numbers. `unit`: divided by their lengths, also if the model does not do that.
        """
        if not 0 <= dimensions < 1 << 32:
            raise ValueError(f"dimensions is {dimensions}; it is 0 (all) or how many numbers an embedding has")
        tokens = [tokens_of(prompt) for prompt in prompts]
        pointer = ctypes.POINTER(ctypes.c_int32)
        given = (_abi.npugraph_prompt * len(tokens))(
            *[_abi.npugraph_prompt(t.ctypes.data_as(pointer), len(t)) for t in tokens])
        params = _abi.npugraph_embed_params(dimensions=dimensions, unit=unit)
        found = ctypes.POINTER(_abi.npugraph_embeddings)()
        call(library().npugraph_embed, self._handle, text(model), given, len(tokens), ctypes.byref(params),
             ctypes.byref(found))
        try:
            return np.ctypeslib.as_array(found.contents.values, (found.contents.n, found.contents.size)).copy()
        finally:
            library().npugraph_embeddings_free(found)


def _progress(function: Progress | None) -> Any:
    """Returns a C callback. The caller holds it during the call."""
    if function is None:
        return None
    return _abi.npugraph_progress_fn(lambda _user, done, total: function(done, total))


def connect(address: str | None = None, *, name: str = "python", timeout: float = 60.0, grace: float = 0.0,
            tls_ca: str | None = None, tls_cert: str | None = None, tls_key: str | None = None,
            tls_server_name: str | None = None, token_file: str | None = None, local_transport: bool = True) -> Client:
    """Connects to a daemon and opens a session.

    `address` is "unix:PATH" or "HOST:PORT"; by default $NPUGRAPH_ADDRESS, or the socket of the system's daemon.
    `timeout` bounds each call, in seconds (0: not at all). `tls_...` are PEM files for TCP: an authority alone checks
    the daemon, a certificate and a key are ours. `token_file` has a bearer token, which names our identity; by default
    $NPUGRAPH_TOKEN_FILE. Calls read it again when it has changed. `local_transport`: replays of streams and steps go
    through shared memory if the daemon is on this machine and offers it.
    """
    params = _abi.npugraph_connect_params()
    library().npugraph_connect_params_init(ctypes.byref(params))
    params.address, params.client_name = text(address), text(name)
    params.timeout_ms, params.grace_ms = int(timeout * 1000), int(grace * 1000)
    params.tls_ca, params.tls_cert, params.tls_key = text(tls_ca), text(tls_cert), text(tls_key)
    params.tls_server_name, params.token_file = text(tls_server_name), text(token_file)
    params.no_local_transport = not local_transport
    return Client(params)
