"""Which callees are models or losses, by how they are made or by their names."""

from __future__ import annotations

import ast
import re

from gpulint.index.resolve import Resolver
from gpulint.index.walk import FUNCTIONS, dotted

# Classes that are loaded as models are, and are none.
_NO_MODEL = re.compile(r"[Tt]okenizer|[Pp]rocessor|Config|Extractor|Scheduler\b")
# Packages that run models which are no modules of torch any more.
_ENGINES = frozenset("openvino onnxruntime tensorrt tflite_runtime".split())
_MODULE_NAME = re.compile(
    r"^(?!_?(?:unwrap|get|build|load|make|create|save|init|setup|prepare)_)"
    r"_?(model\w*|net\w*|\w*_?(model|net|network|module|loss|loss_fn|loss_func|"
    r"criterion|encoder|decoder|backbone|generator|discriminator|critic|actor|policy|"
    r"classifier|head|embedder|student|teacher|transformer|layer|unet|vae|gan|cnn|rnn|"
    r"lstm|mlp|resnet|bert|gpt|vgg\w*|embedding|ema|agent)\d?|criterion\w*|loss_\w+|"
    r"criteria|crit|ce|bce|mse|l1|net_?[dg]|[dg]|d_?[ab]|g_?(ab|ba)|loss|objective|"
    r"generator\w*|discriminator\w*|encoder\w*|decoder\w*|self|fc\d*|conv\d*)$",
    re.IGNORECASE,
)


class Modules:
    """Modules (`torch.nn.Module`) among the callees, calls and classes of one file."""

    def __init__(self, resolver: Resolver) -> None:
        self.resolver = resolver
        self.index = resolver.index

    def is_module(self, callee: ast.expr) -> bool:
        """Whether a callee is a model or loss, by how it is made or by its name."""
        if isinstance(callee, ast.Subscript):
            callee = callee.value
        origins = self.resolver.origins(callee)
        for origin in origins:
            made = origin.call
            while made is not None and not self.makes_module(made):
                made = self._passed_through(made)
            if made is not None:
                return True
        if origins and all(isinstance(o.node, FUNCTIONS) for o in origins):
            return False
        if origins and all(self._is_of_engine(o.call) for o in origins):
            return False
        name = (dotted(callee) or "").rpartition(".")[2]
        return (
            bool(name and _MODULE_NAME.match(name))
            and name not in self.index.home(callee).imports
        )

    def _is_of_engine(self, call: ast.Call | None) -> bool:
        """`openvino.compile_model(model)`, what an engine of its own runs."""
        name = self.index.qualified(call.func) if call is not None else None
        return (name or "").partition(".")[0] in _ENGINES

    @staticmethod
    def _passed_through(call: ast.Call) -> ast.Call | None:
        """`Net()` of `Net().to(device)`."""
        passes = isinstance(call.func, ast.Attribute) and call.func.attr in (
            "to", "cuda", "train", "eval", "float", "half", "double", "apply",
            "requires_grad_",
        )  # fmt: skip
        inner = call.func.value if passes else None  # type: ignore[attr-defined]
        return inner if isinstance(inner, ast.Call) else None

    def makes_module(self, call: ast.Call) -> bool:
        """Whether a call constructs an `nn.Module` (or wraps one)."""
        name = self.index.qualified(call.func) or ""
        if name.startswith(("torch.nn.", "torchvision.models.", "timm.create_model")):
            return not name.startswith(("torch.nn.functional.", "torch.nn.utils."))
        if name in ("torch.compile", "torch.jit.script", "torch.hub.load"):
            return True
        if name.endswith((".from_pretrained", ".from_config")):
            return _NO_MODEL.search(name) is None
        owner = self.resolver.classes.named(call.func)
        return owner is not None and self.is_module_class(owner)

    def is_module_class(self, owner: ast.ClassDef) -> bool:
        """Whether a class of this file derives from `nn.Module`."""
        names = self.resolver.classes.base_names(owner)
        return any(n.startswith("torch.nn.") or n.endswith("Module") for n in names)
