"""From what ``--schema`` names to a JSON schema: a variable of the user's, or a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jupyter_infer.errors import ConfigError, nearest

__all__ = ["is_schema", "schema_in"]


def schema_in(name: str, namespace: Mapping[str, Any]) -> Any:
    """Return the schema that a variable or, where there is none of that name, a JSON file holds.

    Raises
    ------
    ConfigError
        If there is neither, the variable holds no schema, or the file cannot be read as JSON.
    """
    if not name:
        raise ConfigError("--schema takes the name of a variable or of a file")
    if name in namespace:
        value = namespace[name]
        if not (is_schema(value) or isinstance(value, str)):
            kind = type(value).__name__
            raise ConfigError(f"--schema: {name} is no mapping, JSON text or Pydantic model, but of type {kind}")
        return value
    try:
        return json.loads(Path(name).expanduser().read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        schemas = [known for known, value in namespace.items() if is_schema(value)]
        raise ConfigError(f"--schema: there is no variable and no file {name!r}{nearest(name, schemas)}") from None
    except RecursionError:
        raise ConfigError(f"--schema: {name} is nested too deeply") from None
    except (OSError, RuntimeError) as error:  # a folder, no permission, a home that nobody has
        raise ConfigError(f"--schema: {name} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except ValueError as error:  # no JSON, no UTF-8, a NUL in the name
        raise ConfigError(f"--schema: {name!r} is no JSON file: {error}") from None


def is_schema(value: Any) -> bool:
    """Whether a value of the user's can be a schema by its kind: a mapping, or a Pydantic model's class."""
    return isinstance(value, Mapping) or (
        isinstance(value, type) and callable(getattr(value, "model_json_schema", None))
    )
