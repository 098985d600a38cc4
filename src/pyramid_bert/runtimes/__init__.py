"""Who computes a model: torch with plain, packed or 8-bit weights."""
