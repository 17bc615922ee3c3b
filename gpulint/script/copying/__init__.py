"""Copies between host and device: batches, columns, arrays, models (GPU101 to 110).

`columns`, `column_uses`, `column_fates` (101), `transfers`, `own_moves`, `moved_dicts`,
`next_copies`, `first_waits`, `asked_values` (102), `host_arrays`, `residency` (103),
`creations`, `at_creation` (104), `hoists`, `module_moves` (105), `host_copies` (108),
`round_trips` (110); where models and tensors live: `placed_models`, `unmoved`,
`default_device` (508), `named_devices`, `named_cards` (801), `asked_device`.
"""
