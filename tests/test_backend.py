"""Getting a backend by name, and what is never imported."""

import pydoc
import re
import subprocess
import sys
from pathlib import Path

import pytest

import imlp
from imlp import reference
from imlp.errors import BackendError


def test_the_reference_by_name():
    assert imlp.backend("reference") is reference


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(BackendError, match=r"unknown backend: 'numpy'; the known ones are reference, accel"):
        imlp.backend("numpy")


def run(code: str) -> str:
    """The standard output of a new interpreter."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_accel_without_torch_says_which_command_installs_it():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import imlp\n"
        "try: imlp.backend('accel')\n"
        "except imlp.ImlpError as error: print(error)"
    )
    assert "pip install torch torchvision" in run(code)


HEAVY = "import sys; print([name for name in ('torch', 'torchvision', 'cupy') if name in sys.modules])"


@pytest.mark.parametrize(
    "code",
    [
        "import imlp",
        "import imlp.reference",
        "import imlp.cli",
        "import imlp; imlp.backend('reference').matrix(imlp.Transpose(2, 3))",
        "from imlp.commands import build_prior; build_prior.build_prior('patch-embed')",
    ],
)
def test_torch_and_cupy_are_never_imported_unasked(code):
    assert run(f"{code}\n{HEAVY}").splitlines()[-1] == "[]"


def test_importing_the_package_imports_numpy_and_scipy_at_most():
    code = "import sys; before = set(sys.modules); import imlp\n"
    code += "print(*{name.partition('.')[0] for name in set(sys.modules) - before} - sys.stdlib_module_names)"
    packages = {name for name in run(code).split() if not name.startswith("_")}
    assert packages <= {"imlp", "numpy", "scipy", "cython_runtime"}


def test_what_is_for_pytorch_models_is_imported_when_it_is_used():
    from conftest import needs

    needs("accel")
    code = "import imlp, sys; assert 'nn' in dir(imlp) and 'torch' not in sys.modules\n"
    assert run(code + "print(imlp.nn.densify is imlp.densify)") == "True\n"
    with pytest.raises(AttributeError, match="'denseify'"):
        _ = imlp.denseify


def test_without_torch_the_package_offers_what_works():
    code = "import sys; sys.modules['torch'] = None; import imlp, pydoc; pydoc.render_doc(imlp); print(*dir(imlp))\n"
    code += "try: imlp.nn\nexcept imlp.ImlpError as error: print(error)"
    names, message = run(code).splitlines()
    assert "nn" not in names.split()
    assert "pip install torch torchvision" in message


@pytest.mark.parametrize("statement", ["import imlp.nn", "from imlp import accel", "from imlp import densify"])
def test_what_needs_torch_says_how_to_install_it(statement):
    code = f"import sys; sys.modules['torch'] = None; import imlp\ntry: {statement}\n"
    code += "except imlp.ImlpError as error: print(error)"
    assert "pip install torch torchvision" in run(code)


def test_a_room_is_imported_when_it_is_used():
    code = "import imlp, sys; assert 'imlp.reference' not in sys.modules\n"
    code += "print(imlp.reference.__name__, [name for name in dir(imlp) if not hasattr(imlp, name)])"
    assert run(code) == "imlp.reference []\n"


def test_help_shows_what_the_package_offers():
    shown = pydoc.plain(pydoc.render_doc(imlp)).partition("\nCLASSES")[2]
    for name in ("Conv", "Spec", "backend", "load"):
        assert re.search(rf"\b{name}\(", shown), name
    assert not {"Any", "Path", "RunError"} & {*dir(imlp)}
    assert "class Path" not in shown


def test_accel_works_without_cupy():
    from conftest import needs

    needs("accel")
    code = (
        "import sys; sys.modules['cupy'] = None\n"
        "import torch; from imlp import Shared, accel\n"
        "print(accel.matrix(Shared(2, 1, 1), torch.ones(1, 1)).sum().item(), accel.describe()['path'])"
    )
    assert run(code).startswith("2.0 ")
    assert "fused" not in run(code)


def test_accel_imports_cupy_only_when_a_device_is_there():
    from conftest import needs

    needs("accel")
    code = "import torch; from imlp import Shared, accel\n"
    code += "accel.interpolate(torch.ones(2, 2), Shared(2, 1, 1), torch.ones(1, 1), 0.5)\n"
    assert "cupy" not in run(code + HEAVY).splitlines()[-1]


def test_cupy_imports_without_a_gpu_and_describe_says_why_it_is_not_used():
    from conftest import needs

    needs("accel")
    needs("cupy")
    out = run("import cupy; from imlp import accel; print(accel.describe())")
    assert "'why': 'torch sees no CUDA device; " in out or "fused" in out


def test_each_module_can_be_imported_first():
    """`imlp.kinds` and `imlp.networks` imported each other; it worked in the order of `import imlp` only."""
    code = (
        "import importlib, sys, types\n"
        "for name in ('errors', 'files', 'spec', 'plugins', 'kinds', 'networks', 'networks.paper',\n"
        "             'couplings.schedule', 'augment', 'init', 'checks', 'model', 'reference'):\n"
        "    for own in [own for own in sys.modules if own.partition('.')[0] == 'imlp']: del sys.modules[own]\n"
        "    package = sys.modules['imlp'] = types.ModuleType('imlp')  # without what its __init__ imports\n"
        f"    package.__path__ = {[str(Path(imlp.__file__).parent)]}\n"
        "    importlib.import_module(f'imlp.{name}')\n"
    )
    run(code)
