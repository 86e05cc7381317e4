"""Checks of types while testing: functions and dataclasses of some packages are decorated when they are imported."""

import ast
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

from beartype import BeartypeConf, beartype

__all__ = ["check_types_of", "checked"]

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))  # an int is welcome where a float is asked for


class _Decorate(ast.NodeTransformer):
    """Decorate dataclasses, functions and methods, but not functions within functions, which are made again at each call."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.decorator_list.append(_decorator(node))
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        if not any("dataclass" in ast.unparse(each) for each in node.decorator_list):
            return self.generic_visit(node)
        node.decorator_list.insert(0, _decorator(node))
        return node


def _decorator(node: ast.FunctionDef | ast.ClassDef) -> ast.expr:
    decorator = ast.parse(f"__import__('{__name__}', fromlist=['checked']).checked", mode="eval").body
    for each in ast.walk(decorator):
        ast.copy_location(each, node)
    return decorator


class _Loader(SourceFileLoader):
    """Compile decorated source; nothing is cached on disk, where other runs would find it."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        tree = _Decorate().visit(ast.parse(self.get_data(path), path))
        return compile(tree, path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    def __init__(self, packages: Sequence[str]) -> None:
        self.packages = packages

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not any(name == package or name.startswith(f"{package}.") for package in self.packages):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def check_types_of(packages: Sequence[str]) -> None:
    """Check arguments and results of everything in these packages that is imported from now on."""
    sys.meta_path.insert(0, _Finder(packages))
