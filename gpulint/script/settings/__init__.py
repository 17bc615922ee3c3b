"""Values in settings files that reach a call, or that nothing reads (GPU901 to 906).

`setting_values`, `mapping_uses`, `unread_settings`, `slow_settings`,
`illegal_settings`, `debug_switches`.
"""
