"""Find a function of the user's by its address, ``package.module:function``."""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from kl_audit.backends.base import describe_error
from kl_audit.callee.capture import Heard, quiet
from kl_audit.errors import UsageError

#: How many callables an error names.
SHOWN = 10

#: Before the name of a module that is loaded from a file, where another has the name.
PREFIX = "_kl_audit_callee_"

FORM = "write package.module:function or path/to/file.py:function"


@dataclass(frozen=True)
class Loaded:
    """A callable of the user's, and what is known of it before it is called."""

    fn: Callable[..., Any]
    name: str  #: ``module:qualified.name``
    file: str | None  #: where it is written; None for builtins and compiled code
    line: int | None
    signature: inspect.Signature | None  #: None where it cannot be read
    notes: tuple[str, ...] = ()  #: what happened while loading, one line each

    @property
    def short(self) -> str:
        """The last part of the name."""
        return self.name.rpartition(":")[2]


def load(spec: str) -> Loaded:
    """Return the callable at ``package.module:name`` or ``path/to/file.py:name``.

    The name may have dots (``Class.method``).  The current folder, or that of the file, is put on
    ``sys.path``.  A class is instantiated without arguments: itself where its instances can be
    called, else to reach an instance method.  Raises UsageError, in one line, for everything that
    goes wrong, including what the module itself raises when it is imported.
    """
    where, colon, path = spec.rpartition(":")
    if not colon or not where or not path:
        raise UsageError(f"'{spec}' does not name a function: {FORM}.")
    notes: list[str] = []
    module = _module(where, notes)
    obj = _walk(module, where, path, notes)
    fn, shown = _callable(obj, where, path, notes)
    file, line = _place(fn)
    home = module.__name__.removeprefix(PREFIX)
    return Loaded(fn, f"{home}:{path}", file, line, _signature(shown), tuple(notes))


def _module(where: str, notes: list[str]) -> ModuleType:
    if where.endswith(".py") or "/" in where or "\\" in where:
        return _from_file(where, notes)
    _on_path(Path.cwd())
    return _guarded(where, notes, lambda: importlib.import_module(where))


def _on_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    importlib.invalidate_caches()


def _from_file(where: str, notes: list[str]) -> ModuleType:
    path = Path(where).expanduser()
    if not path.is_file():
        raise UsageError(f"no file '{where}' (looked in {Path.cwd()}).")
    path = path.resolve()
    name = path.stem
    present = sys.modules.get(name)
    if present is not None:
        if getattr(present, "__file__", None) == str(path):
            return present
        name = f"{PREFIX}{name}"  # the name is taken by another module
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"'{where}' is not a Python file: {FORM}.")
    _on_path(path.parent)
    module = importlib.util.module_from_spec(spec)
    loader = spec.loader

    def execute() -> ModuleType:
        sys.modules[name] = module  # dataclasses look their module up
        try:
            loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        return module

    return _guarded(where, notes, execute)


def _guarded(where: str, notes: list[str], act: Callable[[], ModuleType]) -> ModuleType:
    """Import, quietly; tell a module that is not there from one that cannot be imported."""
    heard = Heard()
    try:
        with quiet() as heard:
            module = act()
    except SystemExit as error:
        raise UsageError(f"importing '{where}' calls sys.exit({error.code!r}).") from error
    except ModuleNotFoundError as error:
        if error.name and f"{where}.".startswith(f"{error.name}."):
            raise _missing(where, error.name) from error
        raise UsageError(f"'{where}' cannot be imported: {_said(error)}.") from error
    except Exception as error:
        hint = ""
        if isinstance(error, ImportError) and "relative import" in str(error):
            hint = "; name it as a module of its package (package.module:function)"
        raise UsageError(f"'{where}' cannot be imported: {_said(error)}{hint}.") from error
    if heard.printed:
        notes.append(f"prints when imported: {heard.printed}")
    return module


def _said(error: BaseException) -> str:
    return describe_error(error).rstrip(".")


def _missing(where: str, name: str) -> UsageError:
    looked = "" if name == where else f", so no '{where}'"
    return UsageError(f"no module '{name}'{looked} (looked in {Path.cwd()} and the installed packages).")


def _walk(module: ModuleType, where: str, path: str, notes: list[str]) -> Any:
    """Follow a dotted name; an instance method is bound to an instance made without arguments."""
    obj: Any = module
    seen = where + ":"
    for part in path.split("."):
        try:
            found = getattr(obj, part)
        except AttributeError:
            raise _no_attribute(obj, seen.rstrip(":."), part) from None
        except Exception as error:
            raise UsageError(f"'{seen}{part}' cannot be read: {_said(error)}.") from error
        if inspect.isclass(obj) and inspect.isfunction(inspect.getattr_static(obj, part)):
            found = getattr(_instance(obj, seen.rstrip(":."), notes), part)
        obj = found
        seen += part + "."
    return obj


def _no_attribute(obj: Any, seen: str, part: str) -> UsageError:
    names = [n for n in dir(obj) if not n.startswith("__")]
    close = difflib.get_close_matches(part, names, 3)
    own = [n for n in names if not n.startswith("_") and _is_own_callable(obj, n)]
    text = f"'{seen}' has no '{part}'"
    if close:
        text += f"; did you mean {' or '.join(close)}?"
    if own:
        more = f" and {len(own) - SHOWN} more" if len(own) > SHOWN else ""
        return UsageError(f"{text}{'' if close else '.'} It has {', '.join(own[:SHOWN])}{more}.")
    return UsageError(text if close else f"{text}, and nothing that can be called.")


def _is_own_callable(obj: Any, name: str) -> bool:
    """Whether an attribute can be called and is not merely imported into the module."""
    try:
        value = getattr(obj, name)
    except Exception:
        return False
    home = getattr(value, "__module__", None)
    return callable(value) and (not inspect.ismodule(obj) or home in (obj.__name__, None))


def _callable(obj: Any, where: str, path: str, notes: list[str]) -> tuple[Callable[..., Any], Any]:
    """Return what to call, and what to read the signature of."""
    if inspect.ismodule(obj):
        raise UsageError(f"'{where}:{path}' is a module: write {obj.__name__}:function.")
    if inspect.isclass(obj):
        if _is_autograd_function(obj):
            notes.append(f"{obj.__name__}.apply is called")
            return obj.apply, _without_context(obj)  # type: ignore[attr-defined]
        if not any("__call__" in k.__dict__ for k in obj.__mro__):
            raise UsageError(f"'{where}:{path}' is a class whose instances cannot be called: {FORM}.")
        obj = _instance(obj, f"{where}:{path}", notes)
    if not callable(obj):
        raise UsageError(f"'{where}:{path}' is {_a(type(obj).__name__)}, not a function.")
    forward = getattr(obj, "forward", None)
    # torch.nn.Module takes anything and hands it to forward
    return obj, forward if not inspect.isroutine(obj) and callable(forward) else obj


def _a(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiouAEIOU' else 'a'} {noun}"


def _is_autograd_function(cls: type) -> bool:
    """Whether a class is a torch.autograd.Function, which is called by ``apply``."""
    return all(isinstance(inspect.getattr_static(cls, n, None), staticmethod)
               for n in ("forward", "backward")) and callable(getattr(cls, "apply", None))  # fmt: skip


def _without_context(cls: Any) -> Any:
    """Return ``forward`` without its first parameter ctx, which newer ones take in setup_context."""
    owners = (k for k in cls.__mro__ if "setup_context" in k.__dict__)
    framework = next(owners, object).__module__.startswith("torch.autograd")
    return functools.partial(cls.forward, None) if framework else cls.forward


def _instance(cls: type, seen: str, notes: list[str]) -> Any:
    try:
        with quiet():
            made = cls()
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"'{seen}' is a class that cannot be made without arguments ({_said(error)}): "
            "write a function that makes and calls it, and name that."
        ) from error
    notes.append(f"{cls.__name__}() was made without arguments")
    return made


def _signature(obj: Any) -> inspect.Signature | None:
    """Return the signature, or None where it cannot be read or says nothing (``*args``)."""
    try:
        signature = inspect.signature(obj)
    except (TypeError, ValueError):
        return None
    kinds = {p.kind for p in signature.parameters.values()}
    if inspect.Parameter.VAR_POSITIONAL in kinds and kinds <= {
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.VAR_KEYWORD,
    }:
        return None
    return signature


def _place(fn: Any) -> tuple[str | None, int | None]:
    """Return the file and line where the code of a callable begins."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    if not inspect.isroutine(fn) and not hasattr(fn, "__wrapped__"):
        fn = getattr(fn, "forward", None) or type(fn).__call__
    elif inspect.ismethod(fn) and fn.__name__ == "apply" and hasattr(fn.__self__, "forward"):
        fn = fn.__self__.forward
    fn = inspect.unwrap(fn)
    code = getattr(getattr(fn, "__func__", fn), "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code else (None, None)
