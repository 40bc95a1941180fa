"""The tokenizer files of a Hugging Face folder, from a GGUF file's metadata.

They are built with `tokenizers` and not with ``AutoTokenizer.from_pretrained(..., gguf_file=...)``: transformers 5.19
splits text the GPT-2 way where it does not know the file's pre-tokenizer, SmolLM2's among them, which gives other ids
for spaces before a digit.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_infer.errors import ModelError

if TYPE_CHECKING:
    from tokenizers import Tokenizer, pre_tokenizers

    from jupyter_infer.models._gguf_file import GgufFile

__all__ = ["build_tokenizer", "write_tokenizer"]

# Values of tokenizer.ggml.token_type.
_UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 2, 3, 4, 6

# How the text is split before the merges apply, by tokenizer.ggml.pre, as `llama-vocab.cpp` has it.
_GPT2 = {"gpt-2", "mpt", "olmo", "jais", "phi-2", "trillion"}
_GPT2_DIGITS = {"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"}
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SPLITS = {
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "smaug-bpe", "pixtral"), _LLAMA3),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "stablelm2", "megrez"), _LLAMA3.replace("{1,3}", "")),
    "tekken": _TEKKEN,
}
# These look a whole word up before they merge, and Llama 3's begins a text with its BOS unless told not to.
_WHOLE_WORDS = {"llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "tekken"}
_BEGINS = {"llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral"}


def write_tokenizer(file: GgufFile, folder: Path) -> None:
    """Write ``tokenizer.json`` and ``tokenizer_config.json`` (with the chat template) to `folder`."""
    build_tokenizer(file).save(str(folder / "tokenizer.json"))
    metadata, tokens = file.metadata, file.metadata["tokenizer.ggml.tokens"]
    config: dict[str, Any] = {
        # The generic class takes tokenizer.json as it is; a Llama or GPT-2 one would rebuild the splitting.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": metadata.get("llama.context_length"),
        "clean_up_tokenization_spaces": False,
        "add_bos_token": _adds(file, "bos"),
        "add_eos_token": _adds(file, "eos"),
    }
    for field, key in {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}.items():
        if (token := metadata.get(f"tokenizer.ggml.{key}_token_id")) is not None:
            config[f"{field}_token"] = tokens[token]
    if template := metadata.get("tokenizer.chat_template"):
        config["chat_template"] = template
    text = json.dumps(config, indent=2, ensure_ascii=False)
    (folder / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")


def build_tokenizer(file: GgufFile) -> Tokenizer:
    """Return the tokenizer that the metadata of `file` describes.

    Raises
    ------
    ModelError
        It is of a kind, or splits text in a way, that is not known here: other ids than the model was trained on would
        show only as worse answers.
    """
    from tokenizers import AddedToken, processors

    metadata = file.metadata
    kind, tokens = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.tokens")
    if not tokens:
        raise ModelError(f"{file.path.name} cannot be converted: it holds no tokenizer")
    if kind == "gpt2":
        tokenizer = _byte_level(file, tokens)
    elif kind == "llama":
        tokenizer = _sentencepiece(file, tokens)
    else:
        raise ModelError(f"{file.path.name} cannot be converted: tokenizers of the kind {kind!r} are not supported")
    types = metadata.get("tokenizer.ggml.token_type") or [1] * len(tokens)
    for token, of_type in zip(tokens, types, strict=True):
        if of_type in (_CONTROL, _UNKNOWN):
            tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True)])
        elif of_type == _USER_DEFINED:
            tokenizer.add_tokens([AddedToken(token, normalized=False, special=False)])
    around = {}
    for name in ("bos", "eos"):
        if _adds(file, name):
            token_id = metadata[f"tokenizer.ggml.{name}_token_id"]
            around[name] = (tokens[token_id], token_id)
    if around:
        first, last = (around[name][0] if name in around else None for name in ("bos", "eos"))
        one = [part for part in (first, "$A", last) if part]
        two = [*one, *(f"{part}:1" for part in (first, "$B", last) if part)]
        tokenizer.post_processor = processors.TemplateProcessing(one, two, list(around.values()))
    return tokenizer


def _adds(file: GgufFile, name: str) -> bool:
    """Return whether texts get the ``bos`` or ``eos`` token around them; llama.cpp's default where it is not stated."""
    metadata = file.metadata
    begins = metadata.get("tokenizer.ggml.model") == "llama" or metadata.get("tokenizer.ggml.pre") in _BEGINS
    stated = metadata.get(f"tokenizer.ggml.add_{name}_token", begins and name == "bos")
    return bool(stated) and f"tokenizer.ggml.{name}_token_id" in metadata


def _byte_level(file: GgufFile, tokens: list[str]) -> Tokenizer:
    from tokenizers import Tokenizer, decoders, models

    split = file.metadata.get("tokenizer.ggml.pre")
    merges = [tuple(merge.split(" ", 1)) for merge in file.metadata.get("tokenizer.ggml.merges", [])]
    vocab = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab, merges, ignore_merges=split in _WHOLE_WORDS))
    tokenizer.pre_tokenizer = _pre_tokenizer(file.path.name, split)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _pre_tokenizer(name: str, split: str | None) -> pre_tokenizers.PreTokenizer:
    from tokenizers import Regex, pre_tokenizers

    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if split in _GPT2:
        return gpt2
    if split in _GPT2_DIGITS:
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt2])
    if split in _SPLITS:
        words = pre_tokenizers.Split(Regex(_SPLITS[split]), behavior="isolated")
        return pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    raise ModelError(f"{name} cannot be converted: its pre-tokenizer is {split!r}, which is not known here")


def _sentencepiece(file: GgufFile, tokens: list[str]) -> Tokenizer:
    from tokenizers import Tokenizer, decoders, models, normalizers

    metadata = file.metadata
    unknown = metadata.get("tokenizer.ggml.unknown_token_id")
    model = models.BPE(
        {token: i for i, token in enumerate(tokens)},
        _merges(file, tokens),
        unk_token=None if unknown is None else tokens[unknown],
        fuse_unk=True,
        byte_fallback=True,
    )
    tokenizer = Tokenizer(model)
    prefixed = metadata.get("tokenizer.ggml.add_space_prefix", True)
    normalizer: list[Any] = [normalizers.Prepend("▁")] if prefixed else []
    tokenizer.normalizer = normalizers.Sequence([*normalizer, normalizers.Replace(" ", "▁")])
    strip: list[Any] = [decoders.Strip(" ", 1, 0)] if prefixed else []
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    tokenizer.decoder = decoders.Sequence(parts)
    return tokenizer


def _merges(file: GgufFile, tokens: list[str]) -> list[tuple[str, str]]:
    """Return the merges that a SentencePiece vocabulary implies: every split of a piece in two, best score first."""
    scores = file.metadata.get("tokenizer.ggml.scores")
    if scores is None or len(scores) != len(tokens):
        raise ModelError(f"{file.path.name} cannot be converted: its tokenizer has no scores")
    types = file.metadata.get("tokenizer.ggml.token_type") or [1] * len(tokens)
    pieces = {
        token: score
        for token, score, of_type in zip(tokens, scores, types, strict=True)
        if of_type not in (_UNKNOWN, _CONTROL, _BYTE)
    }
    splits = [
        (-score, piece[:i], piece[i:])
        for piece, score in pieces.items()
        for i in range(1, len(piece))
        if piece[:i] in pieces and piece[i:] in pieces
    ]
    return [(left, right) for _, left, right in sorted(splits, key=lambda split: split[0])]
