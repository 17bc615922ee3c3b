"""Programs that train only where no earlier run, or download, has left a checkpoint."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.index.walk import walk

if TYPE_CHECKING:
    from gpulint.script.model import Script

_ASKS = frozenset("isfile exists is_file".split())
_BRINGS = ("urlretrieve", "hf_hub_download", "load_state_dict_from_url", "gdown")


def may_load_instead(script: Script) -> bool:
    """Whether weights are downloaded, and each `fit` runs only where there are none.

    Notebooks of courses do so: `if os.path.isfile(pretrained): load it, else: train`.
    """
    names = " ".join(script.index.called_names)
    if not any(name in names for name in _BRINGS):
        return False
    fits = script.index.calls_by_name.get("fit", ())
    return bool(fits) and all(_is_behind_a_file(script, call) for call in fits)


def _is_behind_a_file(script: Script, call: ast.Call) -> bool:
    tests = [a.test for a in script.index.ancestors(call) if isinstance(a, ast.If)]
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _ASKS
        for test in tests
        for node in walk(test)
    )
