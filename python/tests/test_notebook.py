import ast
import contextlib
import io
import json
import re

import pytest
from conftest import ROOT

NOTEBOOK = ROOT / "python/examples/first_study.ipynb"
#: What to do when its outputs are no longer those of its cells.
AGAIN = f"execute it again: jupyter execute --inplace {NOTEBOOK.relative_to(ROOT)}"


def run(source, names):
    """A cell's standard output, and the value of its last expression as a notebook shows it."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, str(NOTEBOOK), "exec"), names)
        value = last and eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), names)
    return printed.getvalue(), value


def words(markup):
    return re.findall(r">\s*([^<>\s][^<>]*)<", markup)


def test_its_outputs_are_what_its_cells_print(monkeypatch):
    pytest.importorskip("pandas")
    monkeypatch.chdir(NOTEBOOK.parent)
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    names = {}
    shown = []
    for cell in cells:
        printed, value = run("".join(cell["source"]), names)
        outputs = cell["outputs"]
        text = "".join("".join(output["text"]) for output in outputs if output["output_type"] == "stream")
        assert text == printed, AGAIN
        data = next((output["data"] for output in outputs if output["output_type"] == "execute_result"), {})
        for kind, method in [("text/html", "_repr_html_"), ("image/svg+xml", "_repr_svg_")]:
            if kind in data:
                assert words("".join(data[kind])) == words(getattr(value, method)()), AGAIN
                shown.append(kind)
        assert not data or value is not None
    assert shown == ["text/html", "image/svg+xml", "text/html", "text/html"]
