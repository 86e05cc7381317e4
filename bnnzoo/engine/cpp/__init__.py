"""From a graph of tensor operations with loops to one C++ function, written here and compiled by the machine's compiler."""

__all__: list[str] = []
