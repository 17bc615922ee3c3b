"""Loaders: their options, workers and batches, and what keeps them from being faster.

- what there is: `loaders`, `loader_classes`, `loader_options`, `prepared`; `epochs` and
  `rare_passes`: how often one is iterated; `training_loaders`, `training_batches`
- workers: `serial` (GPU201), `reuse` and `kept_workers` (203), `unguarded` (204, 210),
  `worker_state`, `held` and `changes`: what they would not see, `worker_threads` (802)
- pinned memory: `pinning`, `pin_conditions`, `batches_taken`, `unread`, `few_batches`,
  `batch_objects`, `beyond`, `pageable`, `handed_batches` (102, 202), `batch_parts`
- one topic each: `requests` (201), `rebuilt` (205), `collation`, `ragged` (209),
  `in_memory` (211), `illegal_options` (212), `evaluation_batches` (402),
  `trained_dataset`
"""
