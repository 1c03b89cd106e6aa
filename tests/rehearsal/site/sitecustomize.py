"""Python in a rehearsal: torch gets a GPU that is this CPU as soon as it is imported (``stand_in_torch``).

This folder comes first in PYTHONPATH: every process of a rehearsal runs this file, and ``import cupy`` finds
the stand-in beside it. Packages that the first GPU machine lacks are not found.
"""

import sys
from importlib.machinery import PathFinder

LACKING = ("fbgemm_gpu", "torchrec")


class _Finder:
    """Finds what lies in Python's folders, but for ``LACKING``; changes torch when it is loaded."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in LACKING:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if name == "torch" and spec is not None:
            load = spec.loader.exec_module

            def load_and_change(module):
                load(module)
                import stand_in_torch

                stand_in_torch.install(module)

            spec.loader.exec_module = load_and_change
        return spec

    @staticmethod
    def find_distributions(*args, **kwargs):
        return PathFinder.find_distributions(*args, **kwargs)

    @staticmethod
    def invalidate_caches():
        PathFinder.invalidate_caches()


sys.meta_path[:] = [_Finder if finder is PathFinder else finder for finder in sys.meta_path]
