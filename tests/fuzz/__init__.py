"""Damaged files: every reader answers as before or refuses in one line. `python -m tests.fuzz --help`."""
