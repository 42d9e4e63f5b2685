"""The shape of the code, checked: who may import whom, what the core may not do, how large a module may grow, what
importing the package may cost, and what no file of ours may say.

Each rule is a function from modules to findings, so that it can be shown to catch what it forbids.
"""

from __future__ import annotations

import ast
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.findings import none
from tests.needs import ROOT

SRC = ROOT / "src"
TESTS = ROOT / "tests"

# Which places of the package a place may import from. Read it as the direction of the design:
# core <- store, engines, importers <- service <- runner <- surfaces.
EDGES = ("store", "engines", "importers")
PRODUCT = ("errors", "core", *EDGES, "service", "runner", "onward")
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "errors": (),
    "core": ("errors", "core"),
    "store": ("errors", "core", "store"),
    "engines": ("errors", "core", "engines"),
    "importers": ("errors", "core", "importers"),
    "service": ("errors", "core", *EDGES, "service"),
    "runner": ("errors", "core", *EDGES, "service", "runner"),
    "library": (*PRODUCT, "library"),
    "onward": (*PRODUCT, "library"),
    "surfaces": (*PRODUCT, "library", "surfaces", "bench"),
    "__main__": (*PRODUCT, "library", "surfaces"),
    "testing": (*PRODUCT, "library", "testing"),
    # What is measured is everything below the surfaces; those are measured as processes.
    "bench": (*PRODUCT, "library", "bench"),
}

# The core decides; it is told the time, the ids and the bytes.
CORE_MAY_IMPORT = frozenset({"msgspec", "onward"}) | sys.stdlib_module_names
# fmt: off
CORE_NEVER_IMPORTS = frozenset((
    "asyncio", "ctypes", "fcntl", "getpass", "glob", "http", "importlib", "io", "locale", "logging",
    "mmap", "multiprocessing", "os", "pathlib", "platform", "pty", "random", "resource", "secrets",
    "select", "selectors", "shutil", "signal", "socket", "socketserver", "sqlite3", "ssl",
    "subprocess", "tempfile", "threading", "time", "urllib.request", "uuid", "webbrowser",
))
# fmt: on
CORE_NEVER_CALLS = frozenset({"open", "print", "input", "breakpoint", "exec", "eval", "__import__"})
CLOCKS = frozenset({"now", "utcnow", "today"})
DATES = frozenset({"datetime", "date"})

LARGEST_MODULE = 600
LARGEST_MEDIAN = 200
VAGUE = frozenset({"util", "utils", "helper", "helpers", "manager", "managers", "common", "misc"})
IMPORTED_LATE = ("asyncio", "importlib.metadata", "sqlite3", "click")
# What onward adds to importing msgspec takes at most as long as this many starts of a bare interpreter.
IMPORT_BUDGET = 3.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Module:
    """One parsed file."""

    name: str
    path: str
    text: str

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    def at(self, node: ast.AST) -> str:
        return f"{self.path}:{getattr(node, 'lineno', 1)}"


def modules(folder: Path, root: Path) -> list[Module]:
    """Every Python file below `folder`, under its dotted name below `root`, except recorded material."""
    found = []
    for file in sorted(folder.rglob("*.py")):
        parts = file.relative_to(root).with_suffix("").parts
        if "fixtures" in parts or "recordings" in parts:
            continue
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found.append(Module(name=name, path=str(file.relative_to(ROOT)), text=file.read_text("utf-8")))
    return found


def imports(module: Module, known: frozenset[str]) -> Iterator[tuple[ast.AST, str]]:
    """What a module imports, wherever in it, late imports and imports for type checking included."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = (
                    module.name.split(".")
                    if module.path.endswith("__init__.py")
                    else module.name.split(".")[:-1]
                )
                base = ".".join([*package[: len(package) - node.level + 1], *([base] if base else [])])
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield node, inner if inner in known else base


def last(expression: ast.expr) -> str:
    """The last name of a dotted one, which is what a thing is called wherever it was imported from."""
    return ast.unparse(expression).split(".")[-1]


def place(name: str) -> str:
    """The part of the package that a module belongs to."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def surface(name: str) -> str:
    """The surface that a module belongs to, or nothing for the package around them."""
    parts = name.split(".")
    return parts[2] if len(parts) > 2 and parts[1] == "surfaces" else ""


def wrong_direction(all_modules: list[Module]) -> Iterator[str]:
    known = frozenset(module.name for module in all_modules)
    for module in all_modules:
        here = place(module.name)
        if here not in MAY_IMPORT:
            yield f"{module.path}: {here} has no place in the direction of imports; give it one in MAY_IMPORT"
            continue
        for node, target in imports(module, known):
            if target.split(".")[0] == "onward" and place(target) not in MAY_IMPORT[here]:
                yield f"{module.at(node)}: {here} may not import {target}"


def surface_imports_surface(all_modules: list[Module]) -> Iterator[str]:
    known = frozenset(module.name for module in all_modules)
    for module in all_modules:
        here = surface(module.name)
        for node, target in imports(module, known):
            there = surface(target)
            if here and there and here != there:
                yield f"{module.at(node)}: the surface {here} may not import the surface {there}"
        # Importing by a name in a text is importing all the same. The table that starts surfaces stands above them.
        for text in ast.walk(module.tree):
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                there = surface(text.value) if text.value.startswith("onward.surfaces.") else ""
                if here and there and here != there:
                    yield f"{module.at(text)}: the surface {here} may not name the surface {there}; start_of does"


def impure_core(all_modules: list[Module]) -> Iterator[str]:
    known = frozenset(module.name for module in all_modules)
    for module in all_modules:
        if place(module.name) != "core":
            continue
        for node, target in imports(module, known):
            if target.split(".")[0] not in CORE_MAY_IMPORT:
                yield f"{module.at(node)}: the core may import the standard library and msgspec, not {target}"
            elif target in CORE_NEVER_IMPORTS or target.split(".")[0] in CORE_NEVER_IMPORTS:
                yield f"{module.at(node)}: the core may not import {target}; pass in what it would give"
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.Call):
                continue
            called = node.func
            if isinstance(called, ast.Name) and called.id in CORE_NEVER_CALLS:
                yield f"{module.at(node)}: the core may not call {called.id}"
            elif isinstance(called, ast.Attribute) and called.attr in CLOCKS and last(called.value) in DATES:
                yield f"{module.at(node)}: the core may not read the clock; pass in the time"


def too_large(all_modules: list[Module]) -> Iterator[str]:
    sizes = {module.path: len(module.text.splitlines()) for module in all_modules}
    for path, size in sizes.items():
        if size > LARGEST_MODULE:
            yield f"{path} has {size} lines; the limit is {LARGEST_MODULE}: split it along a noun"
    if sizes and (median := statistics.median(sizes.values())) > LARGEST_MEDIAN:
        yield f"the median module has {median:g} lines; the limit is {LARGEST_MEDIAN}"


def vaguely_named(all_modules: list[Module]) -> Iterator[str]:
    for module in all_modules:
        for part in module.name.split("."):
            if part.strip("_") in VAGUE:
                yield f"{module.path}: {part} says nothing about what is in it; name the noun"


def undocumented(all_modules: list[Module]) -> Iterator[str]:
    for module in all_modules:
        if any(part.startswith("_") and part != "__main__" for part in module.name.split(".")):
            continue
        tree = module.tree
        if ast.get_docstring(tree) is None:
            yield f"{module.path}: the module has no docstring"
        for node in tree.body:
            if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            overload = any(last(decorator) == "overload" for decorator in node.decorator_list)
            if not node.name.startswith("_") and not overload and ast.get_docstring(node) is None:
                yield f"{module.at(node)}: {node.name} has no docstring"


def unfinished(all_modules: list[Module]) -> Iterator[str]:
    for module in all_modules:
        for number, line in enumerate(module.text.splitlines(), 1):
            if re.search(r"\b(TODO|FIXME)\b", line):
                yield f"{module.path}:{number}: work that is left belongs in the tracker, not in the source"


def sleeping(all_modules: list[Module]) -> Iterator[str]:
    for module in all_modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ImportFrom) and any(alias.name == "sleep" for alias in node.names):
                yield f"{module.at(node)}: {SLEEP}"
            elif isinstance(node, ast.Call) and ast.unparse(node.func) in SLEEPS:
                gives_way = len(node.args) == 1 and ast.unparse(node.args[0]) == "0"
                if not gives_way or ast.unparse(node.func).startswith("time."):
                    yield f"{module.at(node)}: {SLEEP}"


# An engine's own verb of this name puts a process to sleep, which is another matter.
SLEEPS = ("sleep", "time.sleep", "asyncio.sleep")
SLEEP = "a test waits for an event, with a limit; it never sleeps"

PACKAGE = modules(SRC / "onward", SRC)
SUITE = modules(TESTS, ROOT)
PUBLIC_TESTING = [module for module in PACKAGE if place(module.name) == "testing"]

Rule = Callable[[list[Module]], Iterator[str]]


def test_imports_go_from_the_surfaces_to_the_core() -> None:
    none(wrong_direction(PACKAGE))


def test_no_surface_imports_another() -> None:
    none(surface_imports_surface(PACKAGE))


def test_the_core_imports_only_msgspec_and_does_nothing_but_compute() -> None:
    none(impure_core(PACKAGE))


def test_modules_stay_small() -> None:
    none(too_large(PACKAGE))


def test_modules_are_named_for_what_is_in_them() -> None:
    none(vaguely_named(PACKAGE))


def test_everything_public_has_a_docstring() -> None:
    none(undocumented(PACKAGE))


def test_nothing_is_left_to_do_in_the_source() -> None:
    none(unfinished(PACKAGE))


def test_no_test_sleeps() -> None:
    none(sleeping(SUITE + PUBLIC_TESTING))


@pytest.mark.parametrize(
    ("rule", "name", "text"),
    [
        (wrong_direction, "onward.core.x", "import onward.store.sqlite"),
        (wrong_direction, "onward.core.x", "from onward import Onward"),
        (wrong_direction, "onward.core.x", "def late():\n    from onward.service import running"),
        (wrong_direction, "onward.store.x", "from onward.engines import contract"),
        (wrong_direction, "onward.engines.x", "from ..importers import contract"),
        (wrong_direction, "onward.service.x", "from onward import runner\nimport onward.runner"),
        (wrong_direction, "onward.runner", "import onward.surfaces.cli"),
        (wrong_direction, "onward.testing.x", "import onward.surfaces.cli.main"),
        (wrong_direction, "onward.service.x", "import onward.testing"),
        (wrong_direction, "onward.errors", "from onward.core import ids"),
        (wrong_direction, "onward.somewhere", ""),
        (surface_imports_surface, "onward.surfaces.cli.main", "from onward.surfaces.http import app"),
        (surface_imports_surface, "onward.surfaces.mcp", "from .cli import main"),
        (surface_imports_surface, "onward.surfaces.cli.x", "import_module('onward.surfaces.http.serving')"),
        (impure_core, "onward.core.x", "import click"),
        (impure_core, "onward.core.x", "import os.path"),
        (impure_core, "onward.core.x", "from time import time"),
        (impure_core, "onward.core.x", "from random import random"),
        (impure_core, "onward.core.x", "import datetime\ndatetime.datetime.now(datetime.UTC)"),
        (impure_core, "onward.core.x", "from datetime import date\ndate.today()"),
        (impure_core, "onward.core.x", "open('file')"),
        (too_large, "onward.core.x", "\n" * 601),
        (too_large, "onward.core.x", "\n" * 201),
        (vaguely_named, "onward.core.utils", ""),
        (vaguely_named, "onward.store._helpers", ""),
        (undocumented, "onward.core.x", "value = 1"),
        (undocumented, "onward.core.x", '"""Words."""\ndef verb(): ...'),
        (undocumented, "onward.core.x", '"""Words."""\nclass Noun: ...'),
        (unfinished, "onward.core.x", "# TO" + "DO later"),
        (sleeping, "tests.test_x", "import time\ntime.sleep(0)"),
        (sleeping, "tests.test_x", "from time import sleep"),
        (sleeping, "tests.test_x", "async def test():\n    await asyncio.sleep(0.1)"),
    ],
)
def test_a_rule_catches_what_it_forbids(rule: Rule, name: str, text: str) -> None:
    assert len(list(rule([Module(name=name, path=f"{name}.py", text=text)]))) >= 1


@pytest.mark.parametrize(
    ("rule", "name", "text"),
    [
        (wrong_direction, "onward.service.x", "from onward.store import contract\nfrom onward import errors"),
        (wrong_direction, "onward.surfaces.cli.main", "import click\nfrom onward import Onward"),
        (wrong_direction, "onward.testing.x", "import pytest\nfrom onward.store.memory import MemoryStore"),
        (surface_imports_surface, "onward.surfaces.cli.main", "from onward.surfaces.cli import printing"),
        (surface_imports_surface, "onward.surfaces.cli.main", "from onward.surfaces import start_of"),
        (surface_imports_surface, "onward.surfaces", "PLACES = {'http': 'onward.surfaces.http.serving'}"),
        (
            impure_core,
            "onward.core.x",
            "import datetime, hashlib, json, msgspec\nfrom onward.core import ids",
        ),
        (impure_core, "onward.core.x", "def decide(now): return later.now()"),
        (undocumented, "onward.core._x", "def verb(): ..."),
        (unfinished, "onward.importers.x", "TodoWrite = 'todo'"),
        (sleeping, "tests.test_x", "async def test():\n    await asyncio.sleep(0)"),
    ],
)
def test_a_rule_lets_pass_what_it_allows(rule: Rule, name: str, text: str) -> None:
    errors = Module(name="onward.errors", path="errors.py", text='"""Errors."""')
    none(rule([errors, Module(name=name, path=f"{name}.py", text=text)]))


def test_importing_onward_brings_nothing_but_msgspec_and_nothing_slow() -> None:
    program = "import sys; before = {*sys.modules}; import onward; print(*sorted({*sys.modules} - before))"
    answer = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    loaded = answer.stdout.split()
    top = {name.split(".")[0] for name in loaded}
    assert top - sys.stdlib_module_names <= {"onward", "msgspec"}
    assert [name for name in IMPORTED_LATE if name in loaded] == []


def test_importing_onward_costs_little_next_to_starting_python() -> None:
    def start(program: str) -> float:
        begun = time.perf_counter()
        subprocess.run([sys.executable, "-I", "-c", program], timeout=60, check=True)
        return time.perf_counter() - begun

    start("import onward")  # the first one may have to write byte code
    # All in turn and the best of each: what else runs on the machine slows every one of them.
    rounds = [(start("pass"), start("import msgspec"), start("import onward")) for _ in range(9)]
    bare, msgspec, onward = (min(times) for times in zip(*rounds, strict=True))
    assert onward - msgspec <= bare * IMPORT_BUDGET, (
        f"import onward took {onward * 1e3:.0f} ms, import msgspec {msgspec * 1e3:.0f} ms, a bare start {bare * 1e3:.0f} ms"
    )


# Written in pieces, so that this file does not say what it looks for. Homes of made-up people are fine in examples.
PLACEHOLDER = r"(?:user\d*|you|me|dev|someone|somebody|alice|bob|ada|example|name|x+)\b"
MACHINE = re.compile(
    "|".join(
        [
            r"/(?:ho" + r"me|Us" + r"ers)/(?!" + PLACEHOLDER + r")[A-Za-z0-9_]",
            r"[A-Za-z]:\\\\?Us" + r"ers\\\\?(?!" + PLACEHOLDER + r")[A-Za-z0-9_]",
            r"(?<![\w./])/ro" + r"ot/",
            r"(?<![\w./])/wo" + r"rk/(?:main|shared|\.library)\b",
            r"(?<![\w./])/opt/(?:wheels|py" + r"pi)",
            r"py" + r"pi\.org",
            r"python" + r"hosted\.org",
            r"registry\.(?:npm" + r"js|yarn" + r"pkg)\.",
            r"(?:deb|security)\.deb" + r"ian\.org",
            r"(?:static\.|index\.)?crates" + r"\.io",
            r"proxy\.gol" + r"ang\.org",
        ]
    ).encode()
)


def tracked_files(git: Path) -> list[Path]:
    command = [str(git), "-c", "safe.directory=*", "-C", str(ROOT), "ls-files", "-z"]
    names = subprocess.run(command, capture_output=True, timeout=60, check=True).stdout.split(b"\0")
    return [file for name in names if name and (file := ROOT / os.fsdecode(name)).is_file()]


def test_no_file_names_a_machine_or_where_packages_come_from(need: Callable[[str], Path]) -> None:
    # Where this checkout lies is a fact about this machine; a short folder such as /app may be anyone's example.
    here = str(ROOT).encode() if len(ROOT.parts) > 2 else None
    found = []
    for file in tracked_files(need("git")):
        content = file.read_bytes()
        if match := MACHINE.search(content):
            found.append(f"{file.relative_to(ROOT)}: {match.group().decode()}")
        elif here and here in content:
            found.append(f"{file.relative_to(ROOT)}: the path of this checkout")
    none(found)


@pytest.mark.parametrize(
    "text",
    [
        "/ho" + "me/kim/x",
        "/Us" + "ers/kim",
        "C:\\Us" + "ers\\kim",
        "/ro" + "ot/.venv",
        "files.python" + "hosted.org/x",
    ],
)
def test_a_machine_is_recognised(text: str) -> None:
    assert MACHINE.search(text.encode())


@pytest.mark.parametrize(
    "text", ["/home/user0004/x", "/Users/alice/code", "C:\\Users\\you", "the/root/of", "/home/"]
)
def test_an_example_is_no_machine(text: str) -> None:
    assert not MACHINE.search(text.encode())
