"""Classifiers in other runtimes: written with torch (`writing`), and run without it (`classifier`)."""
