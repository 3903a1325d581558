"""What a program is made of, without running it: the functions it names, and literals that become parameters."""

import ast
import keyword
from collections.abc import Iterator, Mapping

from shortlist.code.naming import ROOT
from shortlist.errors import InvalidInput
from shortlist.models import Json

TAKEN = frozenset({ROOT, "search", "describe", "asyncio"})
"""Names that mean something else in a program."""


def parsed(source: str) -> ast.Module:
    """Parse a program; raise InvalidInput with the place of the first mistake."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise InvalidInput(f"The program is not valid Python{f', line {line}' if line else ''}: {error}.") from None


def named_functions(source: str) -> tuple[str, ...]:
    """Return the functions that a program names, as `server.tool`, in the order of its source."""
    found: dict[str, None] = {}
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute):
            root = node.value.value
            if isinstance(root, ast.Name) and root.id == ROOT:
                found[f"{node.value.attr}.{node.attr}"] = None
    return tuple(found)


def parametrised(source: str, parameters: Mapping[str, Json]) -> str:
    """Replace the literals that equal a parameter's default value by its name."""
    for name, value in parameters.items():
        _check_name(name)
        source = _replaced(source, name, value)
    return source


def _check_name(name: str) -> None:
    if not name.isidentifier() or keyword.iskeyword(name) or name in TAKEN or name.startswith("_"):
        raise InvalidInput(f"{name!r} cannot be the name of a parameter. Use letters, digits and underscores.")


def _replaced(source: str, name: str, value: Json) -> str:
    """Replace literals from the last to the first, so that the places of the others stay as they are."""
    tree = parsed(source)
    if any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(tree)):
        raise InvalidInput(f"The program uses the name {name!r} already. Choose another one for the parameter.")
    lines = source.encode().splitlines(keepends=True)
    places = [place for place in _literals(tree, value) if place.lineno == place.end_lineno]
    if not places:
        raise InvalidInput(f"The program has no literal {value!r} that {name!r} could stand for.")
    for place in sorted(places, key=lambda each: (each.lineno, each.col_offset), reverse=True):
        line = lines[place.lineno - 1]
        lines[place.lineno - 1] = line[: place.col_offset] + name.encode() + line[place.end_col_offset :]
    return b"".join(lines).decode()


def _literals(node: ast.AST, value: Json) -> Iterator[ast.Constant]:
    """Yield the literals that equal a value; parts of an f-string have no place of their own."""
    if isinstance(node, ast.Constant):
        if type(node.value) is type(value) and node.value == value:
            yield node
    elif not isinstance(node, ast.JoinedStr):
        for child in ast.iter_child_nodes(node):
            yield from _literals(child, value)
