"""Rules of style that no linter keeps."""

import ast
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
MAX_FUNCTION_LINES = 40
MAX_MODULE_LINES = 400
PACKAGES = ("daom", "detectors", "streams", "connectors", "bench", "tests")
MODULES = sorted(path for package in PACKAGES for path in (REPOSITORY / package).rglob("*.py"))


def name(path):
    return str(path.relative_to(REPOSITORY))


def own_lines(function):
    """Lines of a function without its docstring, which may be as long as it needs to be."""
    first = function.body[0]
    documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    docstring = first.end_lineno - first.lineno + 1 if documented else 0
    return function.end_lineno - function.lineno + 1 - docstring


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_a_function_fits_a_screen_and_a_module_is_one_thing(path):
    source = path.read_text("utf-8")
    functions = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]

    long = [f"{f.name}: {own_lines(f)}" for f in functions if own_lines(f) > MAX_FUNCTION_LINES]

    assert long == []
    assert len(source.splitlines()) <= MAX_MODULE_LINES
