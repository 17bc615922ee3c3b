"""Formats of numbers: mixed precision, TF32, and what half precision would break.

`precision`, `covered` and `half`, `half_outputs`, `hazards` and `reached` say what
there is and what it bears; `autocast`, `autocast_region`, `scaled_update`,
`scaler_checkpoints` and `protected` make the rewrite (GPU301), `old_amp` (303),
`loss_scaling`, `autocast_uses` and `pure_half` (304), `second_derivatives` (305),
`amp_switches` and `amp_guards` (306).
"""
