"""Long Range Arena with the paper's two backbones, Performer and BigBird, and selection at the input."""

from .presets import BACKBONES, LRA_NAMES, LraPreset, load_presets, preset_for

__all__ = ["BACKBONES", "LRA_NAMES", "LraPreset", "load_presets", "preset_for"]
