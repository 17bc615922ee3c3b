"""Which TensorFlow and Keras a script is for, and what it calls their parts."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from gpulint.releases import Version
from gpulint.script.neighbours import run_together

if TYPE_CHECKING:
    from gpulint.script.model import Script

KERAS_3 = (3, 0)
KERAS_OF_TF = (2, 4)  # the first that only hands on what TensorFlow has
TF_WITH_KERAS_3 = (2, 16)
_LEGACY = "TF_USE_LEGACY_KERAS"
_OF_KERAS_3 = tuple(
    f"{of}keras.{part}." for of in ("", "tensorflow.") for part in ("ops", "random")
)
# Arguments and a function that Keras took until 2.3.
_OF_FIRST_KERAS = re.compile(
    r"\b(nb_epoch|samples_per_epoch|nb_val_samples|border_mode|nb_filter)\s*="
    r"|\bimage_dim_ordering\(|\bModel\(\s*inputs?\s*=[^=].*\boutput\s*="
)
_ESTIMATORS = ("tensorflow.estimator.", "tensorflow.compat.v1.estimator.")
PARALLEL_MAPS = (2, 6)
OWN_OPTIMIZATIONS = (2, 11)  # parallel maps and prefetching of its own, by default
AUTOTUNE_FIRST = (1, 13)
AUTOTUNE_SINCE = (2, 4)  # before that it is in tf.data.experimental
# One module under several names: the later ones stand for the first.
_SAME = (
    ("tensorflow.", ("tensorflow.compat.v2.", "tensorflow.python.", "tensorflow.")),
    ("keras.", ("tensorflow.keras.", "tf_keras.", "keras.src.", "keras.api.")),
)
# Only TensorFlow 1 has these, and those who run it know that they do.
_FIRST = frozenset(
    "Session InteractiveSession placeholder ConfigProto GPUOptions "
    "global_variables_initializer get_default_graph".split()
)


def name_of(script: Script, node: ast.AST | None) -> str:
    """`tensorflow.data.Dataset.range`, `keras.layers.Dense`; empty for no name."""
    name = script.index.qualified(node) or ""
    for wanted, others in _SAME:
        for other in others:
            if name.startswith(other):
                name = wanted + name.removeprefix(other)
    return name


def is_for_tf1(script: Script) -> bool:
    """Whether the file has what only TensorFlow 1 runs."""
    names = (*script.index.called_names, *script.index.imported)
    return any(
        f"{name}.".startswith("tensorflow.contrib.")
        or (name.startswith("tensorflow.") and name.rpartition(".")[2] in _FIRST)
        for name in names
    )


def may_have_keras_3(script: Script) -> bool:
    """Whether the newest Keras that the project allows is 3 or later."""
    keras, tensorflow = script.releases("keras"), script.releases("tensorflow")
    old = _below(keras.highest, KERAS_3)
    old = old or _below(tensorflow.highest, TF_WITH_KERAS_3)
    old = old or is_for_tf1(script) or _has_estimators(script)
    return not old and not _wants_keras_2(script)


def needs_first_keras(script: Script) -> bool:
    """Whether the file is for a Keras before 2.4, which is none of TensorFlow's.

    Its project says so, or it calls what only TensorFlow 1 has, on which no later runs.
    That Keras keeps the function that `predict` runs, makes no dataset for it and knows
    no policies of mixed precision.
    """
    if "keras" not in script.index.packages:
        return False
    if _below(script.releases("keras").highest, KERAS_OF_TF):
        return True
    first = {f"tensorflow.{name}" for name in (*_FIRST, "set_random_seed")}
    return any(
        f.source.has(_OF_FIRST_KERAS) or not first.isdisjoint(f.called_names)
        for f in run_together(script)
    )


def surely_has_keras_3(script: Script) -> bool:
    """Whether nothing older can run the file: by its project, or by what it calls."""
    keras, tensorflow = script.releases("keras"), script.releases("tensorflow")
    if keras.lowest is not None and keras.lowest >= KERAS_3:
        return True
    if tensorflow.lowest is not None and tensorflow.lowest >= TF_WITH_KERAS_3:
        return True
    return any(name.startswith(_OF_KERAS_3) for name in script.index.called_names)


def _has_estimators(script: Script) -> bool:
    """Whether the file calls what left TensorFlow with the release that has Keras 3."""
    return any(name.startswith(_ESTIMATORS) for name in script.index.called_names)


def may_have_keras_2(script: Script) -> bool:
    """Whether the project says that it allows a Keras before 3 as well."""
    keras, tensorflow = script.releases("keras"), script.releases("tensorflow")
    if keras.lowest is not None:
        return keras.lowest < KERAS_3
    return _below(tensorflow.lowest, TF_WITH_KERAS_3)


def _below(version: Version | None, limit: Version) -> bool:
    return version is not None and version < limit


def _wants_keras_2(script: Script) -> bool:
    """Whether Keras 2 is asked for by its own package, or by the environment."""
    index = script.index
    if "tf_keras" in index.packages:
        return True
    project = index.project
    if project is not None and project.files and not project.mentions(_LEGACY):
        return False
    program = [index, *run_together(script)]
    return any(_LEGACY in file.source.text for file in program)


def maps_at_once(script: Script) -> bool:
    """Whether the newest TensorFlow that is allowed makes maps parallel itself.

    Those without state: `map_parallelization` is on by default from 2.6 on.
    """
    highest = script.releases("tensorflow").highest
    return highest is None or highest >= PARALLEL_MAPS


def may_optimize_itself(script: Script) -> bool:
    """Whether the newest TensorFlow that is allowed makes batches ahead itself."""
    highest = script.releases("tensorflow").highest
    return highest is None or highest >= OWN_OPTIMIZATIONS


def lacks_autotune(script: Script) -> str | None:
    """Why tf.data may not choose a number itself: an old TensorFlow is allowed."""
    if is_for_tf1(script):
        return "the script is for TensorFlow 1, which may have no `AUTOTUNE`"
    oldest = script.releases("tensorflow").lowest
    if not _below(oldest, AUTOTUNE_FIRST) or oldest is None:
        return None
    release = ".".join(map(str, oldest))
    return f"`AUTOTUNE` needs TensorFlow 1.13, the project allows {release}"


def autotune(script: Script) -> tuple[str, tuple[str, ...]]:
    """Code for the number that tf.data chooses itself, and the import it lacks."""
    tf, imports = script.names.module("tensorflow", "tf")
    old = _below(script.releases("tensorflow").lowest, AUTOTUNE_SINCE)
    return f"{tf}.data.experimental.AUTOTUNE" if old else f"{tf}.data.AUTOTUNE", imports
