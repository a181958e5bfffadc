"""Conversion of Python's values to the syntax of ``--set``."""

from __future__ import annotations

import json
import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any


def word(value: Any, key: str) -> str:
    """The text after ``key=``. A string is used unchanged: ``20 Mbps``."""
    return value if isinstance(value, str) else _toml(value, key)


def _toml(value: Any, key: str) -> str:
    if isinstance(value, str):
        # A JSON string is a TOML string, except that TOML requires an escape for U+007F and JSON
        # does not.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, numbers.Real) and math.isfinite(value):
        return repr(float(value))
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_toml(str(k), key)} = {_toml(v, key)}" for k, v in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        return "[" + ", ".join(_toml(v, key) for v in value) + "]"
    item = type(value).__name__
    raise TypeError(f"{key}: no scenario holds {value!r} ({item}); give a string, a number, a boolean, a list or a dict")
