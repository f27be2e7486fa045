# SPDX-License-Identifier: Apache-2.0
"""Host memory of numpy arrays, torch tensors and other buffers, without copies where their layout allows it."""
from __future__ import annotations

from typing import Any

import numpy as np


def dense(tensor: Any) -> Any:
    """Returns a torch tensor, or a copy, whose memory has its numbers in order: contiguous, with no sign or conjugation left to
    apply, as views of complex numbers have, and no zeros that are nowhere."""
    pending = tensor.is_neg() or tensor.is_conj() or tensor._is_zerotensor()
    return (tensor.clone() if pending else tensor).contiguous()


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
        if data.device.type != "cpu" or not data.is_contiguous() or data.is_neg() or data.is_conj():
            raise ValueError("results can only be written to a contiguous tensor on the CPU")
        nbytes = data.numel() * data.element_size()
        if data._is_zerotensor() or data.untyped_storage().nbytes() - data.storage_offset() * data.element_size() < nbytes:
            raise ValueError("results can only be written to a tensor that has memory for all of its elements")
        return data.data_ptr(), nbytes, data
    array = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
    if not array.flags.c_contiguous or not array.flags.writeable:
        raise ValueError("results can only be written to memory that is contiguous and writable")
    return array.ctypes.data, array.nbytes, array
