"""Commands that are killed and given again end as if nothing had happened. `python -m tests.crash --help`."""
