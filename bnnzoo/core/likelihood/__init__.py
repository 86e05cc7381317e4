"""Distributions of observed sites: families, moments, Fisher information, weights."""

__all__: list[str] = []
