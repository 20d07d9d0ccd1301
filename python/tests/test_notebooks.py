"""The notebooks of examples/notebooks: every cell runs and shows what is stored with it.

    python python/tests/test_notebooks.py      runs them all and stores what they show
"""

import ast
import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "examples/notebooks").glob("*.ipynb"))


def run_cell(source: str, names: dict[str, Any]) -> str:
    """What a notebook shows as text below a cell: its prints, then its last value."""
    tree, shown = ast.parse(source), io.StringIO()
    value = None
    with contextlib.redirect_stdout(shown):
        last = tree.body[-1]
        if isinstance(last, ast.Expr):
            exec(compile(ast.Module(tree.body[:-1], []), "cell", "exec"), names)
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
        else:
            exec(compile(tree, "cell", "exec"), names)
    return shown.getvalue() + ("" if value is None else f"{value!r}\n")


def code_cells(notebook: dict) -> list[dict]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def stored(cell: dict) -> str:
    return "".join(text for output in cell["outputs"] for text in output["text"])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_cells_show_what_is_stored(path: Path, tmp_path: Path, monkeypatch: Any) -> None:
    notebook, names = json.loads(path.read_text()), {}
    for module in notebook["metadata"]["needs"]:
        pytest.importorskip(module)
    monkeypatch.chdir(tmp_path)
    for cell in code_cells(notebook):
        source = "".join(cell["source"])
        assert run_cell(source, names) == stored(cell), source


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) >= 4
    for path in NOTEBOOKS:
        assert any(stored(cell) for cell in code_cells(json.loads(path.read_text()))), path


def store(path: Path) -> None:
    notebook, names = json.loads(path.read_text()), {}
    for number, cell in enumerate(code_cells(notebook), 1):
        text = run_cell("".join(cell["source"]), names)
        output = {"name": "stdout", "output_type": "stream",
                  "text": text.splitlines(keepends=True)}
        cell.update(execution_count=number, outputs=[output] if text else [])
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    for path in NOTEBOOKS:
        print(path.name)
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            store(path)
