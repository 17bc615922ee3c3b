"""`gpulint server`: what editors show and offer, over the Language Server Protocol.

Only the modules that speak the protocol import pygls, which the extra `lsp` brings.
"""
