"""Runtimes: devices, processes, and torch with plain, packed or 8-bit weights."""
