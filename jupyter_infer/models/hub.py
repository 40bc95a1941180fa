"""A model of the hub as a local folder, and whether the hub answers at all."""

from __future__ import annotations

import http.client
import os
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from jupyter_infer.errors import ModelError
from jupyter_infer.models.cache import Progress
from jupyter_infer.models.folder import check_folder

__all__ = ["cached_snapshot", "download_snapshot", "hub_answers", "hub_endpoint"]

_FILES = ["*.json", "*.safetensors", "*.model", "*.jinja", "merges.txt", "vocab.txt"]
_NOT_FILES = ["*/*", "consolidated*"]  # copies in other formats: original/, onnx/, …

_answers: dict[str, bool] = {}
_answers_lock = threading.Lock()


def hub_endpoint() -> str:
    """Return the address of the hub: ``$HF_ENDPOINT``, else that of `huggingface_hub`."""
    from huggingface_hub import constants

    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or constants.ENDPOINT


def hub_answers(timeout: float = 2.0) -> bool:
    """Return whether the hub answers within `timeout` seconds; asked once a process, False under ``HF_HUB_OFFLINE``."""
    if _offline():
        return False
    endpoint = hub_endpoint()
    with _answers_lock:
        if endpoint not in _answers:
            _answers[endpoint] = _probe(endpoint, timeout)
        return _answers[endpoint]


def _offline() -> bool:
    from huggingface_hub import constants

    named = os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or ""
    return constants.HF_HUB_OFFLINE or named.upper() in {"1", "ON", "YES", "TRUE"}


def _probe(endpoint: str, timeout: float) -> bool:
    answered = threading.Event()

    def ask() -> None:
        try:
            with urllib.request.urlopen(urllib.request.Request(endpoint, method="HEAD"), timeout=timeout):
                answered.set()
        except urllib.error.HTTPError as error:
            if error.code < 500:
                answered.set()
        except (OSError, ValueError, http.client.HTTPException):
            pass

    # On a thread, because the timeout of a socket does not cover the name look-up, which can hang for a minute.
    asking = threading.Thread(target=ask, name="jupyter-infer-hub-probe", daemon=True)
    asking.start()
    asking.join(timeout)
    return answered.is_set()


def cached_snapshot(repo_id: str) -> Path | None:
    """Return the folder of `repo_id` in the hub's own cache if it is whole, else None; touches no network."""
    from huggingface_hub import errors, try_to_load_from_cache

    try:
        config = try_to_load_from_cache(repo_id, "config.json")
    except (errors.HFValidationError, ValueError):  # no name that a model can have
        return None
    if not isinstance(config, str):
        return None
    folder = Path(config).parent
    try:
        check_folder(folder)
    except ModelError:
        return None
    return folder


def download_snapshot(repo_id: str, *, progress: Progress | None = None) -> Path:
    """Return the folder of the model `repo_id` (``org/name``), downloaded now unless it is in the hub's cache.

    Raises
    ------
    ModelError
        No such model, a gated one, a hub that does not answer, a full disk, or a repository without safetensors.
    """
    from huggingface_hub import errors, snapshot_download
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repo_id)
    except errors.HFValidationError as error:
        raise ModelError(f"{repo_id!r} is no name of a model: {str(error).splitlines()[0]}") from None
    if folder := cached_snapshot(repo_id):
        return folder
    if not hub_answers():
        why = "HF_HUB_OFFLINE is set" if _offline() else f"the hub ({hub_endpoint()}) does not answer"
        raise ModelError(f"cannot download {repo_id}: {why}; give a model folder, a .gguf file or smollm2-135m")
    try:
        folder = Path(
            snapshot_download(
                repo_id,
                endpoint=hub_endpoint(),
                allow_patterns=_FILES,
                ignore_patterns=_NOT_FILES,
                tqdm_class=_bar_class(progress),
            )
        )
    except errors.GatedRepoError as error:
        raise ModelError(f"{repo_id} is gated: accept its terms on its page, then type: !hf auth login") from error
    except errors.RepositoryNotFoundError as error:
        raise ModelError(f"the hub has no model {repo_id}; if it is private, type: !hf auth login") from error
    except Exception as error:
        # Whatever else the hub client raises comes from the network or the disk, in classes that change with the HTTP
        # library under it.
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise ModelError(f"cannot download {repo_id}: {reason}") from error
    check_folder(folder)
    return folder


def _bar_class(progress: Progress | None) -> type[Any]:
    """Return a progress bar class that draws nothing and reports bytes to `progress`."""
    import tqdm

    base: Any = tqdm.tqdm  # generic for type checkers only

    class Bar(base):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            # Of the byte bars the first counts network traffic; the other one knows the sizes of the files.
            self._counts = kwargs.get("unit") == "B" and kwargs.get("desc") != "Downloading bytes"
            kwargs.pop("name", None)
            kwargs["disable"] = True
            super().__init__(*args, **kwargs)

        def update(self, n: float | None = 1) -> None:
            # A disabled bar does not count.
            self.n += n or 0
            if progress and self._counts:
                progress("downloading", int(self.n), int(self.total or 0))

    return Bar
