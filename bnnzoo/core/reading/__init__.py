"""A model and its data read and checked before a fit, and recognised after it."""

__all__: list[str] = []
