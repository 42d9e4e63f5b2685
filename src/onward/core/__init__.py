"""The core: pure values and functions. No input or output, no clock, no randomness; standard library and msgspec only."""
