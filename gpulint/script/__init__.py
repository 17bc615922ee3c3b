"""The script model: what a training script is made of, and how to rewrite it.

`Script` (`model`) is what a rule gets. Its facts are found once, in these modules:

- what there is: `loops`, `loaders`, `datasets`, `batches`, `precision`, `losses`,
  `training_step`, `scalars`, `creations`, `models`, `model_size` (with `bounds`),
  `networks`, `operators`, `graphs`, `optimized`, `attention`
- what runs when: `runners`, `every_step`, `branches`, `once`, `given`, `doubtful`,
  `trials`, `switches`, `rare_passes`, `invariants`, `started`, `reuse`, `epochs`,
  `reads`, `trained_before`; `outside`, `neighbours`, `trainers`: what other files do
  with it; `changes`, `mutations`, `worker_state`, `kept_workers`, `held`: what workers
  would not see;
  `backpropagated`: what has a graph; `test_code`: what is no training; `doubts`, with
  `failures`, `left_over`, `unused`, `offered`, `by_name`, `decorators`, `unmoved`,
  `missing_imports`: what no program comes to; `named_calls`: what may be called
- one topic each, for the rule that asks: `columns`, `column_uses`, `column_fates`
  (GPU101), `transfers` (102), `host_arrays`, `residency` (103), `at_creation` (104),
  `hoists`, `module_moves` (105), `waits`, `timed`, `drained`, `members`,
  `accumulators`, `device_sums` (106, 109), `forced` (107), `host_copies` (108),
  `round_trips` (110),
  `serial`, `dataset_size`, `loader_options` (201), `pinning`,
  `collation`, `loader_classes`, `generated`, `sample_size`, `sample_ways`,
  `sample_device`, `batches_taken`, `few_batches`, `batch_objects`, `beyond`,
  `pageable` (202),
  `rebuilt` (205), `augmentations`, `image_operations`, `batch_augmentation` (207),
  `split_transform` (207, 208), `float_samples` (208),
  `per_sample`, `sample_reads`, `slow_samples` (206), `training_loaders` (206, 207),
  `compiled`, `ragged` (209), `unguarded` (204, 210), `illegal_options`,
  `repeated_samples` (212),
  `autocast`, `autocast_region`, `scaled_update`, `half`, `half_outputs`, `beside`,
  `named_devices`, `covered` (301), `old_amp`, `old_torch` with `two_passes` (303),
  `amp_switches`, `amp_guards` (306), `evaluation`, `single_pass` (403), `retained`
  (404), `zeroing`,
  `gradients` (405), `small_batches`, `small_samples`, `picture_sizes`,
  `batch_size_reasons`, `larger_batch`, `learning_rates` (401), `evaluation_batches`
  (402), `compilable`, `compiled_in_place`, `deep_networks`, `placed_models` (501),
  `autotuning` (502), `memory_formats` (503), `fused` (504), `written_attention` (505),
  `idle_biases` (506), `debug_modes` (507), `default_device` (508), `checkpoints`,
  `checkpoint_paths`, `path_parts`, `async_saves` (601, 602), `remote_samples`
  (603), `slow_logs` (604), `downloads` (605), `named_cards` (801), `worker_threads`
  (802), `platforms` (803), `idle` (804), `epoch_figures` (805),
  `trainer_calls` (x5x, x6x), `removed_arguments` (357, 364, 366),
  `trainer_precision` (351, 361, 365), `prepared` (106, 162, 163, 367),
  `setting_values`, `slow_settings`, `illegal_settings`, `debug_switches`,
  `unread_settings`, `mapping_uses` (901–906)
- MindSpore: `ms_pipelines` (datasets, training loops), `ms_workers` (281, 284),
  `ms_batches` (481), `ms_context` (881, 582, 583), `ms_training` (181, 381, 581, 584)
- TensorFlow and Keras: `tf_names` (which release, and names), `tf_pipelines` and
  `tf_mapped` (271–276), `tf_steps` (571), `tf_waits` (171), `tf_policy` (371),
  `tf_batches` (471)
- rewriting: `edits` and `syntax` for rules; `compiler` and `tree` turn edits into text
"""

from __future__ import annotations

from gpulint.script.loaders import Loader
from gpulint.script.loops import Loop
from gpulint.script.model import Script

__all__ = ["Loader", "Loop", "Script"]
