"""Python in a rehearsal: torch gets a GPU that is this CPU as soon as it is imported (``stand_in_torch``).

This folder comes first in PYTHONPATH: every process of a rehearsal runs this file, and ``import cupy`` finds
the stand-in beside it.
"""

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder


class _Torch(MetaPathFinder):
    """Finds the real torch, and changes it when it is loaded."""

    def find_spec(self, name, path=None, target=None):
        spec = PathFinder.find_spec(name, path, target) if name == "torch" else None
        if spec is not None:
            load = spec.loader.exec_module

            def load_and_change(module):
                load(module)
                import stand_in_torch

                stand_in_torch.install(module)

            spec.loader.exec_module = load_and_change
        return spec


sys.meta_path.insert(0, _Torch())
