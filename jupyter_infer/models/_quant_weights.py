"""Linear layers rounded to whole numbers, and the safetensors file that holds them, written a few rows at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_infer.errors import ModelError
from jupyter_infer.models._quant_files import StoredTensor, header_bytes
from jupyter_infer.models.cache import require_space

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from jupyter_infer.models.cache import Progress

__all__ = ["round_rows", "write_quantized"]

_CHUNK_ELEMENTS = 1 << 20
_LARGEST = 127


@dataclass(frozen=True, slots=True)
class _Part:
    """A tensor of the copy: what it is called there, and where it comes from."""

    name: str
    source: StoredTensor
    rounded: bool

    def entries(self) -> dict[str, tuple[str, tuple[int, ...], int]]:
        """Return dtype, shape and bytes of what it becomes, in the order of `chunks`."""
        if not self.rounded:
            return {self.name: (self.source.dtype, self.source.shape, self.source.size)}
        rows, columns = self.source.shape
        return {
            self.name: ("I8", (rows, columns), rows * columns),
            f"{self.name}_scale": ("F32", (rows, 1), 4 * rows),
        }

    def chunks(self) -> Iterator[bytes]:
        if not self.rounded:
            yield from self.source.chunks()
            return
        rows, columns = self.source.shape
        step = max(1, _CHUNK_ELEMENTS // columns)
        scales = []
        for start in range(0, rows, step):
            whole, scale = round_rows(self.source.rows(start, min(start + step, rows)), self.name)
            scales.append(scale.tobytes())
            yield whole.tobytes()
        yield b"".join(scales)


def round_rows(values: NDArray[np.float32], name: str) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return whole numbers and a scale for each row, so that their product is within half a scale of `values`.

    The scale is the row's largest magnitude over 127; a row of zeros has the scale 1.

    Raises
    ------
    ModelError
        A value is not finite; `name` is whose it is.
    """
    import numpy as np

    largest = np.abs(values).max(axis=1, keepdims=True)
    if not np.isfinite(largest).all():
        raise ModelError(f"{name!r} holds a value that is not finite; the model cannot be quantised")
    # The magnitudes that are too small to be divided are as good as zero.
    scale = np.where(largest < np.finfo(np.float32).tiny * _LARGEST, np.float32(1), largest / np.float32(_LARGEST))
    return np.clip(np.rint(values / scale), -_LARGEST, _LARGEST).astype(np.int8), scale.astype(np.float32)


def write_quantized(
    tensors: Mapping[str, StoredTensor],
    rounded: Mapping[str, str],
    path: Path,
    progress: Progress | None = None,
) -> None:
    """Write the safetensors file of a copy.

    Parameters
    ----------
    tensors
        All tensors of the model.
    rounded
        The names of those to round, each with the name of the tensor that it is made of.
    path
        The file.
    progress
        Called with the stage, bytes done and bytes in all.

    Raises
    ------
    ModelError
        A value cannot be rounded, or the disk is too small.
    """
    parts = [_Part(name, tensors[source], rounded=True) for name, source in rounded.items()]
    # The wider formats first: a reader may want each value at a multiple of its size.
    kept = sorted(tensors.values(), key=lambda tensor: tensor.dtype != "F32")
    parts += [_Part(tensor.name, tensor, rounded=False) for tensor in kept if tensor.name not in rounded]
    entries = {name: entry for part in parts for name, entry in part.entries().items()}
    total = sum(size for _, _, size in entries.values())
    require_space(path.parent, total)
    with path.open("wb") as out:
        out.write(header_bytes(entries))
        done = 0
        for part in parts:
            for chunk in part.chunks():
                done += out.write(chunk)
                if progress:
                    progress("quantising", done, total)
        # The folder is renamed into place next, and must not outlive a power cut without its content.
        out.flush()
        os.fsync(out.fileno())
