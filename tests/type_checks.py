"""The type checker that tests put around the package's functions."""

from beartype import BeartypeConf, beartype

__all__ = ["checked"]

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))  # an int is welcome where a float is asked for
