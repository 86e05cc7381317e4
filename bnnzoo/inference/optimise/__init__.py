"""Training: batches, schedules, optimisers and the one loop that runs them."""

__all__: list[str] = []
