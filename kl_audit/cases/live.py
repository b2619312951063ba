"""A framework's own function, cut out of its installed file: the package is not imported.

Most trainers cannot be imported on a machine without a GPU or without forty other packages.  The function
that computes the KL is nearly always plain: so its source is found through the metadata of the installed
distribution, the definition and what it uses of its own file are cut out, and only these are executed.
"""

from __future__ import annotations

import ast
import importlib.metadata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kl_audit.backends import BACKENDS, CandidateError, Unavailable
from kl_audit.cases.model import Case, Live
from kl_audit.cases.rows import Row
from kl_audit.cases.run import Settings, Setup, run_row, setup
from kl_audit.cases.subject import live_part
from kl_audit.quantities.base import Candidate


def live_rows(case: Case, settings: Settings) -> Iterator[Row]:
    """Yield a row for each framework function of a case, in each mode."""
    parts = {p.name: p for p in case.part}
    for live in case.live:
        part = live_part(parts[live.part], live)
        backend = BACKENDS[live.backend]
        for _, mode in settings.targets(part):
            row = Row(case, part, backend.name, mode)
            try:
                version, fn = function_of(live)
                prepared = setup(part)
                candidate = _candidate(fn, live, prepared)
            except Unavailable as reason:
                row.reason, row.live = str(reason), f"{live.package} {live.function}"
            else:
                row = run_row(case, prepared, backend, mode, settings, candidate)
                row.live = f"{live.package} {version} {live.function}"
            row.expected = None  # the versions of frameworks are not pinned here
            yield row


def source_file(live: Live) -> tuple[str, Path]:
    """Return the version and the file of a distribution; raises Unavailable with what would bring it."""
    try:
        found = importlib.metadata.distribution(live.package)
    except importlib.metadata.PackageNotFoundError:
        line = f"pip install --no-deps {live.package}"
        raise Unavailable(f"{live.package} is not installed ({line})") from None
    path = Path(str(found.locate_file(live.file)))
    if not path.is_file():
        raise Unavailable(f"{live.package} {found.version} has no file {live.file}")
    return found.version, path


def function_of(live: Live) -> tuple[str, Any]:
    """Return the version and the function; raises Unavailable where there is none, with the reason."""
    version, path = source_file(live)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    outer, _, inner = live.function.partition(".")
    kept = _closure(tree, outer)
    if kept is None:
        raise Unavailable(f"{live.package} {version} has no {live.function} in {live.file}")
    namespace: dict[str, Any] = {"__name__": "kl_audit_live"}
    for node in kept:
        module = ast.Module([ast.parse("from __future__ import annotations").body[0], node], [])
        try:
            exec(compile(module, str(path), "exec"), namespace)
        except ImportError:
            continue  # of something else: where the function needs it, it says so
        except Exception as error:
            raise Unavailable(f"{live.package} {version}: {live.file} line {node.lineno}: {error}") from error
    found = namespace[outer]
    return version, getattr(found, inner) if inner else found


def _closure(tree: ast.Module, name: str) -> list[ast.stmt] | None:
    """Return the definition of a name and what it uses of its module, in order; None without it."""
    definitions: dict[str, ast.stmt] = {}
    for node in tree.body:
        for bound in _bound(node):
            definitions[bound] = node
    if name not in definitions:
        return None
    wanted, seen = [name], {name}
    while wanted:
        node = definitions[wanted.pop()]
        for used in _used(node):
            if used in definitions and used not in seen:
                seen.add(used)
                wanted.append(used)
    kept = {id(definitions[n]) for n in seen}
    return [_plain(node) for node in tree.body if id(node) in kept]


def _bound(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [a.asname or a.name.partition(".")[0] for a in node.names]
    targets = node.targets if isinstance(node, ast.Assign) else []
    if isinstance(node, ast.AnnAssign):
        targets = [node.target]
    if isinstance(node, ast.Try | ast.If):
        return [name for inner in ast.iter_child_nodes(node) if isinstance(inner, ast.stmt)
                for name in _bound(inner)]  # fmt: skip
    return [t.id for t in targets if isinstance(t, ast.Name)]


def _used(node: ast.stmt) -> set[str]:
    """Return the names that a definition uses when it runs; annotations and decorators are not."""
    found: set[str] = set()
    for inner in ast.walk(_plain(node)):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load):
            found.add(inner.id)
    return found


class _Plain(ast.NodeTransformer):
    """Without decorators (but those of methods) and annotations: they name what need not be here."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """Strip a function."""
        self.generic_visit(node)
        kept = ("staticmethod", "classmethod")
        node.decorator_list = [d for d in node.decorator_list if isinstance(d, ast.Name) and d.id in kept]
        node.returns = None
        for a in (*node.args.args, *node.args.kwonlyargs, *node.args.posonlyargs):
            a.annotation = None
        return node


def _plain(node: ast.stmt) -> ast.stmt:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return _Plain().visit(node)  # type: ignore[no-any-return]
    return node


def _candidate(fn: Any, live: Live, prepared: Setup) -> Candidate:
    names = prepared.problem.inputs

    def call(xp: Any, *arrays: Any) -> Any:
        env = dict(zip(names, arrays, strict=True))
        shaped = {p: xp.reshape(env[n], _shape(live.shape, env[n])) for p, n in live.args.items()}
        result = fn(**shaped, **live.with_)
        if live.take is not None:
            result = result[live.take]
        if not xp.is_array(result):
            raise CandidateError(f"returned {type(result).__name__}, expected an array")
        flat = 1
        for n in result.shape:
            flat *= n
        return xp.reshape(result, (flat,) if flat > 1 else (1,))

    return call


def _shape(shape: list[int], x: Any) -> tuple[int, ...]:
    n = 1
    for k in x.shape:
        n *= k
    return tuple(n if k == -1 else k for k in shape)
