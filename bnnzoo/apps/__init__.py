"""Applications: they use the library as its users do."""

__all__: list[str] = []
