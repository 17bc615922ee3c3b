"""Training steps and evaluations: losses, gradients, optimizers, batch sizes.

`step_calls`, `training_step`, `losses`, `gradients`, `backpropagated`, `update_groups`,
`optimized`, `sides`; `trials` and `trained_before`: what is no training; one topic
each: `small_batches`, `larger_batch`, `batch_size_reasons`, `learning_rates` (GPU401),
`evaluation`, `single_pass` (403), `retained` (404), `zeroing` (405), `fused` (504),
`two_passes`.
"""
