"""The one-way order of imports, and the size of files and functions."""

import ast
from pathlib import Path

import pytest

import pyramid_bert

PACKAGE = Path(pyramid_bert.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

# From the ground up: a module may import those in the groups below its own, and its neighbours in a group.
LAYERS = [
    {"errors", "version", "_moved"},
    {"checks", "cores", "files", "boundary", "estimator", "progress", "counting", "resuming"},
    {"schedule", "cost"},
    {"core"},
    {"config"},
    {"planning"},
    {"families"},
    {"runtimes"},
    {"text"},
    {"ranking"},
    {"training", "bench"},
    {"certificate", "front"},
    {"explain", "parameters"},
    {"export"},
    {"classifier"},
    {"reranker"},
    {"tune"},
    {"testing"},
    {"demo"},
    {"lab"},
    {"cli"},
    {"__init__", "__main__"},
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
NO_RANK = len(LAYERS)

# A schedule can be asked for by its speed: the import stands inside the method that does it.
UPWARD_ON_PURPOSE = {("schedule", "tune")}

KNOW_TRANSFORMERS = {"families", "training", "bench", "testing", "lab"}
NO_TORCH = {"errors", "version", "checks", "cores", "boundary", "files", "progress", "resuming", "estimator"}
NO_TORCH |= {"schedule", "cost"}

# What only families/ may ask a model or its config for, and the files that define or build a model themselves.
ONLY_FAMILIES = {"bert", "pooler", "max_position_embeddings", "encoder.layer", "classifier.in_features"}
BUILD_THEIR_OWN = ("lab/performer/", "lab/lra/models.py")

# Files of other rooms that have to load without torch: `--help` and experiment files need them.
NO_TORCH_FILES = {f"lab/study/{name}.py" for name in ("__init__", "experiment", "grid", "methods", "spec")}
NO_TORCH_FILES |= {"lab/lra/__init__.py", "lab/lra/presets.py"}
NO_TORCH_FILES |= {f"explain/{name}.py" for name in ("__init__", "explanation", "html", "terminal")}


def room(path):
    """The first name below the package: "core" for core/coreset.py."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def dotted(path):
    return [PACKAGE.name, *path.relative_to(PACKAGE).with_suffix("").parts]


def imported_names(path, source):
    """The full dotted name of everything that a file imports, in functions and under TYPE_CHECKING as well."""
    inside = dotted(path)[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = inside[: len(inside) - node.level + 1] if node.level else []
            module = [*start, *(node.module.split(".") if node.module else [])]
            yield from (".".join([*module, alias.name]) for alias in node.names)


def rooms_imported(path, source):
    """The rooms of this package that a file imports from; "__init__" for a name of the package itself."""
    for name in imported_names(path, source):
        parts = name.split(".")
        if parts[0] == PACKAGE.name:
            target = parts[1] if len(parts) > 1 else "__init__"
            is_room = (PACKAGE / target).is_dir() or (PACKAGE / f"{target}.py").exists()
            yield target if is_room else "__init__"


def upward_imports(path, source):
    here = room(path)
    return sorted(
        {
            target
            for target in rooms_imported(path, source)
            if RANK.get(target, NO_RANK) > RANK.get(here, NO_RANK) and (here, target) not in UPWARD_ON_PURPOSE
        }
    )


def functions(source):
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))


# ---- the checker itself ----


@pytest.mark.parametrize(
    ("file", "source", "expected"),
    [
        ("cost.py", "from .families import pyramidize", ["families"]),
        ("cost.py", "from . import families", ["families"]),
        ("cost.py", "import pyramid_bert.families", ["families"]),
        ("cost.py", "from pyramid_bert.families import pyramidize", ["families"]),
        ("cost.py", "def f():\n    from .families import pyramidize", ["families"]),
        ("cost.py", "if TYPE_CHECKING:\n    from .families import pyramidize", ["families"]),
        ("cost.py", "from . import __version__", ["__init__"]),
        ("cost.py", "from pyramid_bert import Schedule", ["__init__"]),
        ("cost.py", "import pyramid_bert", ["__init__"]),
        ("cost.py", "from .errors import PyramidError\nimport torch", []),
        ("cost.py", "from .tune import solve_speedup", ["tune"]),
        ("schedule/base.py", "from ..tune import solve_speedup", []),  # the one exception
        ("core/coreset.py", "from ..config import PyramidConfig", ["config"]),
        ("core/coreset.py", "from .selectors import register\nfrom ..errors import PyramidError", []),
    ],
)
def test_upward_imports_are_found_wherever_they_stand(file, source, expected):
    assert upward_imports(PACKAGE / file, source) == expected


# ---- the package ----


def test_no_module_stands_where_a_public_name_is_expected():
    """Python puts every module it imports into its package, over a name that is loaded on first use."""
    assert {"errors", "schedule", "core", "families", "lab", "__init__"} <= {room(path) for path in FILES}
    assert not {room(path) for path in FILES} & set(pyramid_bert.__all__)


@every_file
def test_imports_run_one_way(path):
    assert room(path) in RANK, f"give {room(path)!r} a place in LAYERS"
    assert upward_imports(path, path.read_text(encoding="utf-8")) == []


def test_rooms_do_not_import_each_other_in_a_circle():
    graph = {}
    for path in FILES:
        here, source = room(path), path.read_text(encoding="utf-8")
        targets = {t for t in rooms_imported(path, source) if t != here and (here, t) not in UPWARD_ON_PURPOSE}
        graph.setdefault(here, set()).update(targets)
    while graph:  # take away what depends on nothing that is left
        free = [name for name, targets in graph.items() if not targets & graph.keys()]
        assert free, f"a circle among {sorted(graph)}"
        for name in free:
            del graph[name]


@every_file
def test_only_some_know_transformers(path):
    names = imported_names(path, path.read_text(encoding="utf-8"))
    if any(name.split(".")[0] == "transformers" for name in names):
        assert room(path) in KNOW_TRANSFORMERS


NEED_TORCH = {"encoder.py", "tables.py", "writing.py", "ledger.py"}


@every_file
def test_the_method_knows_no_torch(path):
    """It runs on numpy arrays too. Only a torch model, the tables of its embeddings and what exports it need torch."""
    if room(path) in ("core", "config", "planning", "export") and path.name not in NEED_TORCH:
        assert "torch" not in {name.split(".")[0] for name in imported_names(path, path.read_text(encoding="utf-8"))}


@every_file
def test_some_know_no_torch(path):
    names = imported_names(path, path.read_text(encoding="utf-8"))
    if room(path) in NO_TORCH or path.relative_to(PACKAGE).as_posix() in NO_TORCH_FILES:
        assert not {name.split(".")[0] for name in names} & {"torch", "numpy"}


def parts_named(source):
    """What a source asks a family's model for by name: every such attribute, with the one before it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            before = node.value.attr if isinstance(node.value, ast.Attribute) else ""
            if node.attr in ONLY_FAMILIES or f"{before}.{node.attr}" in ONLY_FAMILIES:
                yield node.attr


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("model.bert.encoder", ["bert"]),
        ("model.config.max_position_embeddings", ["max_position_embeddings"]),
        ("base_model(model).encoder.layer[0]", ["layer"]),
        ("encoder.layer, pyramid_encoder(model).layer", []),  # a pyramid's own
    ],
)
def test_names_of_parts_are_found(source, expected):
    assert list(parts_named(source)) == expected


@every_file
def test_only_families_know_where_the_parts_of_a_model_are(path):
    if room(path) != "families" and not path.relative_to(PACKAGE).as_posix().startswith(BUILD_THEIR_OWN):
        assert list(parts_named(path.read_text(encoding="utf-8"))) == [], "ask pyramid_bert.families for it"


@every_file
def test_files_are_shorter_than_400_lines(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) < 400


@every_file
def test_functions_are_shorter_than_60_lines(path):
    lengths = {node.name: node.end_lineno - node.lineno + 1 for node in functions(path.read_text(encoding="utf-8"))}
    assert {name: length for name, length in lengths.items() if length >= 60} == {}
