# SPDX-License-Identifier: Apache-2.0
"""Two things that code at the start of somebody else's Python needs: call a function once a module was imported,
without importing it; and run the `sitecustomize` that another one hides.

Standard library only and no other module of this package: `plimsoll dryrun` uses a copy of this file.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types
from typing import Any, Callable, Mapping, Optional, Sequence

Hook = Callable[[types.ModuleType], None]


class AfterImport(importlib.abc.MetaPathFinder):
    """Calls hooks[name](module) once the module of that name was executed. Being asked for a spec is not
    being imported: programs look whether a package is there. Put it first on sys.meta_path.

    An exception of a hook goes to `failed`: the program must run even when the hook does not.
    """

    def __init__(self, hooks: Mapping[str, Hook], failed: Callable[[Exception], None]) -> None:
        self.hooks = hooks
        self.failed = failed

    def find_spec(self, fullname: str, path: Optional[Sequence[str]],
                  target: Optional[types.ModuleType] = None) -> Optional[importlib.machinery.ModuleSpec]:
        hook = self.hooks.get(fullname)
        if hook is None:
            return None
        # Those before us were asked already; one of them may be a finder like this one, and ask us.
        finders = list(sys.meta_path)
        for finder in finders[finders.index(self) + 1:] if self in finders else []:
            find = getattr(finder, "find_spec", None)
            spec: Optional[importlib.machinery.ModuleSpec] = None
            if find is not None:
                spec = find(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = Loader(spec.loader, hook, self.failed)
                return spec
        return None


class Loader(importlib.abc.Loader):
    """The real loader, and then the hook."""

    def __init__(self, real: Any, hook: Hook, failed: Callable[[Exception], None]) -> None:
        self.real = real
        self.hook = hook
        self.failed = failed

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Optional[types.ModuleType]:
        module: Optional[types.ModuleType] = self.real.create_module(spec)
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        module.__loader__ = self.real
        if module.__spec__ is not None:
            module.__spec__.loader = self.real
        self.real.exec_module(module)
        try:
            self.hook(module)
        except Exception as error:
            self.failed(error)


def run_hidden_sitecustomize(here: str) -> None:
    """Python runs the first `sitecustomize` on its path: run the one that the one in the folder `here` hides."""
    folders = [os.path.abspath(p or ".") for p in sys.path]
    if here not in folders:
        return
    behind = folders[folders.index(here) + 1:]  # those before may be such hooks too, which ran this one
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", [p for p in behind if p != here])
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)
