"""The generated pages of docs/: `python -m pyramid_bert.lab.pages NAME` writes one from results/ and experiments/."""
