"""Pyro models of the kinds that people publish, their references, and what each method makes of them as typed."""
