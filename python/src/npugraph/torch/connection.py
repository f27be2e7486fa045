# SPDX-License-Identifier: Apache-2.0
"""The process's connections to daemons, and which tensors have a copy on their devices."""
from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import threading
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from ..client import Buffer, Client, connect
from ..errors import Error
from ..memory import dense
from .options import Options

UNTRACKED = -1


def version_of(tensor: torch.Tensor) -> int:
    """Returns a number that changes when the tensor is written; UNTRACKED for tensors of inference_mode."""
    return UNTRACKED if tensor.is_inference() else int(tensor._version)


def place_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Returns what assigning .data changes without a trace in the version."""
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.is_neg()


@dataclasses.dataclass
class Mirror:
    """A tensor's copy on the device."""

    buffer: Buffer
    version: int  # of the tensor, when both were equal last
    place: tuple[Any, ...]  # of the tensor then
    shared: bool = False  # other processes may use the buffer: it is never written
    held: Any = None  # the storage: while it is held, no other contents get its address


class Connection:
    """A client with a stream for replays. Calls of several threads take turns: hold `lock`."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.lock = threading.RLock()
        self.epoch = 0  # changes when the client does
        self.forgotten = False
        self.moves = 0  # of tensors that have a copy, to other memory
        self.mirrors: Any = WeakTensorKeyDictionary()
        self._noted: tuple[Sequence[Mirror], Sequence[int]] = ((), ())
        self._open()

    def _open(self) -> None:
        self.client: Client = self.options.client or connect(self.options.address, name=f"torch:{os.getpid()}")
        self.stream = self.client.replay_stream()

    def renew(self, lost: int) -> None:
        """Connects again, unless another thread did so since `lost`. All copies on the device are gone."""
        with self.lock:
            if self.epoch != lost:
                return
            client, self.mirrors, self._noted = self.client, WeakTensorKeyDictionary(), ((), ())
            self.epoch += 1
            self._open()
            with contextlib.suppress(Error):
                client.close()

    def note(self, mirrors: Sequence[Mirror], versions: Sequence[int]) -> None:
        """Notes the versions at which tensors are equal to their copies.

        A graph that runs again and again notes the same mirrors at each call, so they get the versions only when somebody asks.
        """
        if mirrors is not self._noted[0]:
            self.settle()
        self._noted = (mirrors, versions)

    def was_last(self, mirrors: Sequence[Mirror]) -> bool:
        """Returns whether these mirrors were noted last, and nobody has asked since."""
        return self._noted[0] is mirrors

    def settle(self) -> None:
        """Gives mirrors the versions that were noted for them. Call it before looking at any."""
        for mirror, version in zip(*self._noted, strict=True):
            mirror.version = version
        self._noted = ((), ())

    def follow(self, tensor: torch.Tensor, bump: int) -> None:
        """Has the tensor's copy count as current, as before PyTorch raised the version by `bump` for a call that failed."""
        self.settle()
        found: Mirror | None = self.mirrors.get(tensor)
        if found is not None and found.version == version_of(tensor) - bump:
            found.version += bump

    def mirror(self, tensor: torch.Tensor, bump: int, weights_dir: str | None = None, trusted: bool = False) -> Mirror:
        """Returns the tensor's copy on the device, with its present contents.

        `bump`: by how much PyTorch has just raised the tensor's version, without writing it. `trusted`: an untracked
        tensor is taken as unchanged (a parameter).
        """
        self.settle()
        version, place = version_of(tensor), place_of(tensor)
        seen = version - bump if version != UNTRACKED else version
        found: Mirror | None = self.mirrors.get(tensor)
        current = found is not None and found.version == seen and found.place == place
        if found is not None and current and (version != UNTRACKED or trusted):
            return found
        self.moves += found is not None and found.place != place
        nbytes = tensor.numel() * tensor.element_size()
        if found is not None and not found.shared and found.buffer.nbytes >= nbytes:
            found.buffer.write(tensor)
            found.version, found.place, found.held = seen, place, tensor.untyped_storage()
            return found
        if weights_dir and found is None and nbytes:
            made = Mirror(self._shared(tensor, weights_dir), seen, place, shared=True)
        else:
            made = Mirror(self.client.upload(tensor, device=self.options.device), seen, place)
        made.held = tensor.untyped_storage()
        self.mirrors[tensor] = made
        return made

    def _shared(self, tensor: torch.Tensor, folder: str) -> Buffer:
        """Lets the daemon read the tensor from a file that is named by its contents: it has equal files once."""
        from safetensors.torch import save_file
        plain = dense(tensor.detach())
        digest = hashlib.sha256(f"{plain.dtype} {tuple(plain.shape)}".encode())
        digest.update(plain.reshape(-1).view(torch.uint8).numpy().data)
        path = os.path.join(folder, digest.hexdigest() + ".safetensors")
        if not os.path.exists(path):
            part = f"{path}.{os.getpid()}"
            save_file({"t": plain}, part)
            os.replace(part, path)
        return self.client.load_safetensors(path, device=self.options.device)["t"]


_connections: dict[tuple[str, str, int], Connection] = {}
_lock = threading.Lock()


def connection_of(options: Options) -> Connection:
    """Returns the process's connection for these options; opens it at first."""
    address = options.address or os.environ.get("NPUGRAPH_ADDRESS", "")
    key = (address, options.device or "", id(options.client) if options.client else 0)
    with _lock:
        found = _connections.get(key)
        if found is None or (found.client.closed and not options.reconnect):
            found = _connections[key] = Connection(options)
        return found


def pull(*tensors: torch.Tensor) -> None:
    """Fetches what compiled calls wrote to these tensors on the device (option resident_states)."""
    for connection in list(_connections.values()):
        with connection.lock:
            connection.settle()
            for tensor in tensors:
                found: Mirror | None = connection.mirrors.get(tensor)
                if found is not None and not found.shared:
                    fresh = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
                    found.buffer.read_into(fresh) if fresh.numel() else None
                    with torch.no_grad():
                        tensor.copy_(fresh)
                    found.version, found.place = version_of(tensor), place_of(tensor)
                    found.held = tensor.untyped_storage()


def forget() -> None:
    """Closes the backend's connections; compiled functions open new ones if they are called."""
    with _lock:
        for connection in _connections.values():
            connection.forgotten = True
            if connection.options.client is None:
                connection.client.close()
        _connections.clear()
