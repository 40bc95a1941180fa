from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jupyter_infer.errors import ModelError
from jupyter_infer.models._gguf_file import read_gguf
from jupyter_infer.models._gguf_tokenizer import build_tokenizer, write_tokenizer

from .conftest import CHAT, CONTEXT, TOKENS, VOCAB, write_gguf

tokenizers = pytest.importorskip("tokenizers")


def tokenizer(tmp_path: Path, **metadata: Any) -> Any:
    keys = {f"tokenizer.ggml.{key}": value for key, value in metadata.items()}
    return build_tokenizer(read_gguf(write_gguf(tmp_path / "m.gguf", {}, metadata=keys)))


@pytest.mark.parametrize(
    "text", ["hello", "  hello 12  3", "naïve 日本 🎉\n\tx", "<|im_start|>user\nhello<|im_end|>\n"]
)
def test_every_text_comes_back(tmp_path: Path, text: str) -> None:
    built = tokenizer(tmp_path)
    assert built.decode(built.encode(text).ids, skip_special_tokens=False) == text


def test_special_tokens_are_single_ids(tmp_path: Path) -> None:
    built = tokenizer(tmp_path)
    assert built.encode("<|im_start|>hello<|im_end|>").ids == [1, TOKENS.index("hello"), 2]
    assert built.decode([1, TOKENS.index("hello"), 2]) == "hello"
    assert built.get_vocab_size() == VOCAB


def test_user_defined_tokens_are_whole_but_not_special(tmp_path: Path) -> None:
    built = tokenizer(tmp_path, token_type=[3, 3, 3] + [1] * (VOCAB - 7) + [1, 4, 1, 1])
    assert built.encode("xhellx").tokens == ["x", "hell", "x"]
    assert built.decode(built.encode("xhellx").ids) == "xhellx"


@pytest.mark.parametrize(
    ("pre", "tokens"),
    [
        ("smollm", ["x", "ĠĠ", "1", "2"]),  # digits leave the spaces before them alone
        ("gpt-2", ["x", "Ġ", "Ġ", "1", "2"]),
        ("llama-bpe", ["x", "Ġ", "Ġ", "1", "2"]),
        ("tekken", ["x", "Ġ", "Ġ", "1", "2"]),
    ],
)
def test_text_is_split_as_the_file_says(tmp_path: Path, pre: str, tokens: list[str]) -> None:
    assert tokenizer(tmp_path, pre=pre, add_bos_token=False).encode("x  12").tokens == tokens


@pytest.mark.parametrize(
    ("metadata", "ids"),
    [
        ({}, [TOKENS.index("hello")]),
        ({"pre": "llama-bpe"}, [1, TOKENS.index("hello")]),
        ({"pre": "llama-bpe", "add_bos_token": False}, [TOKENS.index("hello")]),
        ({"add_bos_token": True, "add_eos_token": True}, [1, TOKENS.index("hello"), 2]),
    ],
)
def test_what_is_put_around_a_text(tmp_path: Path, metadata: dict[str, Any], ids: list[int]) -> None:
    built = tokenizer(tmp_path, **metadata)
    assert built.encode("hello").ids == ids
    assert built.encode("hello", add_special_tokens=False).ids == [TOKENS.index("hello")]


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"pre": "deepseek-llm"}, "pre-tokenizer is 'deepseek-llm'"),
        ({"pre": None}, "pre-tokenizer is None"),
        ({"model": "t5"}, "kind 't5'"),
        ({"model": "llama"}, "no scores"),
        ({"tokens": None}, "no tokenizer"),
    ],
)
def test_what_is_not_known_is_refused(tmp_path: Path, metadata: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        tokenizer(tmp_path, **metadata)


def test_files(tiny_gguf: Path, tmp_path: Path) -> None:
    write_tokenizer(read_gguf(tiny_gguf), tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert config["chat_template"] == CHAT
    assert (config["bos_token"], config["eos_token"]) == ("<|im_start|>", "<|im_end|>")
    assert config["model_max_length"] == CONTEXT
    assert tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode("hello").ids == [
        TOKENS.index("hello")
    ]


CORPUS = """The quick brown fox jumps over the lazy dog. A tokenizer that is learned from a text knows its words.
She sells sea shells by the sea shore; the shells she sells are surely sea shells. 1 2 3 10 200 3000."""


def test_sentencepiece_ids_are_those_of_sentencepiece(tmp_path: Path) -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    (tmp_path / "corpus.txt").write_text(CORPUS)
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "corpus.txt"),
        model_prefix=str(tmp_path / "sp"),
        model_type="bpe",
        vocab_size=380,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        minloglevel=2,
    )
    reference = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "sp.model"))
    ids = range(reference.get_piece_size())
    built = tokenizer(
        tmp_path,
        model="llama",
        pre="default",
        tokens=[reference.id_to_piece(i) for i in ids],
        scores=[float(reference.get_score(i)) for i in ids],
        token_type=[
            2 if reference.is_unknown(i) else 3 if reference.is_control(i) else 6 if reference.is_byte(i) else 1
            for i in ids
        ],
        unknown_token_id=reference.unk_id(),
    )
    for text in [CORPUS.split("\n")[0], "the shells", " she  sells", "naïve 日本", "10 2000 brown foxes"]:
        assert built.encode(text).ids == [reference.bos_id(), *reference.encode(text)], text
        assert built.decode(built.encode(text).ids) == text
