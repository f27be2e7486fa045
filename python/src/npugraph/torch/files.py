# SPDX-License-Identifier: Apache-2.0
"""The files of cache_compile: JSON under a digest, private to the user, written at once."""
from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import tempfile
import warnings
from collections.abc import Callable, Iterator
from typing import Any

FILE_BYTES = 64 << 20
FILES = 64  # of one function that are read
_START, _END = "compiled_module.", ".json"


class CacheWarning(UserWarning):
    """A file of cache_compile cannot be used or written; the message says why. The function is compiled again."""


class Unusable(ValueError):
    """A file is not what this package wrote for this user."""


class Folder:
    """The folder of one function."""

    def __init__(self, path: str) -> None:
        self.path = path

    def read(self) -> Iterator[tuple[str, Any]]:
        """Yields the names of files and their contents; what cannot be used is removed with a warning."""
        try:
            names = sorted(name for name in os.listdir(self.path) if name.startswith(_START) and name.endswith(_END))
            _check_owner(os.stat(self.path), self.path)
        except FileNotFoundError:
            return
        except (OSError, Unusable) as why:
            warnings.warn(f"{self.path} is not used: {why}", CacheWarning, stacklevel=5)
            return
        for name in names[:FILES]:
            try:
                yield name, contents(os.path.join(self.path, name))["entry"]
            except FileNotFoundError:
                continue  # another process has removed it
            except (OSError, Unusable) as why:
                warnings.warn(f"{os.path.join(self.path, name)} is not used: {why}", CacheWarning, stacklevel=5)
                self.remove(name)

    def remove(self, name: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self.path, name))

    def write(self, entry: dict[str, Any], form_of: Callable[[Any], Any]) -> Any:
        """Writes an entry, and returns its form as it will be read. OSError, ValueError: nothing was written."""
        body = json.dumps({"entry": entry}, sort_keys=True, allow_nan=False).encode()
        if len(body) > FILE_BYTES:
            raise ValueError(f"it would have {len(body)} bytes; at most {FILE_BYTES} are written")
        form = form_of(json.loads(body)["entry"]["form"])
        digest = hashlib.sha256(body).hexdigest()
        os.makedirs(self.path, mode=0o700, exist_ok=True)
        _check_owner(os.stat(self.path), self.path)
        handle, part = tempfile.mkstemp(prefix=".", dir=self.path)
        try:
            with open(handle, "wb") as file:
                file.write(json.dumps({"npugraph cache": 1, "sha256": digest}).encode() + b"\n" + body)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, os.path.join(self.path, f"{_START}{digest[:16]}{_END}"))
        except BaseException:
            os.unlink(part)
            raise
        return form


def _check_owner(status: os.stat_result, path: str) -> None:
    if status.st_uid != os.geteuid():
        raise Unusable(f"it belongs to user {status.st_uid}, and not to you")
    if status.st_mode & 0o022:
        raise Unusable("others may write to it; take that away with chmod go-w")


def contents(path: str) -> dict[str, Any]:
    """Returns what a file of cache_compile has. Unusable: it is no such file, or is damaged, or somebody else's."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise Unusable("it is no regular file")
        _check_owner(status, path)
        if status.st_size > FILE_BYTES + 4096:
            raise Unusable(f"it has {status.st_size} bytes; at most {FILE_BYTES} are read")
        head, _, body = file.read(FILE_BYTES + 4096).partition(b"\n")
    try:
        told = json.loads(head)
        if told != {"npugraph cache": 1, "sha256": hashlib.sha256(body).hexdigest()}:
            raise Unusable("it is damaged, or of another version")
        data = json.loads(body)
    except (ValueError, RecursionError) as why:
        raise Unusable(f"it is damaged: {why}") from None
    if not isinstance(data, dict) or "entry" not in data:
        raise Unusable("it has no entry")
    return data
