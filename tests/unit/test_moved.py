"""Old module names work for one release, and warn."""

import importlib
import sys

import pytest

from pyramid_bert._moved import MOVED

OLD = {
    "data": ["read_table", "Encoded", "collate", "shuffled", "TASKS", "load_lra"],
    "data.pathfinder": ["draw_pathfinder"],
    "encoder": ["PyramidEncoder"],
    "explanation": ["Explanation", "LayerView"],
    "hub": ["pyramidize", "restore"],
    "inference": ["outputs_of"],
    "labels": ["Labels"],
    "loading": ["load_model"],
    "lra": ["load_presets"],
    "metrics": ["metrics_of"],
    "models": ["PerformerConfig", "favor_attention"],
    "optimization": ["optimize"],
    "reduction": ["Reduction"],
    "report": ["report_html"],
    "search": ["find_pyramid", "Method"],
    "select": ["k_center_greedy", "selector_names"],
    "sensitivity": ["measure_sensitivity"],
    "study": ["load_study"],
    "theory": ["measure_theorem"],
    "tokens": ["Tokens"],
    "trace": ["Trace"],
    "tracing": ["explain"],
    "viz": ["token_pyramid"],
}


@pytest.mark.parametrize("old", MOVED)
def test_an_old_module_warns_and_has_its_names(old):
    for name in [name for name in sys.modules if name == f"pyramid_bert.{old}"]:
        del sys.modules[name]
    with pytest.warns(DeprecationWarning, match=rf"pyramid_bert\.{old} is now pyramid_bert\.{MOVED[old][0]}"):
        module = importlib.import_module(f"pyramid_bert.{old}")
    for name in OLD[old]:
        assert getattr(module, name) is not None


@pytest.mark.filterwarnings("ignore:pyramid_bert.search is now")
def test_a_name_that_never_was_is_refused():
    with pytest.raises(ImportError, match="no_such_name"):
        from pyramid_bert.search import no_such_name  # noqa: F401


def test_the_solvers_of_bench_are_in_tune():
    from pyramid_bert import bench, tune

    with pytest.warns(DeprecationWarning, match=r"bench\.solve_speedup is now pyramid_bert\.tune\.solve_speedup"):
        assert bench.solve_speedup is tune.solve_speedup
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = bench.no_such_name
