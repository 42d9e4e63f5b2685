"""Words: how text becomes search terms, in one place for every store (stub, being written)."""

from __future__ import annotations
