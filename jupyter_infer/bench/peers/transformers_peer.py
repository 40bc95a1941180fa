"""`generate` of transformers, in bfloat16."""

from __future__ import annotations

import time
from typing import Any

from jupyter_infer.bench.peers.serve import Peer, serve

__all__ = ["Transformers"]


class Transformers(Peer):
    """A causal language model as `AutoModelForCausalLM` loads it. Prompts have one length, so nothing is padded."""

    def __init__(self, load: dict[str, Any]) -> None:
        super().__init__()
        begun = time.monotonic()
        import torch
        import transformers

        self.import_s = time.monotonic() - begun
        self._torch = torch
        model = transformers.AutoModelForCausalLM.from_pretrained(load["model"], dtype=torch.bfloat16)
        self._model = model.to("cuda" if torch.cuda.is_available() else "cpu").eval()
        self.facts = {
            "version": f"transformers {transformers.__version__}",
            "dtype": str(model.dtype),
            "threads": torch.get_num_threads(),
        }

    def run(self, question: dict[str, Any]) -> int:
        """Run a batch; so many tokens at least and at most, which ignores the end of a text."""
        torch, tokens = self._torch, question["tokens"]
        with torch.inference_mode():
            ids = torch.tensor(question["prompts"], device=self._model.device)
            output = self._model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                min_new_tokens=tokens,
                max_new_tokens=tokens,
                pad_token_id=0,
            )
        return int(output.shape[0] * (output.shape[1] - ids.shape[1]))


if __name__ == "__main__":
    serve(Transformers)
