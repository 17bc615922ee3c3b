"""The rules, one module each; reached through `gpulint.registry` only."""
