"""A GGUF file's metadata and tensor table, and rows of its tensors as float32.

The layout is ggml's ``docs/gguf.md``. The reader of the `gguf` package makes several numpy views for every string of
the vocabulary, 6 s and 170 MB for 49,152 tokens, and takes a string that runs past the end of the file for a shorter
one; this one reads the same header in a fraction of a second and refuses a file that is cut short. The quantisation
formats are left to `gguf.dequantize`.
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_infer.errors import ModelError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["GgufFile", "GgufTensor", "read_gguf"]

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_FLOAT32, _STRING, _ARRAY = 6, 8, 9


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """Where a tensor lies: `shape` outermost first, `kind` a ``GGMLQuantizationType``, `offset` from the start."""

    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int
    row_bytes: int

    @property
    def rows(self) -> int:
        """Rows of the innermost dimension; 1 for a vector."""
        return math.prod(self.shape[:-1])


@dataclass(frozen=True, slots=True)
class GgufFile:
    """A parsed header. `metadata` values are Python's; a float32 becomes the shortest decimal that reads back as it."""

    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor]

    def rows(self, tensor: GgufTensor, start: int, stop: int, order: NDArray[np.int64] | None) -> NDArray[np.float32]:
        """Return rows `start` to `stop` of a tensor as float32, shape ``(stop - start, columns)``.

        With `order`, row *i* of the result is row ``order[start + i]`` of the file. Rows are reordered before they are
        dequantised: a quantisation block never spans two rows.
        """
        import numpy as np
        from gguf import GGMLQuantizationType, dequantize

        first, count = (start, stop - start) if order is None else (0, tensor.rows)
        offset = tensor.offset + first * tensor.row_bytes
        raw = np.fromfile(self.path, np.uint8, count * tensor.row_bytes, offset=offset).reshape(count, -1)
        if order is not None:
            raw = raw[order[start:stop]]
        kind = GGMLQuantizationType(tensor.kind)
        try:
            values: NDArray[np.float32] = dequantize(raw, kind)
        except NotImplementedError as error:
            raise ModelError(f"{self.path.name} cannot be converted: its tensors are {kind.name}") from error
        return values


def read_gguf(path: Path) -> GgufFile:
    """Return the header of a GGUF file.

    Raises
    ------
    ModelError
        It is not a GGUF file, of a version that is not known, or cut short.
    """
    size = path.stat().st_size
    if size < 24:
        raise ModelError(f"{path.name} is not a GGUF file ({size} bytes)")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[:4] != b"GGUF":
            raise ModelError(f"{path.name} is not a GGUF file")
        cursor = _Cursor(data, at=4)
        try:
            version, tensor_count, key_count = cursor.take("I"), cursor.take("Q"), cursor.take("Q")
            if version not in (2, 3):
                raise ModelError(f"{path.name} is GGUF version {version}, or big-endian; versions 2 and 3 can be read")
            metadata = {}
            for _ in range(key_count):
                key = cursor.string()
                metadata[key] = cursor.value(cursor.take("I"))
            table = [cursor.tensor() for _ in range(tensor_count)]
        except (EOFError, UnicodeDecodeError, KeyError, RecursionError) as error:
            raise ModelError(f"{path.name} is damaged or cut short; download it again") from error
    return GgufFile(path, metadata, _tensors(path, size, cursor.at, metadata.get("general.alignment", 32), table))


def _tensors(
    path: Path, size: int, header: int, alignment: Any, table: list[tuple[str, tuple[int, ...], int, int]]
) -> dict[str, GgufTensor]:
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    if not isinstance(alignment, int) or alignment < 1:
        raise ModelError(f"{path.name} is damaged: its alignment is {alignment!r}; download it again")
    start = -(-header // alignment) * alignment
    tensors = {}
    for name, shape, kind, offset in table:
        try:
            block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
        except (ValueError, KeyError) as error:
            raise ModelError(f"{path.name}: tensor {name!r} has the unknown type {kind}; update gguf") from error
        if not shape or shape[-1] % block:
            raise ModelError(f"{path.name} is damaged: tensor {name!r} has the shape {shape}; download it again")
        tensor = GgufTensor(name, shape, kind, start + offset, shape[-1] // block * block_bytes)
        end = tensor.offset + tensor.rows * tensor.row_bytes
        if end > size:
            raise ModelError(f"{path.name} is cut short: {size:,} of {end:,} bytes or more; download it again")
        tensors[name] = tensor
    return tensors


class _Cursor:
    """Reads little-endian values one after the other; `EOFError` past the end."""

    def __init__(self, data: mmap.mmap, at: int) -> None:
        self.data = data
        self.at = at

    def advance(self, length: int) -> int:
        start = self.at
        if length > len(self.data) - start:
            raise EOFError
        self.at += length
        return start

    def array(self, code: str, count: int) -> tuple[Any, ...]:
        start = self.advance(count * struct.calcsize(f"<{code}"))
        return struct.unpack_from(f"<{count}{code}", self.data, start)

    def take(self, code: str) -> Any:
        return self.array(code, 1)[0]

    def string(self) -> str:
        length = self.take("Q")
        start = self.advance(length)
        return self.data[start : start + length].decode("utf-8")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            inner, count = self.take("I"), self.take("Q")
            if inner in _SCALARS:
                return list(self.array(_SCALARS[inner], count))
            return [self.value(inner) for _ in range(count)]
        number = self.take(_SCALARS[kind])
        return _shortest(number) if kind == _FLOAT32 else number

    def tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self.string()
        dimensions = self.array("Q", self.take("I"))
        # ggml names the innermost dimension first, numpy and safetensors the outermost.
        return name, tuple(reversed(dimensions)), self.take("I"), self.take("Q")


def _shortest(number: float) -> float:
    """Return 1e-05 for the 9.999999747378752e-06 that a float32 of 1e-05 widens to."""
    import numpy as np

    return float(str(np.float32(number)))
