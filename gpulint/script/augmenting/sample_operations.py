"""Augmentations that code does to one image, as parameters of the runtime's."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index.build import last_name
from gpulint.index.walk import dotted
from gpulint.script.augmenting.image_operations import FUNCTIONAL
from gpulint.script.reaching.drawn import Drawn, Numbers, deviation

if TYPE_CHECKING:
    from gpulint.script.model import Script

HORIZONTAL, VERTICAL = "horizontal_flip", "vertical_flip"
FLIPS = (HORIZONTAL, VERTICAL)
# The order in which `runtime.augmentation` does them.
ORDER = (*FLIPS, "rotation_degrees", "brightness", "contrast", "noise")
GEOMETRY = frozenset(ORDER[:3])
_NAMED_FLIPS = {
    "numpy.fliplr": HORIZONTAL,
    "numpy.flipud": VERTICAL,
    "PIL.ImageOps.mirror": HORIZONTAL,
    "PIL.ImageOps.flip": VERTICAL,
}
_FUNCTIONAL_FLIPS = {
    "hflip": HORIZONTAL,
    "horizontal_flip": HORIZONTAL,
    "vflip": VERTICAL,
    "vertical_flip": VERTICAL,
}
_PILLOW_FLIPS = {"FLIP_LEFT_RIGHT": HORIZONTAL, "FLIP_TOP_BOTTOM": VERTICAL}
_ADJUSTED = {"adjust_brightness": "brightness", "adjust_contrast": "contrast"}
_ENHANCED = {
    "PIL.ImageEnhance.Brightness": "brightness",
    "PIL.ImageEnhance.Contrast": "contrast",
}
# Which axis is which side, by the layout of an image: rows, columns, channels.
AXES = {
    "hw": {0: VERTICAL, 1: HORIZONTAL, -2: VERTICAL, -1: HORIZONTAL},
    "hwc": {0: VERTICAL, 1: HORIZONTAL, -3: VERTICAL, -2: HORIZONTAL},
    "chw": {1: VERTICAL, 2: HORIZONTAL, -2: VERTICAL, -1: HORIZONTAL},
}
_COPIES = ("copy", "contiguous", "clone")
_LIMITS = ("clip", "clamp", "astype")  # what follows a change of colours
# What torchvision's functions, Pillow's methods and the runtime all do alike.
_INTERPOLATIONS = {"NEAREST": "nearest", "BILINEAR": "bilinear"}


class Change(NamedTuple):
    """What an expression does to one image.

    `kind` is the parameter of `runtime.augmentation`; `drawn` what it depends on, None
    for a flip. `exact` is whether the runtime does the same; `interpolation` that of a
    rotation.
    """

    kind: str
    image: str
    drawn: Drawn | None = None
    exact: bool = True
    interpolation: str | None = None


class Changes:
    """Recognises what expressions do to an image that a variable holds."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.numbers = Numbers(script)

    def of(self, node: ast.expr, layouts: dict[str, str]) -> Change | None:
        """The change, where an expression is nothing else but one.

        `layouts` of variables: "pil", "hw", "hwc", "chw" or "".
        """
        node, limited = self._peeled(node)
        if isinstance(node, ast.Subscript):
            return self._reversed(node, layouts)
        if isinstance(node, ast.BinOp):
            return self._computed(node)
        if not isinstance(node, ast.Call):
            return None
        found = self._called(node, layouts)
        return found._replace(exact=False) if found and limited else found

    def _peeled(self, node: ast.expr) -> tuple[ast.expr, bool]:
        """The expression in `np.ascontiguousarray(…)`, `….copy()`, `np.clip(…)`."""
        limited = False
        while isinstance(node, ast.Call):
            name = self.script.index.qualified(node.func) or ""
            last = last_name(node)
            method = isinstance(node.func, ast.Attribute) and not name.startswith(
                ("numpy.", "torch.")
            )
            copies = last in _COPIES and method and not node.args
            limits = last in _LIMITS
            if name == "numpy.ascontiguousarray" or (limits and not method):
                node = node.args[0] if node.args else ast.Constant(None)
            elif copies or limits:
                assert isinstance(node.func, ast.Attribute)
                node = node.func.value
            else:
                break
            limited = limited or limits
        return node, limited

    # Flips

    def _reversed(self, node: ast.Subscript, layouts: dict[str, str]) -> Change | None:
        """`image[:, ::-1]`."""
        image = node.value
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        turned = [i for i, part in enumerate(parts) if ast.unparse(part) == "::-1"]
        others = [p for i, p in enumerate(parts) if i not in turned]
        whole = {":", "...", "Ellipsis"}
        if not isinstance(image, ast.Name) or len(turned) != 1:
            return None
        if any(ast.unparse(part) not in whole for part in others):
            return None
        axis = turned[0]
        if others and ast.unparse(parts[0]) in ("...", "Ellipsis"):
            axis -= len(parts)
        return self._along(image, axis, layouts)

    def _along(
        self, image: ast.expr, axis: object, layouts: dict[str, str]
    ) -> Change | None:
        if not isinstance(image, ast.Name) or not isinstance(axis, int):
            return None
        side = AXES.get(layouts.get(image.id, ""), {}).get(axis)
        return Change(side, image.id) if side else None

    def _called(self, call: ast.Call, layouts: dict[str, str]) -> Change | None:
        name = self.script.index.qualified(call.func) or ""
        if name in _NAMED_FLIPS:
            return self._flip(call, _NAMED_FLIPS[name], layouts)
        if name.startswith(FUNCTIONAL):
            return self._functional(call, name.rpartition(".")[2])
        if name in ("numpy.flip", "torch.flip"):
            image = call.args[0] if call.args else None
            return self._along(image, self._axis(call, 1), layouts) if image else None
        if name == "cv2.flip" and len(call.args) == 2:
            side = self.script.evaluator.constant(call.args[1])
            kind = {1: HORIZONTAL, 0: VERTICAL}.get(side if type(side) is int else -1)
            return self._flip(call, kind, layouts) if kind else None
        if isinstance(call.func, ast.Attribute):
            return self._method(call, call.func, layouts)
        return None

    def _flip(
        self, call: ast.Call, kind: str, layouts: dict[str, str]
    ) -> Change | None:
        """A function whose name says the side, for rows and columns first."""
        image = call.args[0] if call.args else None
        if not isinstance(image, ast.Name) or layouts.get(image.id) == "chw":
            return None
        return Change(kind, image.id, exact=layouts.get(image.id, "") != "")

    def _axis(self, call: ast.Call, position: int) -> object:
        """The one axis that `flip` is given: `1`, `(1,)`, `dims=[-1]`."""
        given = call.args[position:] + [
            k.value for k in call.keywords if k.arg in ("axis", "dims")
        ]
        node = given[0] if len(given) == 1 else None
        if isinstance(node, (ast.List, ast.Tuple)):
            node = node.elts[0] if len(node.elts) == 1 else None
        return self.script.evaluator.constant(node) if node is not None else None

    def _method(
        self, call: ast.Call, func: ast.Attribute, layouts: dict[str, str]
    ) -> Change | None:
        image = func.value
        if func.attr == "flip":
            return self._along(image, self._axis(call, 0), layouts)
        if func.attr == "transpose" and len(call.args) == 1:
            side = (dotted(call.args[0]) or "").rpartition(".")[2]
            named = isinstance(image, ast.Name) and side in _PILLOW_FLIPS
            return Change(_PILLOW_FLIPS[side], image.id) if named else None  # type: ignore[attr-defined]
        if func.attr == "enhance" and isinstance(image, ast.Call):
            kind = _ENHANCED.get(self.script.index.qualified(image.func) or "")
            return self._with_number(image, kind, call.args[:1]) if kind else None
        pillow = isinstance(image, ast.Name) and layouts.get(image.id) == "pil"
        if func.attr == "rotate" and pillow:
            return self._rotation(image, call.args, call.keywords)
        return None

    # Rotations and colours

    def _functional(self, call: ast.Call, last: str) -> Change | None:
        image = call.args[0] if call.args else None
        if not isinstance(image, ast.Name):
            return None
        if last in _FUNCTIONAL_FLIPS:
            return Change(_FUNCTIONAL_FLIPS[last], image.id)
        if last in _ADJUSTED:
            number = [*call.args[1:], *(k.value for k in call.keywords)]
            return self._with_number(call, _ADJUSTED[last], number[:1])
        if last == "rotate":
            return self._rotation(image, call.args[1:], call.keywords)
        return None

    def _with_number(
        self, call: ast.Call, kind: str, given: list[ast.expr]
    ) -> Change | None:
        image = call.args[0] if call.args else None
        drawn = self.numbers.read(given[0]) if given else None
        if not isinstance(image, ast.Name) or drawn is None or drawn.low < 0:
            return None
        return Change(kind, image.id, drawn, exact=not drawn.whole)

    def _rotation(
        self, image: ast.expr, args: list[ast.expr], keywords: list[ast.keyword]
    ) -> Change | None:
        given = {k.arg: k.value for k in keywords}
        angle = args[0] if args else given.pop("angle", None)
        if len(args) > 1:
            given["resample"] = args[1]
        drawn = self.numbers.read(angle) if angle is not None else None
        if drawn is None or not isinstance(image, ast.Name):
            return None
        how = given.pop("interpolation", None) or given.pop("resample", None)
        last = "NEAREST" if how is None else (dotted(how) or "").rpartition(".")[2]
        interpolation = _INTERPOLATIONS.get(last)
        exact = interpolation is not None and not given and len(args) < 3
        return Change(
            "rotation_degrees",
            image.id,
            drawn,
            exact=exact and not drawn.whole,
            interpolation=interpolation,
        )

    def _computed(self, node: ast.BinOp) -> Change | None:
        """`image * factor` and `image + noise`."""
        for image, other in ((node.left, node.right), (node.right, node.left)):
            if not isinstance(image, ast.Name) or not hasattr(other, "lineno"):
                continue  # of `image *= factor`, the image that is made up
            if isinstance(node.op, ast.Mult):
                drawn = self.numbers.read(other)
                if drawn is not None and drawn.call is not None and drawn.low >= 0:
                    return Change("brightness", image.id, drawn, exact=False)
            if isinstance(node.op, ast.Add):
                spread = deviation(self.script, other)
                if spread is not None:
                    return Change("noise", image.id, spread, exact=False)
        return None
