"""Parallel tempering: chains at temperatures between prior and posterior that exchange their states."""

__all__: list[str] = []
