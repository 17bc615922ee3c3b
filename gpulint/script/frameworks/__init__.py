"""Lightning, Hugging Face, TensorFlow with Keras, and MindSpore.

- trainers: `trainer_calls`, `trainers`, `fitted` (what they train), `removed_arguments`
  (GPU357, 364, 366), `trainer_precision` (351, 361, 365)
- Lightning: `lightning`, `lightning_loaders`, `lightning_steps` (151), `lightning_logs`
  (152), `lightning_reads` (153)
- Hugging Face: `hf_trainers`, `hf_models`, `hf_samples` (261)
- TensorFlow and Keras: `tf_names` (which release, and names), `tf_pipelines` and
  `tf_mapped` (271 to 276), `tf_steps` (571), `tf_waits` (171), `tf_policy` (371),
  `tf_batches` (471)
- MindSpore: `ms_pipelines` (datasets, training loops), `ms_workers` (281, 284),
  `ms_batches` (481), `ms_context` (881, 582, 583), `ms_training` (181, 381, 581, 584)
"""
