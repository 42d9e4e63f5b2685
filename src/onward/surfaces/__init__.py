"""Surfaces: what people and programs touch. They only translate; nothing is decided here."""
