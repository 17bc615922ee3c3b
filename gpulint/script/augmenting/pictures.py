"""What is known of an image that code of a dataset handles: its layout and values."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index.walk import dotted
from gpulint.script.augmenting.image_operations import FUNCTIONAL, TORCHVISION

if TYPE_CHECKING:
    from gpulint.script.model import Script

BYTES = 255
_TO_TENSOR = ("ToTensor", "to_tensor")
_AS_TENSOR = ("PILToTensor", "pil_to_tensor", "ToImage", "to_image")
_SHIFTING = ("Normalize", "normalize")
_SAME = frozenset(
    "numpy.ascontiguousarray torch.from_numpy torch.tensor torch.as_tensor "
    "numpy.float32".split()
)
_ARRAYS = ("numpy.array", "numpy.asarray")
# What gives an image another size: never behind an operation, the runtime's last.
_SIZING = frozenset(
    "Resize resize CenterCrop center_crop crop resized_crop RandomCrop "
    "RandomResizedCrop".split()
)
_WIDER = ("float", "double", "half")  # methods that make floats of bytes
_RETYPED = ("long", "int", "bool", "astype", "to", "type")
_KEPT = ("copy", "contiguous", "clone")
_CONVERTED = {"RGB": 3, "L": 1}


class Picture(NamedTuple):
    """What is known of a variable's value; all fields empty: nothing.

    `layout`: "pil", "hw", "hwc" or "chw". `values`: "bytes", "wide" (floats up to 255)
    or "unit" (0 to 1). `shifted`: black may not be 0. `done`: the operations it went
    through, by number.
    """

    layout: str = ""
    channels: int = 0
    values: str = ""
    shifted: bool = False
    done: tuple[int, ...] = ()


UNKNOWN = Picture()


class Pictures:
    """Follows images through expressions that treat every pixel alike."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.evaluator = script.evaluator

    def of(self, node: ast.expr, known: dict[str, Picture]) -> Picture:
        """What an expression is, for what is known of the variables in it."""
        if isinstance(node, ast.Name):
            return known.get(node.id, UNKNOWN)
        if isinstance(node, ast.BinOp):
            return self._computed(node, known)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            return self._compared(node, known)
        if isinstance(node, ast.Subscript):
            return self._cut(node, known)
        if isinstance(node, ast.Call):
            return self._called(node, known)
        return UNKNOWN

    def _called(self, call: ast.Call, known: dict[str, Picture]) -> Picture:
        name = self.script.index.qualified(call.func) or ""
        made = self._opened(call, name)
        if made is not None:
            return made
        first = self.of(call.args[0], known) if call.args else UNKNOWN
        if name.startswith(FUNCTIONAL):
            return self._transformed(first, name.rpartition(".")[2])
        if name in _ARRAYS:
            return _as_array(first)
        if name in _SAME:
            wide = name == "numpy.float32" and first.values == "bytes"
            return first._replace(values="wide") if wide else first
        if name == "numpy.transpose":
            return self._turned(first, call.args[1:])
        if name == "numpy.expand_dims":
            return self._with_channel(first, call.args[1:])
        if name == "cv2.resize" and not first.done:
            return first
        if name == "cv2.cvtColor":
            return self._recoloured(first, call)
        if isinstance(call.func, ast.Attribute) and not call.keywords:
            receiver = self.of(call.func.value, known)
            if receiver != UNKNOWN:
                return self._method(receiver, call.func.attr, call.args)
        for operation in self._applied(call.func):
            first = self._transformed(first, operation)
        return first if self._applied(call.func) else UNKNOWN

    def _opened(self, call: ast.Call, name: str) -> Picture | None:
        """An image that is read from a file."""
        if name == "PIL.Image.open":
            return Picture("pil", values="bytes")
        if name != "cv2.imread":
            return None
        if len(call.args) == 1 and not call.keywords:
            return Picture("hwc", 3, "bytes")
        flag = (dotted(call.args[-1]) or "").rpartition(".")[2]
        grey = flag == "IMREAD_GRAYSCALE" or ast.unparse(call.args[-1]) == "0"
        if grey:
            return Picture("hw", 1, "bytes")
        return Picture("hwc", 3, "bytes") if flag == "IMREAD_COLOR" else UNKNOWN

    def _applied(self, func: ast.expr) -> list[str]:
        """The operations of torchvision that a callable does: `self.to_tensor`."""
        found: list[str] = []
        origins = self.script.resolver.origins(func)
        for call in [o.call for o in origins] if len(origins) == 1 else []:
            name = self.script.index.qualified(call.func) or "" if call else ""
            last = name.rpartition(".")[2]
            if call is None or not name.startswith(TORCHVISION):
                return []
            listed = call.args[0] if last == "Compose" and call.args else None
            if isinstance(listed, ast.List):
                parts = [
                    self.script.index.qualified(getattr(n, "func", None)) or ""
                    for n in listed.elts
                ]
                if not all(p.startswith(TORCHVISION) for p in parts):
                    return []
                found += [p.rpartition(".")[2] for p in parts]
            else:
                found.append(last)
        return found

    def _transformed(self, picture: Picture, operation: str) -> Picture:
        if operation in _TO_TENSOR:
            values = "unit" if picture.values == "bytes" else ""
            return picture._replace(layout="chw", values=values)
        if operation in _AS_TENSOR:
            return picture._replace(layout="chw")
        if operation in _SHIFTING:
            return picture._replace(shifted=True)
        if operation in _SIZING and not picture.done:
            return picture
        return UNKNOWN

    def _method(self, picture: Picture, name: str, args: list[ast.expr]) -> Picture:
        if name == "convert" and picture.layout == "pil" and len(args) == 1:
            mode = self.evaluator.constant(args[0])
            channels = _CONVERTED.get(mode) if isinstance(mode, str) else None
            return picture._replace(channels=channels) if channels else UNKNOWN
        sized = name in ("resize", "crop") and picture.layout == "pil"
        if name in _KEPT or (sized and not picture.done):
            return picture
        if name in _WIDER:
            wide = picture.values == "bytes"
            return picture._replace(values="wide") if wide else picture
        if name in _RETYPED:
            return picture._replace(values="")
        if name in ("transpose", "permute"):
            return self._turned(picture, args)
        if name == "unsqueeze":
            return self._with_channel(picture, args)
        if name == "div":
            return self._divided(picture, args[0]) if len(args) == 1 else UNKNOWN
        return UNKNOWN

    def _turned(self, picture: Picture, args: list[ast.expr]) -> Picture:
        """Channels first: `image.transpose(2, 0, 1)`."""
        text = ", ".join(map(ast.unparse, args)).strip("()[]")
        if picture.layout == "hwc" and text == "2, 0, 1":
            return picture._replace(layout="chw")
        return UNKNOWN

    def _with_channel(self, picture: Picture, args: list[ast.expr]) -> Picture:
        if picture.layout == "hw" and list(map(ast.unparse, args)) == ["0"]:
            return picture._replace(layout="chw", channels=1)
        return UNKNOWN

    def _recoloured(self, picture: Picture, call: ast.Call) -> Picture:
        code = (dotted(call.args[1]) or "") if len(call.args) == 2 else ""
        if picture.layout != "hwc":
            return UNKNOWN
        if code.endswith(("2RGB", "2BGR")):
            return picture
        grey = code.endswith("2GRAY")
        return picture._replace(layout="hw", channels=1) if grey else UNKNOWN

    def _cut(self, node: ast.Subscript, known: dict[str, Picture]) -> Picture:
        """`mask[None]`, and `image[:, :, ::-1]`: the order of the colours."""
        picture = self.of(node.value, known)
        text = ast.unparse(node.slice).strip("()")
        if text in ("None", "np.newaxis") and picture.layout == "hw":
            return picture._replace(layout="chw", channels=1)
        if text in (":, :, ::-1", "..., ::-1") and picture.layout == "hwc":
            return picture
        return UNKNOWN

    # Arithmetic with numbers

    def _computed(self, node: ast.BinOp, known: dict[str, Picture]) -> Picture:
        picture, number = self.of(node.left, known), node.right
        swaps = isinstance(node.op, (ast.Add, ast.Mult))
        if picture == UNKNOWN and swaps:
            picture, number = self.of(node.right, known), node.left
        if picture == UNKNOWN or not self._is_number(number):
            return UNKNOWN
        if isinstance(node.op, ast.Div):
            return self._divided(picture, number)
        if isinstance(node.op, ast.Mult):
            return picture._replace(values="")
        if isinstance(node.op, (ast.Add, ast.Sub)):
            return picture._replace(values="", shifted=True)
        return UNKNOWN

    def _divided(self, picture: Picture, number: ast.expr) -> Picture:
        scales = self.evaluator.constant(number) == BYTES
        if not self._is_number(number):
            return UNKNOWN
        unit = scales and picture.values in ("bytes", "wide")
        return picture._replace(values="unit" if unit else "")

    def _is_number(self, node: ast.expr) -> bool:
        value = self.evaluator.constant(node)
        return isinstance(value, int | float)

    def _compared(self, node: ast.Compare, known: dict[str, Picture]) -> Picture:
        """`mask > 0`: black stays black."""
        picture = self.of(node.left, known)
        limit = self.evaluator.constant(node.comparators[0])
        if picture == UNKNOWN or not isinstance(limit, int | float):
            return UNKNOWN
        black = isinstance(node.ops[0], ast.Gt) and limit >= 0
        return picture._replace(values="", shifted=picture.shifted or not black)


def _as_array(picture: Picture) -> Picture:
    """What `np.array(image)` gives of Pillow's image, or of an array or tensor."""
    if picture.layout != "pil":
        return picture
    layout = {1: "hw", 3: "hwc"}.get(picture.channels)
    return picture._replace(layout=layout) if layout else UNKNOWN
