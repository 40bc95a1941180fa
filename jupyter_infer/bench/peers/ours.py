"""Ourselves as a peer: a `Session` through its public interface, with everything that a user of it pays for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from jupyter_infer.bench.peers.serve import Peer, Unavailable, serve

if TYPE_CHECKING:
    from jupyter_infer.records import LoadStage

__all__ = ["OURS", "Ours"]

OURS: dict[str, dict[str, Any]] = {
    "bf16": {"dtype": "bfloat16"},
    "default": {},
    "bf16 compiled": {"dtype": "bfloat16", "compile": True},
    "int8": {"bits": 8},
    "int8 compiled": {"bits": 8, "compile": True},
}
"""Name → settings of `Session.load`."""


class Ours(Peer):
    """A session with a model loaded. It tokenises texts within the time of a run; its peers are given the ids."""

    def __init__(self, load: dict[str, Any]) -> None:
        super().__init__()
        begun = time.monotonic()
        from jupyter_infer.errors import InferError
        from jupyter_infer.session import Session

        imported = time.monotonic()
        stages: dict[str, int] = {}

        def progress(stage: LoadStage) -> None:
            stages.setdefault(stage.stage, stage.time_ns)

        self._session = Session(load["model"])
        try:
            info = self._session.load(load["model"], progress=progress, **load["settings"])
        except InferError as error:
            raise Unavailable(f"{type(error).__name__}: {error}") from error
        if info.not_compiled:
            raise Unavailable(info.not_compiled)
        self.import_s = imported - begun
        if "import" in stages and "config" in stages:
            self.import_s += (stages["config"] - stages["import"]) / 1e9
        self.facts = {
            "version": info.engine,
            "dtype": info.dtype,
            "weight_bytes": info.weight_bytes,
            "unread_bytes": _unread(load, info.dtype),
            "threads": info.threads,
            "settings": info.settings,
            "notices": list(info.notices),
        }
        self._checked: set[str] = set()

    def prepare(self, question: dict[str, Any]) -> None:
        """Forget the prefix cache; a text that is not what the others get is an error."""
        if not self._session.clear_cache():
            raise RuntimeError("the prefix cache was not forgotten: a request still holds some of it")
        for text, ids in zip(question["texts"], question["prompts"], strict=True):
            if text not in self._checked and [token for token, _ in self._session.tokens(text)] != ids:
                raise RuntimeError(f"the engine's tokenizer reads {text[:40]!r} otherwise than tokenizer.json does")
            self._checked.add(text)

    def run(self, question: dict[str, Any]) -> int:
        """Run a batch as `%%infer --no-template --ignore-eos -t 0` does, to the last record."""
        batch = self._session.submit_batch(
            question["texts"], template=False, temperature=0.0, ignore_eos=True, max_tokens=question["tokens"]
        )
        results = batch.result()
        if len(results.done) < len(results):
            raise RuntimeError(f"not all prompts ran: {list(results)!r}")
        return sum(result.record.output_tokens for result in results.done)


def _unread(load: dict[str, Any], dtype: str) -> int:
    """Return the bytes of the weights that a token does not need: the embeddings beside an output layer of its own."""
    from jupyter_infer.models import resolve
    from jupyter_infer.models.quantize import quantized

    if "bits" not in load["settings"]:
        return 0
    kept = quantized(resolve(load["model"]), load["settings"]["bits"]).kept_bytes or 0
    return 2 * kept if dtype == "float32" else kept


if __name__ == "__main__":
    serve(Ours)
