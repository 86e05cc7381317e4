"""Verdict of a fit on itself."""

__all__: list[str] = []
