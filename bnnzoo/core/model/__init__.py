"""From a Pyro model to one log density, and what is read off it."""

__all__: list[str] = []
