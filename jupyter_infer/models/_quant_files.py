"""The tensors of safetensors files by name, and rows of them as float32.

safetensors' own numpy reader cannot read bfloat16, and its torch reader needs torch. The format is one header of JSON,
so it is read here; rows are read a few at a time, so no tensor has to fit into memory.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_infer.errors import ModelError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["StoredTensor", "header_bytes", "read_tensors"]

_FLOATS = {"F32": 4, "F16": 2, "BF16": 2}
_LONGEST_HEADER = 100_000_000  # what safetensors itself refuses
_CHUNK_BYTES = 1 << 22


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Where a tensor lies: `dtype` in safetensors' names, `shape` outermost first, `offset` from the file's start."""

    path: Path
    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    size: int

    @property
    def is_float(self) -> bool:
        """Whether `rows` can read it."""
        return self.dtype in _FLOATS

    def rows(self, start: int, stop: int) -> NDArray[np.float32]:
        """Return rows `start` to `stop` of a matrix, exactly, whichever of the three float formats it is in."""
        import numpy as np

        columns = self.shape[1]
        kind = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}[self.dtype]
        offset = self.offset + start * columns * _FLOATS[self.dtype]
        raw: NDArray[Any] = np.fromfile(self.path, kind, (stop - start) * columns, offset=offset).reshape(-1, columns)
        values: NDArray[Any] = raw.astype(np.uint32) << 16 if self.dtype == "BF16" else raw.astype(np.float32)
        return values.view(np.float32)

    def chunks(self) -> Iterator[bytes]:
        """Yield its bytes as they are."""
        with self.path.open("rb") as file:
            file.seek(self.offset)
            left = self.size
            while left:
                chunk = file.read(min(left, _CHUNK_BYTES))
                if not chunk:
                    raise _damaged(self.path, "it is cut short")
                left -= len(chunk)
                yield chunk


def read_tensors(files: Sequence[Path]) -> dict[str, StoredTensor]:
    """Return all tensors of safetensors files by name.

    Raises
    ------
    ModelError
        A file is no safetensors file, or it is damaged.
    """
    tensors: dict[str, StoredTensor] = {}
    for path in files:
        if path.suffix != ".safetensors":
            raise ModelError(f"{path.name} cannot be quantised: weights are read from safetensors files only")
        tensors |= {tensor.name: tensor for tensor in _in_file(path)}
    return tensors


def header_bytes(entries: dict[str, tuple[str, tuple[int, ...], int]]) -> bytes:
    """Return the head of a safetensors file of tensors that follow in this order: name → dtype, shape, bytes."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    done = 0
    for name, (dtype, shape, size) in entries.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [done, done + size]}
        done += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _in_file(path: Path) -> Iterator[StoredTensor]:
    whole = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(whole - 8, _LONGEST_HEADER):
            raise _damaged(path, "its header is longer than it")
        text = file.read(length)
    try:
        header = json.loads(text)
        header.pop("__metadata__", None)
        for name, entry in header.items():
            start, stop = entry["data_offsets"]
            tensor = StoredTensor(path, name, entry["dtype"], tuple(entry["shape"]), 8 + length + start, stop - start)
            if start < 0 or tensor.size < 0 or 8 + length + stop > whole:
                raise _damaged(path, "it is cut short")
            if tensor.is_float and math.prod(tensor.shape) * _FLOATS[tensor.dtype] != tensor.size:
                raise _damaged(path, f"{name!r} has not the bytes of its shape")
            yield tensor
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _damaged(path, "its header cannot be read") from error


def _damaged(path: Path, why: str) -> ModelError:
    return ModelError(f"{path} is damaged ({why}); download the model again")
