"""llama.cpp through its Python binding: a GGUF file, one sequence at a time.

It is run as a file, by whatever Python has the binding, and imports nothing of ours but its neighbour `serve`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __name__ != "__main__":
    from jupyter_infer.bench.peers.serve import Peer, serve
else:
    from serve import Peer, serve

__all__ = ["LlamaCpp"]

BATCH = 512  # its own default, named because prefill depends on it


class LlamaCpp(Peer):
    """A `llama_cpp.Llama` with a thread a CPU."""

    def __init__(self, load: dict[str, Any]) -> None:
        super().__init__()
        begun = time.monotonic()
        import llama_cpp

        self.import_s = time.monotonic() - begun
        self._llama = llama_cpp.Llama(
            model_path=load["gguf"],
            n_ctx=load["max_model_len"],
            n_batch=BATCH,
            n_threads=load["threads"],
            n_threads_batch=load["threads"],
            verbose=False,
        )
        self.facts = {
            "version": f"llama-cpp-python {llama_cpp.__version__}",
            "dtype": Path(load["gguf"]).stem.rpartition(".")[2],
            "threads": load["threads"],
        }

    def prepare(self, question: dict[str, Any]) -> None:
        """Forget the last prompt, whose beginning would be taken over else."""
        self._llama.reset()

    def run(self, question: dict[str, Any]) -> int:
        """Run the prompts, one after the other."""
        done = 0
        for ids in question["prompts"]:
            for count, _ in enumerate(self._llama.generate(ids, temp=0.0), 1):
                done += 1
                if count == question["tokens"]:
                    break
        return done


if __name__ == "__main__":
    serve(LlamaCpp)
