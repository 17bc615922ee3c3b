"""The newest release of a package that can run a program, as its imports need it.

What transformers 5 has no more was read off the wheels of 4.57.6 and 5.24.0, what Keras
2.4 has no more off those of 2.3.1 and 2.4.3; what Keras 3 has no more was tried with
3.15.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index import FileIndex
from gpulint.releases import Version
from gpulint.script.neighbours import run_together
from gpulint.script.reaching.implicit_imports import imports_of

if TYPE_CHECKING:
    from gpulint.script.model import Script

_MODULES = (
    "activations_tf commands convert_graph_to_onnx data.datasets data.metrics "
    "data.processors deepspeed generation.beam_constraints generation.beam_search "
    "generation.tf_utils keras_callbacks modeling_attn_mask_utils "
    "modeling_flax_outputs modeling_flax_utils modeling_tf_outputs modeling_tf_utils "
    "onnx optimization_tf sagemaker tf_utils training_args_tf utils.bitsandbytes "
    "utils.fx utils.model_parallel_utils"
)
_NAMES = (
    "AdamW AutoModelWithLMHead BeamScorer BeamSearchScorer DataCollatorForSOP "
    "DataProcessor GlueDataTrainingArguments GlueDataset HybridCache InputExample "
    "InputFeatures LineByLineTextDataset LineByLineWithRefDataset OffloadedCache "
    "SinkCache SquadDataTrainingArguments SquadDataset SquadExample SquadFeatures "
    "SummarizationPipeline TRANSFORMERS_CACHE Text2TextGenerationPipeline TextDataset "
    "TextDatasetForNextSentencePrediction TranslationPipeline deepspeed "
    "glue_compute_metrics glue_convert_examples_to_features glue_output_modes "
    "glue_processors glue_tasks_num_labels is_flax_available is_tf_available "
    "is_torch_tpu_available squad_convert_examples_to_features"
)
_OF_KERAS = (
    "engine layers.advanced_activations layers.convolutional layers.core "
    "layers.cudnn_recurrent layers.embeddings layers.experimental layers.merge "
    "layers.noise layers.normalization layers.pooling layers.recurrent layers.wrappers "
    "layers.CuDNNGRU layers.CuDNNLSTM mixed_precision.experimental objectives "
    "preprocessing.text utils.conv_utils utils.data_utils utils.generic_utils "
    "utils.io_utils utils.multi_gpu_model utils.np_utils utils.training_utils "
    "utils.vis_utils wrappers.scikit_learn backend.tensorflow_backend"
)
_OF_FIRST_KERAS = "legacy.interfaces legacy.layers backend.tensorflow_backend"
# What is gone, and the last releases that may have it, the oldest first. Before 1.0,
# huggingface_hub is what transformers 4 runs with. Keras 2.4 is TensorFlow's.
GONE: dict[str, list[tuple[Version, frozenset[str]]]] = {
    "transformers": [
        (
            (4, 57),
            frozenset(f"transformers.{n}" for n in f"{_MODULES} {_NAMES}".split())
            | {"huggingface_hub.HfFolder", "huggingface_hub.Repository"},
        )
    ],
    "keras": [
        ((2, 3), frozenset(f"keras.{name}" for name in _OF_FIRST_KERAS.split())),
        (
            (2, 15),
            frozenset(
                f"{package}.{name}"
                for package in ("keras", "tensorflow.keras")
                for name in _OF_KERAS.split()
            )
            | {"keras_contrib"},
        ),
    ],
}
# How names begin that are gone as well.
_BEGINNINGS = {"transformers": ("transformers.TF", "transformers.Flax")}


def newest_by_imports(script: Script, package: str) -> Version | None:
    """The last release that has all that a program imports whenever it starts."""
    begins = _BEGINNINGS.get(package, ())
    for last, gone in GONE.get(package, ()):
        if any(_needs(index, gone, begins) for index in run_together(script)):
            return last
    return None


def _needs(index: FileIndex, gone: frozenset[str], begins: tuple[str, ...]) -> bool:
    return any(
        name.startswith(begins) or any(part in gone for part in _parts(name))
        for name in imports_of(index)
    )


def _parts(name: str) -> Iterator[str]:
    """`keras.engine.topology`, `keras.engine` and `keras`."""
    while name:
        yield name
        name = name.rpartition(".")[0]
