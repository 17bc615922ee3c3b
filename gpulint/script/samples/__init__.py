"""What datasets do for each sample, and how many and how large the samples are.

`datasets` is what a loader asks, with `reachable`, `lasting_changes` and `not_shared`;
`dataset_options`, `sample_ways` and `sample_device` say which way a sample is made,
`generated` that the training process makes it. `per_sample`, `sample_reads` and
`slow_samples` are for GPU206, `float_samples` for 208, `repeated_samples` for 212,
`remote_samples` for 603, `downloads` for 605, `tokenized` for 262 and 263; sizes:
`dataset_size`, `sample_size`, `small_samples`, `picture_sizes`.
"""
