"""Modes and ensembles of them."""

__all__: list[str] = []
