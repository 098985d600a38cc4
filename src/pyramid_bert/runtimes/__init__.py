"""Runtimes: devices, processes, and torch with plain, packed, bf16 or 8-bit weights."""
