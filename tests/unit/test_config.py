import dataclasses
import json
import re
import warnings

import pytest

from pyramid_bert.config import FORMAT_VERSION, PyramidConfig
from pyramid_bert.core.selectors import selector_names
from pyramid_bert.errors import PyramidError, UnknownNameError
from pyramid_bert.schedule.base import Schedule

EXPONENTIAL = Schedule.exponential(0.25, 3)
INPUT = Schedule.input_only(0.3)
STRIDED = Schedule.strided(2, at_layers=[1, 3])

VALID = [
    PyramidConfig(schedule=EXPONENTIAL),
    PyramidConfig(schedule=EXPONENTIAL, selector="first", weighted=True, placement="end"),
    PyramidConfig(schedule=EXPONENTIAL, selector="attention", reduce="merge", cls_only=False),
    PyramidConfig(schedule=EXPONENTIAL, selector="random", seed=7),
    PyramidConfig(schedule=EXPONENTIAL, reduce="replace"),
    PyramidConfig(schedule=EXPONENTIAL, centers_per_step=0.4, metric="cosine"),
    PyramidConfig(schedule=EXPONENTIAL, centers_per_step=3),
    PyramidConfig(schedule=EXPONENTIAL, centers_per_step="all"),
    PyramidConfig(schedule=Schedule.custom([9, 5, 3], n=12)),
    PyramidConfig(schedule=INPUT),
    PyramidConfig(schedule=INPUT, selector="input-first"),
    PyramidConfig(schedule=STRIDED, selector="pool"),
    PyramidConfig(schedule=EXPONENTIAL, selector="cluster", metric="cosine", within=8),
]


def raises_saying(message, error=PyramidError):
    return pytest.raises(error, match=f"^{re.escape(message)}$")


# ---- defaults ----


def test_the_defaults():
    config = PyramidConfig(schedule=EXPONENTIAL)
    assert dataclasses.asdict(config) | {"schedule": None} == {
        "schedule": None,
        "selector": "coreset",
        "reduce": "merge",
        "weighted": False,
        "placement": "middle",
        "centers_per_step": 1,
        "metric": "euclidean",
        "within": None,
        "cls_only": True,
        "rest_from": None,
        "seed": 0,
    }


@pytest.mark.parametrize(
    ("selector", "schedule", "reduce", "placement"),
    [
        ("coreset", EXPONENTIAL, "merge", "middle"),
        ("attention", EXPONENTIAL, "drop", "middle"),
        ("first", EXPONENTIAL, "drop", "middle"),
        ("random", EXPONENTIAL, "drop", "middle"),
        ("pool", STRIDED, "drop", "middle"),
        ("cluster", EXPONENTIAL, "merge", "middle"),
        ("cluster", INPUT, "merge", "input"),
        ("input-first", INPUT, "drop", "input"),
        ("coreset", INPUT, "merge", "input"),
        ("random", INPUT, "drop", "input"),
    ],
)
def test_what_selector_and_schedule_decide(selector, schedule, reduce, placement):
    config = PyramidConfig(schedule=schedule, selector=selector)
    assert (config.reduce, config.placement) == (reduce, placement)


def test_an_explicit_choice_is_kept():
    config = PyramidConfig(schedule=EXPONENTIAL, reduce="drop", placement="end")
    assert (config.reduce, config.placement) == ("drop", "end")


def test_every_registered_selector_has_a_valid_config():
    schedules = {"pool": STRIDED, "input-first": INPUT}
    for name in selector_names():
        assert PyramidConfig(schedule=schedules.get(name, EXPONENTIAL), selector=name).selector == name


# ---- as a value and as data ----


@pytest.mark.parametrize("config", VALID, ids=lambda config: f"{config.selector}-{config.schedule.kind}")
def test_round_trip_through_json(config):
    data = json.loads(json.dumps(config.to_dict()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = PyramidConfig.from_dict(data)
    assert again == config
    assert again.to_dict() == data


def test_the_dict_carries_the_format_and_the_schedule_as_data():
    data = PyramidConfig(schedule=EXPONENTIAL).to_dict()
    assert data["format"] == FORMAT_VERSION == 1
    assert data["schedule"] == EXPONENTIAL.to_dict()


def test_a_config_cannot_be_changed():
    config = PyramidConfig(schedule=EXPONENTIAL)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.selector = "first"


def test_replace_makes_a_changed_copy():
    config = PyramidConfig(schedule=EXPONENTIAL)
    changed = config.replace(centers_per_step="all", seed=3)
    assert (changed.centers_per_step, changed.seed) == ("all", 3)
    assert (config.centers_per_step, config.seed) == (1, 0)
    assert changed.schedule == EXPONENTIAL


def test_replace_validates():
    with pytest.raises(UnknownNameError):
        PyramidConfig(schedule=EXPONENTIAL).replace(metric="manhattan")


def test_the_library_version_is_no_setting():
    data = {**PyramidConfig(schedule=EXPONENTIAL).to_dict(), "library_version": "9.9"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert PyramidConfig.from_dict(data) == PyramidConfig(schedule=EXPONENTIAL)


def test_unknown_settings_warn_by_name_and_are_left_out():
    data = {**PyramidConfig(schedule=EXPONENTIAL).to_dict(), "zoom": 1, "angle": 2}
    with pytest.warns(UserWarning, match="^ignoring unknown pyramid settings: angle, zoom$"):
        assert PyramidConfig.from_dict(data) == PyramidConfig(schedule=EXPONENTIAL)


def test_from_dict_leaves_its_argument_alone():
    data = PyramidConfig(schedule=EXPONENTIAL).to_dict()
    before = json.dumps(data)
    PyramidConfig.from_dict(data)
    assert json.dumps(data) == before


# ---- errors ----


@pytest.mark.parametrize("version", [FORMAT_VERSION + 1, None, "1"])
def test_a_format_from_the_future_or_from_elsewhere(version):
    data = {**PyramidConfig(schedule=EXPONENTIAL).to_dict(), "format": version}
    with raises_saying(
        f"this pyramid was saved in format {version!r} and this release reads up to {FORMAT_VERSION}; "
        "upgrade with: pip install -U pyramid-bert"
    ):
        PyramidConfig.from_dict(data)


def test_a_saved_config_without_its_schedule():
    with raises_saying("a saved pyramid needs a 'schedule'; the config is damaged"):
        PyramidConfig.from_dict({"format": 1, "selector": "first"})


def test_a_schedule_of_the_wrong_type():
    with raises_saying(
        "schedule must be a Schedule, got list; for example Schedule.exponential(keep_ratio=0.25, last_layer=3)"
    ):
        PyramidConfig(schedule=[8, 4])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            {"selector": "corset"},
            "unknown selector 'corset'; did you mean 'coreset'? "
            "Known: attention, cls-attention, cluster, coreset, first, input-first, pool, random",
        ),
        ({"reduce": "dropp"}, "unknown reduce 'dropp'; did you mean 'drop'? Known: drop, merge, replace"),
        ({"placement": "midle"}, "unknown placement 'midle'; did you mean 'middle'? Known: end, input, middle"),
        ({"metric": "cosin"}, "unknown metric 'cosin'; did you mean 'cosine'? Known: cosine, euclidean, sensitivity"),
    ],
)
def test_unknown_names(setting, message):
    with raises_saying(message, UnknownNameError):
        PyramidConfig(schedule=EXPONENTIAL, **setting)


@pytest.mark.parametrize("value", [0, -1, 0.0, 1.0, 1.5, True, "most", None])
def test_centers_per_step_out_of_range(value):
    with raises_saying(
        f"centers_per_step must be an int of at least 1, a fraction in (0, 1) or 'all', got {value!r}; "
        "1 covers best, 'all' is fastest"
    ):
        PyramidConfig(schedule=EXPONENTIAL, centers_per_step=value)


def test_a_selector_with_a_placement_of_its_own():
    with raises_saying("the selector 'input-first' works with placement='input' only, got 'middle'"):
        PyramidConfig(schedule=EXPONENTIAL, selector="input-first", placement="middle")


@pytest.mark.parametrize(
    ("schedule", "placement"),
    [(EXPONENTIAL, "input"), (STRIDED, "input"), (INPUT, "middle"), (INPUT, "end")],
)
def test_placement_and_schedule_that_do_not_fit(schedule, placement):
    with raises_saying(
        f"placement {placement!r} and a schedule of kind {schedule.kind!r} do not fit: selection at the input happens "
        "once and takes Schedule.input_only(keep_ratio), any other placement another schedule"
    ):
        PyramidConfig(schedule=schedule, placement=placement)


def test_input_first_needs_an_input_schedule():
    with pytest.raises(PyramidError, match=r"takes Schedule\.input_only\(keep_ratio\)"):
        PyramidConfig(schedule=EXPONENTIAL, selector="input-first")


def test_no_attention_at_the_input():
    with raises_saying(
        "the selector 'attention' cannot select at the input: no attention has been computed there; "
        "use 'coreset', 'first' or 'random'"
    ):
        PyramidConfig(schedule=INPUT, selector="attention")


def test_pooling_needs_a_strided_schedule():
    with raises_saying(
        "the selector 'pool' takes Schedule.strided(window, at_layers), got a schedule of kind 'exponential'"
    ):
        PyramidConfig(schedule=EXPONENTIAL, selector="pool")


@pytest.mark.parametrize("setting", [{"reduce": "merge"}, {"reduce": "replace"}, {"weighted": True}])
def test_pooling_averages_by_itself(setting):
    with raises_saying("the selector 'pool' averages by itself; leave reduce='drop' and weighted=False"):
        PyramidConfig(schedule=STRIDED, selector="pool", **setting)


def test_copies_need_no_weight():
    with pytest.raises(PyramidError, match="needs no weight; leave weighted=False, or use reduce='drop', weighted"):
        PyramidConfig(schedule=EXPONENTIAL, reduce="replace", weighted=True)


def test_no_speed_up_is_claimed_for_full_lengths():
    PyramidConfig(schedule=EXPONENTIAL).check_saves()
    with pytest.raises(PyramidError, match=r"saves nothing.*reduce='drop', weighted=True gives the same logits"):
        PyramidConfig(schedule=EXPONENTIAL, reduce="replace").check_saves()


@pytest.mark.parametrize("seed", [None, 1.5, "7"])
def test_the_seed_is_a_whole_number(seed):
    with pytest.raises(PyramidError, match=f"seed must be an integer.*got {seed!r}"):
        PyramidConfig(schedule=EXPONENTIAL, selector="random", seed=seed)
