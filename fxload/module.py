"""Loading a checkpoint into a torch module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from fxload._errors import CheckpointError
from fxload.checkpoint.dtypes import storage_shape
from fxload.loader import open_checkpoint

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

    import torch
    from torch import nn

    from fxload.checkpoint.header import TensorInfo
    from fxload.loader import Checkpoint

__all__ = ["LoadIntoResult", "load_into"]

_MAX_NAMED = 8
_TOLERANT = "load with strict=False to go on without"


class LoadIntoResult(NamedTuple):
    """Names that the module has and the checkpoint lacks, and the other way round."""

    missing_keys: list[str]
    unexpected_keys: list[str]


def load_into(
    module: nn.Module,
    model: str | os.PathLike[str],
    *,
    strict: bool = True,
    assign: bool = False,
    **options: Any,
) -> LoadIntoResult:
    """Load a checkpoint into the parameters and buffers of a module.

    Args:
        module: its state's names must be the checkpoint's; tied weights need one of their names.
        model: as in :func:`fxload.open_checkpoint`.
        strict: raise if a name is missing on either side.
        assign: replace the module's tensors by the loaded ones, keeping the checkpoint's dtype, as
            a module on the meta device needs; otherwise copy into them, converting the dtype.
        options: as in :func:`fxload.open_checkpoint`. ``device`` is by default where the module's
            state lies, if that is one device that fxload loads to; else the host.

    Names and shapes are judged before the module is touched. Raises CheckpointError with the rule
    ``missing-keys``, ``unexpected-keys``, ``shape-mismatch``, ``meta-tensors`` or, from a module
    with hooks of its own, ``state-mismatch``; and what open_checkpoint raises.
    """
    options.setdefault("device", _device_of(module))
    with open_checkpoint(model, **options) as checkpoint:
        if _has_own_loading(module):
            return _ask_module(module, checkpoint, strict=strict, assign=assign)
        state = _state(module)
        result = _compare(state, checkpoint.tensors)
        _judge(result, state, checkpoint, strict=strict, assign=assign)
        for name, tensor in checkpoint:
            aliases = state.get(name)
            if aliases is None:
                continue
            if assign:
                _assign(module, aliases, tensor)
            else:
                _copy(aliases.tensor, tensor)
    return result


def _device_of(module: nn.Module) -> str:
    """Tensors that are loaded beside what they are copied into need not cross the link twice."""
    devices = {
        tensor.device for tensor in module.state_dict(keep_vars=True).values() if not tensor.is_meta
    }
    if len(devices) == 1:
        (device,) = devices
        if device.type in ("cuda", "npu"):
            return str(device)
    return "cpu"


class _Aliases(NamedTuple):
    """One tensor of a module's state, and every name that it goes by."""

    tensor: torch.Tensor
    names: list[str]


def _state(module: nn.Module) -> dict[str, _Aliases]:
    by_tensor: dict[int, _Aliases] = {}
    state = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        aliases = by_tensor.setdefault(id(tensor), _Aliases(tensor, []))
        aliases.names.append(name)
        state[name] = aliases
    return state


def _compare(state: Mapping[str, _Aliases], tensors: Mapping[str, TensorInfo]) -> LoadIntoResult:
    missing = [
        name
        for name, aliases in state.items()
        if not any(alias in tensors for alias in aliases.names)
    ]
    return LoadIntoResult(missing, [name for name in tensors if name not in state])


def _judge(
    result: LoadIntoResult,
    state: Mapping[str, _Aliases],
    checkpoint: Checkpoint,
    *,
    strict: bool,
    assign: bool,
) -> None:
    def refuse(reason: str, names: Iterable[str], rule: str, hint: str | None) -> None:
        listed = sorted(names)
        if not listed:
            return
        shown = ", ".join(listed[:_MAX_NAMED])
        if len(listed) > _MAX_NAMED:
            shown += f" and {len(listed) - _MAX_NAMED} more"
        raise CheckpointError(f"{reason}: {shown}", path=checkpoint.path, rule=rule, hint=hint)

    if strict:
        refuse("the checkpoint lacks", result.missing_keys, "missing-keys", _TOLERANT)
        refuse("the module lacks", result.unexpected_keys, "unexpected-keys", _TOLERANT)
    refuse(
        "shapes differ",
        (
            f"{name} {list(info.shape)} in the checkpoint, {list(state[name].tensor.shape)} here"
            for name, info in checkpoint.tensors.items()
            if name in state
            and storage_shape(info.dtype, info.shape) != tuple(state[name].tensor.shape)
        ),
        "shape-mismatch",
        "the module was made with another configuration",
    )
    if not assign:
        refuse(
            "these have no memory to copy into (meta device)",
            (n for n in checkpoint.tensors if n in state and state[n].tensor.is_meta),
            "meta-tensors",
            "load with assign=True",
        )


def _has_own_loading(module: nn.Module) -> bool:
    """Whether a part renames, merges or converts what it loads; torch's own parts do not."""
    from torch import nn

    return any(
        not type(part)._load_from_state_dict.__module__.startswith("torch.nn.modules.")
        or type(part).set_extra_state is not nn.Module.set_extra_state
        or part._load_state_dict_pre_hooks
        or part._load_state_dict_post_hooks
        for part in module.modules()
    )


def _ask_module(
    module: nn.Module, checkpoint: Checkpoint, *, strict: bool, assign: bool
) -> LoadIntoResult:
    """Torch's way, for modules whose hooks must see the whole state at once."""
    content = dict(checkpoint)
    for name, aliases in _state(module).items():
        for alias in aliases.names:
            if name not in content and alias in content:
                content[name] = content[alias]
    try:
        result = module.load_state_dict(content, strict=strict, assign=assign)
    except RuntimeError as error:
        raise CheckpointError(
            str(error), path=checkpoint.path, rule="state-mismatch", hint=_TOLERANT
        ) from error
    return LoadIntoResult(list(result.missing_keys), list(result.unexpected_keys))


def _copy(target: torch.Tensor, tensor: torch.Tensor) -> None:
    import torch

    with torch.no_grad():
        target.copy_(tensor)


def _assign(module: nn.Module, aliases: _Aliases, tensor: torch.Tensor) -> None:
    from torch import nn

    old = aliases.tensor
    new: torch.Tensor = tensor
    if isinstance(old, nn.Parameter):
        new = nn.Parameter(tensor, requires_grad=old.requires_grad)
    for name in aliases.names:
        parent, _, attribute = name.rpartition(".")
        setattr(module.get_submodule(parent), attribute, new)
