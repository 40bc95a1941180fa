"""Numbers of a figure as text: one base64 string instead of a line a number in a saved notebook."""

from __future__ import annotations

import math
import struct
from base64 import b64encode
from collections.abc import Sequence

__all__ = ["pack"]


def pack(values: Sequence[float | None], *, exact: bool = False) -> dict[str, str]:
    """Return numbers as a typed array for Plotly, to seven digits: a thousandth of a pixel and less.

    What is not known is NaN, which Plotly does not draw; in the JSON it is bytes like all the rest.

    Parameters
    ----------
    values
        The numbers.
    exact
        To 15 digits in twice the bytes: for moments of a long time, which a zoom takes apart.
    """
    known = [math.nan if value is None else value for value in values]
    data = struct.pack(f"<{len(known)}{'d' if exact else 'f'}", *known)
    return {"dtype": "f8" if exact else "f4", "bdata": b64encode(data).decode()}
