"""The sections of docs/theory.md: one module each, with its COMMANDS (name of a result -> command) and `section()`."""
