"""What a fit says of itself when it ends."""

__all__: list[str] = []
