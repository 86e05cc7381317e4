"""Measurements against other libraries and earlier commits, each a module that runs by itself."""
