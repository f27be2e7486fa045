# SPDX-License-Identifier: Apache-2.0
"""Host memory of numpy arrays, torch tensors and other buffers, without copies where their layout allows it."""
from __future__ import annotations

from typing import Any

import numpy as np


def check_stored(tensor: Any) -> None:
    """ValueError: the storage of a torch tensor ends before its last element, as after a resize_ of the storage."""
    size, needs = tensor.element_size(), tensor.nbytes
    if not needs:
        return
    if not tensor.is_contiguous():
        needs = (1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))) * size
    has = tensor.untyped_storage().nbytes() - tensor.storage_offset() * size
    if has < needs:
        raise ValueError(f"a tensor of shape {tuple(tensor.shape)} needs {needs} bytes, and its storage has {max(0, has)} for it: "
                         "it was made smaller by resize_")


def is_plain(tensor: Any) -> bool:
    """Returns whether the memory of a torch tensor has its numbers in order: it is contiguous, and has no sign or conjugation
    left to apply, as views of complex numbers have, nor zeros that are nowhere."""
    return tensor.is_contiguous() and not (tensor.is_neg() or tensor.is_conj() or tensor._is_zerotensor())


def dense(tensor: Any) -> Any:
    """Returns a torch tensor, or a copy, for which `is_plain` holds. ValueError: its storage is too small."""
    if tensor._is_zerotensor():
        return tensor.clone().contiguous()
    check_stored(tensor)
    return (tensor.clone() if tensor.is_neg() or tensor.is_conj() else tensor).contiguous()


def view_of(data: Any) -> tuple[int, int, Any]:
    """Returns address, bytes, and the object that keeps the memory alive. Copies only what is not contiguous.

    Takes torch tensors on the CPU, objects of the buffer protocol (bytes, numpy arrays, memoryviews), and what offers
    DLPack.
    """
    if type(data).__module__.startswith("torch") and hasattr(data, "data_ptr"):
        tensor = dense(data.detach())
        if tensor.device.type != "cpu":
            raise TypeError(f"a tensor on {tensor.device} has no memory that can be sent; move it to the CPU first")
        return tensor.data_ptr(), tensor.numel() * tensor.element_size(), tensor
    array = _array(data)
    return array.ctypes.data, array.nbytes, array


def _array(data: Any) -> Any:
    if isinstance(data, np.ndarray):
        return np.ascontiguousarray(data)
    if isinstance(data, (bytes, bytearray, memoryview)):
        return np.frombuffer(data, np.uint8)
    if hasattr(data, "__dlpack__"):
        return np.ascontiguousarray(np.from_dlpack(data))
    if hasattr(data, "__array__") or hasattr(data, "__array_interface__"):
        return np.ascontiguousarray(data)
    return np.frombuffer(memoryview(data), np.uint8)


def writable_view_of(data: Any) -> tuple[int, int, Any]:
    """Returns address, bytes and keeper of memory that a result can be written to. It must be contiguous."""
    if type(data).__module__.startswith("torch") and hasattr(data, "data_ptr"):
        if data.device.type != "cpu" or not is_plain(data):
            raise ValueError("results can only be written to a contiguous tensor on the CPU, with memory for its elements")
        check_stored(data)
        return data.data_ptr(), data.nbytes, data
    array = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
    if not array.flags.c_contiguous or not array.flags.writeable:
        raise ValueError("results can only be written to memory that is contiguous and writable")
    return array.ctypes.data, array.nbytes, array
