"""docs/results.md: what the studies on GLUE and IMDB found."""
