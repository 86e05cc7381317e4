"""Nested containers of tensors as flat lists and back: optree, with None a leaf and dictionaries in their own order."""

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

import optree

__all__ = [
    "TreeSpec",
    "register_pytree_node",
    "tree_flatten",
    "tree_leaves",
    "tree_map",
    "tree_map_only",
    "tree_structure",
    "tree_unflatten",
]

type TreeSpec = optree.PyTreeSpec

NAMESPACE = "bnnzoo"

# Leaves are numbered in checkpoints: the numbers follow the order of a dictionary, not the alphabet.
_ORDER = ExitStack()
_ORDER.enter_context(optree.dict_insertion_ordered(True, namespace=NAMESPACE))


def tree_flatten(tree: Any) -> tuple[list[Any], TreeSpec]:
    """Return the leaves of a tree, and its structure.

    Examples
    --------
    >>> leaves, spec = tree_flatten({"b": (1, None), "a": [2]})
    >>> leaves, tree_unflatten([3, 4, 5], spec)
    ([1, None, 2], {'b': (3, 4), 'a': [5]})
    """
    leaves, spec = optree.tree_flatten(tree, none_is_leaf=True, namespace=NAMESPACE)
    return leaves, spec


def tree_leaves(tree: Any) -> list[Any]:
    """Return the leaves of a tree."""
    return optree.tree_leaves(tree, none_is_leaf=True, namespace=NAMESPACE)


def tree_structure(tree: Any) -> TreeSpec:
    """Return the structure of a tree."""
    return optree.tree_structure(tree, none_is_leaf=True, namespace=NAMESPACE)


def tree_unflatten(leaves: Iterable[Any], spec: TreeSpec) -> Any:
    """Return the tree of a structure with other leaves."""
    return optree.tree_unflatten(spec, leaves)


def tree_map(function: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    """Return a tree with ``function`` of each leaf, and of those at its place in other trees, in place of the leaf."""
    return optree.tree_map(function, tree, *rest, none_is_leaf=True, namespace=NAMESPACE)


def tree_map_only(kind: type, function: Callable[[Any], Any], tree: Any) -> Any:
    """Return a tree with ``function`` of each leaf of one type in its place.

    Examples
    --------
    >>> tree_map_only(int, lambda n: n + 1, ("a", 1, None))
    ('a', 2, None)
    """
    return tree_map(lambda leaf: function(leaf) if isinstance(leaf, kind) else leaf, tree)


def register_pytree_node(
    kind: type, flatten: Callable[[Any], tuple[Iterable[Any], Any]], unflatten: Callable[[Iterable[Any], Any], Any]
) -> None:
    """Let trees of this package go on inside objects of a type; ``flatten`` returns what they hold and what else they are."""
    optree.register_pytree_node(kind, flatten, lambda rest, children: unflatten(children, rest), namespace=NAMESPACE)
