"""load_into: torch's rules for state, judged before the module is touched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import fxload
from fxload.module import load_into

if TYPE_CHECKING:
    from pathlib import Path


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.norm = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 10, bias=False)
        self.head.weight = self.embed.weight


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, dict[str, torch.Tensor]]:
    state = {
        name: torch.randn_like(tensor) if tensor.is_floating_point() else tensor + 3
        for name, tensor in Tied().state_dict().items()
        if name != "head.weight"
    }
    save_file(state, tmp_path / "model.safetensors")
    return tmp_path, state


def check(module: Tied, state: dict[str, torch.Tensor]) -> None:
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, state["embed.weight" if name == "head.weight" else name]), name
    assert module.head.weight is module.embed.weight


def test_copies_into_what_is_there(saved: tuple[Path, dict[str, torch.Tensor]]) -> None:
    path, state = saved
    module = Tied()
    parameter = module.embed.weight
    assert load_into(module, path) == ([], [])
    assert module.embed.weight is parameter
    check(module, state)
    half = Tied().half()
    load_into(half, path)
    assert torch.equal(half.embed.weight, state["embed.weight"].half())


def test_assigns_to_a_module_on_the_meta_device(
    saved: tuple[Path, dict[str, torch.Tensor]],
) -> None:
    path, state = saved
    with torch.device("meta"):
        module = Tied()
    module.norm.weight.requires_grad_(False)
    with pytest.raises(fxload.CheckpointError) as caught:
        load_into(module, path)
    assert caught.value.rule == "meta-tensors"
    assert load_into(module, path, assign=True) == ([], [])
    check(module, state)
    assert isinstance(module.embed.weight, nn.Parameter)
    assert module.embed.weight.requires_grad
    assert not module.norm.weight.requires_grad
    assert not isinstance(module.norm.running_mean, nn.Parameter)


def test_strict_names_what_is_missing_on_either_side(
    saved: tuple[Path, dict[str, torch.Tensor]],
) -> None:
    path, _ = saved
    module = Tied()
    module.extra = nn.Linear(2, 2)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    with pytest.raises(fxload.CheckpointError, match=r"extra\.bias") as caught:
        load_into(module, path)
    assert caught.value.rule == "missing-keys"
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, before[name]), "the module was touched"
    missing, unexpected = load_into(module, path, strict=False)
    assert missing == ["extra.weight", "extra.bias"]
    assert unexpected == []
    with pytest.raises(fxload.CheckpointError) as caught:
        load_into(nn.Embedding(10, 4), path)
    assert caught.value.rule == "missing-keys"


def test_shapes_are_compared_before_anything_is_copied(
    saved: tuple[Path, dict[str, torch.Tensor]],
) -> None:
    path, _ = saved
    module = Tied()
    module.norm = nn.BatchNorm1d(5)
    before = module.embed.weight.clone()
    with pytest.raises(fxload.CheckpointError, match=r"norm\.weight \[4\]") as caught:
        load_into(module, path, strict=False)
    assert caught.value.rule == "shape-mismatch"
    assert torch.equal(module.embed.weight, before)


def test_a_module_with_its_own_way_of_loading_is_asked(
    saved: tuple[Path, dict[str, torch.Tensor]],
) -> None:
    path, state = saved

    class Renamed(Tied):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.zeros(4))
            register: Any = self.register_load_state_dict_pre_hook  # torch leaves it untyped
            register(self._rename)

        @staticmethod
        def _rename(
            module: nn.Module, content: dict[str, torch.Tensor], prefix: str, *_: object
        ) -> None:
            content[prefix + "scale"] = content[prefix + "norm.weight"] * 2
            content[prefix + "head.weight"] = content[prefix + "embed.weight"]

    module = Renamed()
    load_into(module, path)
    assert torch.equal(module.scale, state["norm.weight"] * 2)
