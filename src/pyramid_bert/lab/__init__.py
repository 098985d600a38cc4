"""The laboratory: what reproduces the paper. Imports the product; only the command line imports it."""
