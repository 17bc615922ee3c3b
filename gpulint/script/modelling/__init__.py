"""Models: which there are, how large their work is, what they do it with.

`models`, `model_size`, `layer_sizes`, `step_inputs`, `flattened`, `given_parts`,
`network`, `networks`, `deep_networks`, `graphs`, `operators`, `attention`,
`few_scores`, `written_sizes`, `frozen`, `surely_made`; one topic each: `compilable`,
`compiled`, `compiled_in_place` (GPU501), `autotuning` (502), `memory_formats` (503),
`written_attention` (505), `idle_biases` (506), `debug_modes` (507).
"""
