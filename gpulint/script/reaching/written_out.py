"""Classes all of which stands in the project's files, and what they surely lack."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from gpulint.script.reaching.surely_called import is_self

if TYPE_CHECKING:
    from gpulint.script.model import Script

_PLAIN_BASES = ("object", "abc.ABC")
_FINDS_ATTRIBUTES = frozenset(["__getattr__", "__getattribute__"])
_SETS = re.compile(r"\bsetattr\(|\b__dict__\b|\bvars\(|\b__slots__\b")
# Registers what modules have by names that are computed.
_REGISTERS = re.compile(
    r"\b(add_module|register_(module|buffer|parameter))\(\s*(?!\s|['\"])"
)
_MODULE = "torch.nn.Module"
_OF_DATASETS = frozenset("functions register_function".split())
# The attributes that objects have by classes of torch.
_HAVE = {
    "torch.utils.data.Dataset": _OF_DATASETS,
    "torch.utils.data.IterableDataset": _OF_DATASETS,
    _MODULE: frozenset(
        "T_destination add_module apply bfloat16 buffers call_super_init children "
        "compile cpu cuda double dump_patches eval extra_repr float forward get_buffer "
        "get_extra_state get_parameter get_submodule half ipu load_state_dict modules "
        "mtia named_buffers named_children named_modules named_parameters parameters "
        "register_backward_hook register_buffer register_forward_hook "
        "register_forward_pre_hook register_full_backward_hook "
        "register_full_backward_pre_hook register_load_state_dict_post_hook "
        "register_load_state_dict_pre_hook register_module register_parameter "
        "register_state_dict_post_hook register_state_dict_pre_hook requires_grad_ "
        "set_extra_state set_submodule share_memory state_dict to to_empty train "
        "training type xpu zero_grad".split()
    ),
}


def has_no_method(script: Script, func: ast.expr) -> bool:
    """`self.count()`, which neither the class nor a class that derives from it has.

    Nor is it set in any file, or found by a class that looks for attributes itself.
    """
    if not isinstance(func, ast.Attribute) or func.attr.startswith("__"):
        return False
    if not isinstance(func.value, ast.Name) or not is_self(script, func.value):
        return False
    resolver, owner = script.resolver, script.index.owner(func)
    project = script.index.project
    if owner is None or (project is not None and project.writing(func.attr) != []):
        return False
    for heir in (owner, *resolver.outside.descendants(owner)):
        if not is_written_out(script, heir):
            return False
        if func.attr in resolver.classes.methods(heir) or resolver.classes.member(
            heir, func.attr
        ):
            return False
    return True


def is_written_out(
    script: Script, owner: ast.ClassDef, name: str = "", settings: bool = False
) -> bool:
    """Whether all that a class has stands in the files of the project.

    `name`: what is asked for, so that a few bases of torch which have nothing of that
    name do not count. `settings`: also of a class that takes in what a file says.
    """
    resolver, index = script.resolver, script.index
    classes = resolver.classes.bases(owner)
    bases = (b for c in classes for b in c.bases if resolver.classes.named(b) is None)
    outside = {index.qualified(base) or "" for base in bases}
    if not all(_is_plain(base, name) for base in outside):
        return False
    if any(c.decorator_list or not _is_plain_meta(script, c) for c in classes):
        return False
    if not _FINDS_ATTRIBUTES.isdisjoint(resolver.classes.methods(owner)):
        return False
    homes = [index.home(c) for c in classes]
    if _MODULE in outside and any(home.source.has(_REGISTERS) for home in homes):
        return False
    return settings or not any(home.source.has(_SETS) for home in homes)


def _is_plain(base: str, name: str) -> bool:
    """Whether a base outside the project surely has nothing of a name."""
    return base in _PLAIN_BASES or bool(
        name and base in _HAVE and name not in _HAVE[base]
    )


def _is_plain_meta(script: Script, owner: ast.ClassDef) -> bool:
    """Whether a class is made as others are: `metaclass=ABCMeta` is no exception."""
    return all(
        keyword.arg == "metaclass"
        and script.index.qualified(keyword.value) == "abc.ABCMeta"
        for keyword in owner.keywords
    )
