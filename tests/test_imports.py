import subprocess
import sys


def _modules_after(statement):
    code = f"import sys; {statement}; print(' '.join(m for m in sys.modules if '.' not in m))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(out.stdout.split())


def test_the_accountant_does_not_import_jax_or_plotting():
    loaded = _modules_after("import pgbb.accountant")
    assert "numpy" in loaded
    assert not loaded & {"jax", "jaxlib", "optax", "matplotlib", "pandas"}
