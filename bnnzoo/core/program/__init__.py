"""The user's Pyro program as it runs: sites, networks, statements, and what surrounds them."""

__all__: list[str] = []
