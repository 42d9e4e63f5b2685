"""Measurements: every speed goal as a ratio against a baseline that is measured in the same run.

``onward bench`` (see ``main.run``) prints one line a figure. Nothing else in the package imports this, and nothing here is
imported before somebody measures.
"""
