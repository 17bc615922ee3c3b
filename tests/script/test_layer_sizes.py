"""How large a model is, by the layers that its code makes."""

from __future__ import annotations

import ast

import pytest

from gpulint.script.modelling.layer_sizes import Size, made_by
from tests.script.code import with_last

PERCEPTRON = """
def perceptron(given, width):
    layers = [nn.Linear(given, width), nn.ReLU()]
    layers.append(nn.Linear(width, 10))
    return nn.Sequential(*layers)
"""
HOLDER = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = perceptron(20, 30)
        self.norm = nn.GroupNorm(2, 10)
        self.last = nn.Linear(10, 5)
Net()
"""
LISTED = """
layers = [nn.Linear(20, 30)]
layers.append(nn.Linear(30, 10))
nn.Sequential(*layers)
"""


def size_of(text: str) -> Size | None:
    script, node = with_last(text)
    assert isinstance(node, ast.Call)
    return made_by(script, node, 0)


@pytest.mark.parametrize(
    "layer, weights",
    [
        ("nn.Linear(20, 30)", 600),
        ("nn.Conv2d(2, 3, 5)", 150),
        ("nn.Conv2d(2, 3, (1, 9))", 54),
        ("nn.Conv2d(2, 3, kernel_size=[1, 9])", 54),
        ("nn.Conv1d(2, 3, (5,))", 30),
        ("nn.Conv3d(2, 3, 5)", 750),
        ("nn.Sequential(nn.Linear(2, 3), nn.InstanceNorm1d(3), nn.ReLU6())", 6),
    ],
)
def test_layers(layer: str, weights: int) -> None:
    size = size_of(layer)
    assert size is not None
    assert size.weights == weights


ACTIVATED = """
class Net(nn.Module):
    def __init__(self, activation, last=None):
        super().__init__()
        layers = [nn.Linear(20, 30), activation()]
        if last is not None:
            layers.append(last())
        self.layers = nn.Sequential(*layers)
Net({})
"""


@pytest.mark.parametrize(
    "given, weights",
    [("nn.ReLU", 600), ("nn.Tanh, nn.Sigmoid", 600), ("nn.Linear", None)],
)
def test_activations_that_a_class_is_given(given: str, weights: int | None) -> None:
    size = size_of(ACTIVATED.format(given))
    assert (size and size.weights) == weights


@pytest.mark.parametrize("layer", ["nn.Conv2d(2, 3, (1, size))", "nn.Upsample(2)"])
def test_layers_that_are_not_known(layer: str) -> None:
    assert size_of(layer) is None


def test_a_recurrent_cell_is_as_narrow_as_its_state() -> None:
    size = size_of("nn.GRUCell(20, 30)")
    assert size is not None
    assert (size.width, size.tiny) == (30, True)


def test_layers_of_a_function() -> None:
    size = size_of(PERCEPTRON + HOLDER)
    assert size is not None
    assert (size.weights, size.layers) == (20 * 30 + 30 * 10 + 10 * 5, 3)


def test_a_function_that_makes_something_unknown() -> None:
    text = PERCEPTRON.replace("nn.ReLU()", "gate(width)")
    assert size_of(text + HOLDER) is None


def test_a_function_that_makes_no_layer_is_not_known() -> None:
    assert size_of("def chosen():\n    return KNOWN\nchosen()") is None


def test_a_method_is_not_known() -> None:
    method = "\nclass Trainer:\n    def build(self):\n        return nn.Linear(2, 3)\n"
    assert size_of(f"{method}Trainer().build()") is None


def test_layers_in_a_list() -> None:
    size = size_of(LISTED)
    assert size is not None
    assert (size.weights, size.layers) == (20 * 30 + 30 * 10, 2)


@pytest.mark.parametrize(
    "other", ["layers = given", "layers = [block]", "layers = [*blocks]"]
)
def test_layers_in_a_list_that_is_not_known(other: str) -> None:
    assert size_of(LISTED.replace("layers = [nn.Linear(20, 30)]", other)) is None
