"""The suite: a test's name is a sentence about behaviour; invariants have ids in `requirements.py`."""
