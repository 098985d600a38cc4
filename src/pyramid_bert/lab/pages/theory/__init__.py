"""docs/theory.md: one module a section, each with its COMMANDS (name of a result -> command) and `section()`."""
