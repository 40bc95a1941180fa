"""vLLM as it is shipped, through its own `LLM`: compiled, its engine in a process of its own."""

from __future__ import annotations

import time
from typing import Any

from jupyter_infer.bench.peers.serve import Peer, serve

__all__ = ["StockVllm"]


class StockVllm(Peer):
    """`vllm.LLM` with nothing set but the model and the room that all peers have."""

    def __init__(self, load: dict[str, Any]) -> None:
        super().__init__()
        begun = time.monotonic()
        import vllm

        self.import_s = time.monotonic() - begun
        self._sampling = vllm.SamplingParams
        self._llm = vllm.LLM(
            model=load["model"],
            max_model_len=load["max_model_len"],
            kv_cache_memory_bytes=load["kv_cache_memory_bytes"],
        )
        self.facts = {"version": f"vllm {vllm.__version__}", "dtype": str(self._llm.model_config.dtype)}

    def prepare(self, question: dict[str, Any]) -> None:
        """Forget the prefix cache."""
        self._llm.reset_prefix_cache()

    def run(self, question: dict[str, Any]) -> int:
        """Run a batch with `LLM.generate`."""
        sampling = self._sampling(temperature=0, ignore_eos=True, max_tokens=question["tokens"])
        prompts = [{"prompt_token_ids": ids} for ids in question["prompts"]]
        answers = self._llm.generate(prompts, sampling, use_tqdm=False)
        return sum(len(output.token_ids) for answer in answers for output in answer.outputs)


if __name__ == "__main__":
    serve(StockVllm)
