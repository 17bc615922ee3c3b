"""Augmentation on the CPU, and how it moves to the batches on the GPU (GPU207, 208).

`augmentations` finds it; `image_operations` and `sample_operations` know what changes
an image and how, `pictures` and `sample_reader` follow it through a dataset's code,
`operation_run` finds statements that do nothing else. `batch_augmentation`,
`hand_augmentation`, `split_transform` and `runtime_augmentation` rewrite it.
"""
