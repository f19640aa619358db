from __future__ import annotations

from typing import Any

import pytest

from fxload._errors import UsageError
from fxload.checkpoint import Selection, TensorInfo

NAMES = [
    "model.embed.weight",
    "model.layers.0.mlp.weight",
    "model.layers.0.mlp.bias",
    "lm_head",
    "",
]


def picked(selection: Selection) -> list[str]:
    chosen = [name for name in NAMES if selection.wants(name)]
    tensors = [TensorInfo(name, "U8", (), 0, 1) for name in NAMES]
    assert [tensor.name for tensor in selection.pick(tensors)] == chosen
    return chosen


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, NAMES),
        ({"include": ("*",)}, NAMES),
        ({"include": ("*.weight",)}, NAMES[:2]),
        ({"include": ("*.bias", "lm_*")}, NAMES[2:4]),
        ({"exclude": ("model.*",)}, NAMES[3:]),
        ({"include": ("model.*",), "exclude": ("*.bias",)}, NAMES[:2]),
        ({"include": ("*.LAYERS.*",)}, []),
        ({"include": ("layers.0",)}, []),
        ({"include": ("model.layers.[0-9].mlp.bia?",)}, NAMES[2:3]),
        ({"predicate": lambda name: "mlp" in name}, NAMES[1:3]),
        ({"predicate": lambda name: "mlp" in name, "exclude": ["*.bias"]}, NAMES[1:2]),
        ({"include": ("",)}, [""]),
    ],
)
def test_names_are_chosen(options: dict[str, Any], expected: list[str]) -> None:
    assert picked(Selection(**options)) == expected


def test_everything_says_whether_nothing_can_be_refused() -> None:
    assert Selection().everything
    assert Selection(include=(), exclude=()).everything
    for options in ({"include": ("*",)}, {"exclude": ("x",)}, {"predicate": bool}):
        assert not Selection(**options).everything


@pytest.mark.parametrize(
    "options", [{"include": "*.weight"}, {"exclude": "a"}, {"include": (1,)}, {"predicate": "*"}]
)
def test_a_text_in_place_of_a_list_is_a_mistake(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Selection(**options)


def test_an_error_of_the_callers_function_reaches_the_caller() -> None:
    selection = Selection(predicate=lambda name: 1 // 0 > 0)
    with pytest.raises(ZeroDivisionError):
        selection.wants("a")
