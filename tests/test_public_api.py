"""The public names."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib.metadata import version

import captum_goat


def test_all_is_sorted_complete_and_documented() -> None:
    names = captum_goat.__all__
    assert names == sorted(names)
    public = {n for n, value in vars(captum_goat).items() if not n.startswith("_") and not inspect.ismodule(value)}
    assert public | {"rules"} == set(names)
    assert all(inspect.getdoc(getattr(captum_goat, name)) for name in names)


def test_version_is_the_installed_one() -> None:
    assert captum_goat.__version__ == version("captum-goat")


def test_import_loads_no_optional_package() -> None:
    """Pictures and comparisons import them when they are drawn or made, so that `import captum_goat` stays quick."""
    code = "import captum_goat, sys; assert not {'matplotlib', 'sklearn', 'networkx'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


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
