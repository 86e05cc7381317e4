"""Scripts that measure, and their results."""
