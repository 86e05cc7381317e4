"""Which parameters are meant: selections, conditional densities, hierarchies, trained weights."""

__all__: list[str] = []
