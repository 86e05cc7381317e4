"""Every message on the page of troubleshooting is raised by the code in these words."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
QUOTED = [
    message
    for line in PAGE.splitlines()
    if line.startswith("| `")
    for message in re.findall(r"`([^`]+)`", line.split(" | ")[0])
]


@cache
def texts() -> list[str]:
    """Return every string of the source, with "…" for what is filled in."""
    found = []
    for path in sorted((ROOT / "bnnzoo").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp):
                found.append(text(node))
    return [" ".join(sentence.split()) for sentence in found if len(sentence) > 10]


def text(node: ast.AST) -> str:
    """Return a string as written, f-strings and sums of strings included."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(text(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return text(node.left) + text(node.right)
    return "…"


def test_the_page_quotes_messages() -> None:
    assert len(QUOTED) > 30
    assert len(QUOTED) == len(set(QUOTED))


@pytest.mark.parametrize("message", QUOTED)
def test_every_message_is_raised_by_the_code(message: str) -> None:
    pattern = ".*?".join(re.escape(piece) for piece in message.split("…"))
    assert any(re.search(pattern, sentence) for sentence in texts()), message
