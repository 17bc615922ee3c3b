"""A linter and codemod for PyTorch training scripts that waste the GPU."""

__version__ = "0.1.0"
