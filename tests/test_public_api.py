"""The public names, and tests that use them rather than others."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest

import captum_goat

PACKAGE, ROOT = Path(captum_goat.__file__).parent, Path(__file__).parents[1]


def test_all_is_sorted_complete_and_documented() -> None:
    names = captum_goat.__all__
    assert names == sorted(names)
    assert set(names) <= set(dir(captum_goat))
    with pytest.raises(AttributeError, match="no attribute 'Attribution'"):
        captum_goat.Attribution  # noqa: B018
    assert all(inspect.getdoc(getattr(captum_goat, name)) for name in names)


def test_version_is_the_installed_one() -> None:
    assert captum_goat.__version__ == version("captum-goat")


OPTIONAL = {"matplotlib", "networkx", "rdkit", "sklearn"}


@pytest.mark.slow
def test_import_loads_no_optional_package() -> None:
    """Nor Captum, which imports matplotlib; and the public names bring nothing on top of what Captum and PyG import."""
    code = f"""
import sys, captum_goat
assert not {OPTIONAL | {"captum"}} & set(sys.modules)
import captum.attr, torch_geometric
before = set(sys.modules)
names = [getattr(captum_goat, name) for name in captum_goat.__all__]
assert not {OPTIONAL} & (set(sys.modules) - before)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_optional_packages_are_imported_where_they_are_used(path: Path) -> None:
    """They are imported inside functions (or for type checkers), and matplotlib only in `plot` and `compare`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if path.relative_to(PACKAGE).parts[0] not in ("plot", "compare"):
        assert "matplotlib" not in {package for node in ast.walk(tree) for package in imported(node)}
    assert not OPTIONAL & {package for node in tree.body for package in imported(node)}


def imported(node: ast.AST) -> list[str]:
    """Return the packages that an import statement names."""
    names = [name.name for name in node.names] if isinstance(node, ast.Import) else []
    if isinstance(node, ast.ImportFrom) and node.module:
        names.append(node.module)
    return [name.split(".")[0] for name in names]


def test_inputs_is_the_first_parameter() -> None:
    """NoiseTunnel and the metrics call `attribute` by these names, on the function below Captum's usage log."""
    attribute = captum_goat.GOAtAttribution.attribute
    assert list(inspect.signature(attribute.__wrapped__).parameters)[:5] == [
        "self",
        "inputs",
        "target",
        "additional_forward_args",
        "return_convergence_delta",
    ]


# Test files that import what is not documented. This number may fall, and nothing else.
MOST_FILES_WITH_INTERNALS = 28


def documented() -> set[str]:
    """Return the names on the pages of the reference, but for the page of what is inside."""
    names = {f"captum_goat.{name}" for name in captum_goat.__all__}
    for page in (ROOT / "docs" / "reference").glob("*.rst"):
        if page.stem != "inside":
            text = page.read_text(encoding="utf-8")
            for module in re.findall(r"automodule:: (\S+)", text):
                names |= {module, *(f"{module}.{name}" for name in import_module(module).__all__)}
            names |= set(re.findall(r"autoclass:: (\S+)", text))
    return names


def test_tests_go_through_documented_names() -> None:
    names, inside = documented(), []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            used = [name.name for name in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                used = [f"{node.module}.{name.name}" for name in node.names]
            if any(name.startswith("captum_goat.") and name not in names for name in used):
                inside.append(str(path.relative_to(ROOT)))
                break
    assert len(inside) <= MOST_FILES_WITH_INTERNALS, inside
