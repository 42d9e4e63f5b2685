"""The command line: one command a file or two, each a translation of a verb."""
