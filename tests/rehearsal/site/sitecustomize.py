"""Python in a rehearsal: torch gets a GPU that is this CPU as soon as it is imported (``stand_in_torch``).

This folder comes first in PYTHONPATH: every process of a rehearsal runs this file, and ``import cupy`` finds
the stand-in beside it. Packages that the first GPU machine lacks are not found.
"""

import sys
from importlib.machinery import PathFinder

LACKING = ("fbgemm_gpu", "torchrec")


class _Finder(PathFinder):
    """Finds what lies in Python's folders, but for ``LACKING``; changes torch when it is loaded."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        spec = None if name in LACKING else super().find_spec(name, path, target)
        if name == "torch" and spec is not None:
            load = spec.loader.exec_module

            def load_and_change(module):
                load(module)
                import stand_in_torch

                stand_in_torch.install(module)

            spec.loader.exec_module = load_and_change
        return spec


sys.meta_path[:] = [_Finder if finder is PathFinder else finder for finder in sys.meta_path]
