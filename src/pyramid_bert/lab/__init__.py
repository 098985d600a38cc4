"""The laboratory: what reproduces the paper. Imports the product; only the command line imports it."""

from . import performer as _performer  # noqa: F401 - adds its family
