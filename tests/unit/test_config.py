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
    PyramidConfig(schedule=EXPONENTIAL, rest_from=4),
    PyramidConfig(schedule=EXPONENTIAL, protect=("query", "separators"), separator=3),
    PyramidConfig(schedule=EXPONENTIAL, spread=True),
    PyramidConfig(schedule=EXPONENTIAL, skip=(2, 5)),
    PyramidConfig(schedule=Schedule.adaptive(0.25)),
]


# ---- defaults ----


def test_the_defaults():
    choosing = {"selector": "coreset", "centers_per_step": 1, "metric": "euclidean", "within": None, "seed": 0}
    reducing = {"reduce": "merge", "weighted": False, "placement": "middle", "cls_only": True}
    resting = {"rest_from": None, "skip": (), "spread": False, "protect": (), "separator": None}
    found = dataclasses.asdict(PyramidConfig(schedule=EXPONENTIAL))
    assert found == {"schedule": found["schedule"], **choosing, **reducing, **resting}
    explicit = PyramidConfig(schedule=EXPONENTIAL, reduce="drop", placement="end")
    assert (explicit.reduce, explicit.placement) == ("drop", "end")


def test_what_selector_and_schedule_decide():
    for name in selector_names():
        schedules = {"pool": [STRIDED], "input-first": [INPUT], "coreset": [EXPONENTIAL, INPUT]}
        for schedule in schedules.get(name, [EXPONENTIAL]):
            config = PyramidConfig(schedule=schedule, selector=name)
            assert config.reduce == ("merge" if name in ("coreset", "cluster", "bipartite") else "drop")
            assert config.placement == ("input" if schedule is INPUT else "middle")


# ---- as a value and as data ----


@pytest.mark.parametrize("config", VALID, ids=lambda config: f"{config.selector}-{config.schedule.kind}")
def test_round_trip_through_json(config):
    data = json.loads(json.dumps(config.to_dict()))
    before = json.dumps(data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = PyramidConfig.from_dict({**data, "library_version": "9.9"})
    assert again == config
    assert again.to_dict() == data
    assert json.dumps(data) == before
    assert data["format"] == FORMAT_VERSION == 1
    assert data["schedule"] == config.schedule.to_dict()
    assert ("rest_from" in data) == (config.rest_from is not None)
    assert ("skip" in data) == bool(config.skip)


def test_replace_makes_a_changed_and_validated_copy():
    config = PyramidConfig(schedule=EXPONENTIAL)
    changed = config.replace(centers_per_step="all", seed=3)
    assert (changed.centers_per_step, changed.seed, changed.schedule) == ("all", 3, EXPONENTIAL)
    assert (config.centers_per_step, config.seed) == (1, 0)
    with pytest.raises(UnknownNameError):
        config.replace(metric="manhattan")
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.selector = "first"


def test_unknown_settings_warn_by_name_and_are_left_out():
    data = {**PyramidConfig(schedule=EXPONENTIAL).to_dict(), "zoom": 1, "angle": 2}
    with pytest.warns(UserWarning, match="^ignoring unknown pyramid settings: angle, zoom$"):
        assert PyramidConfig.from_dict(data) == PyramidConfig(schedule=EXPONENTIAL)


# ---- errors ----


@pytest.mark.parametrize("version", [FORMAT_VERSION + 1, None, "1"])
def test_a_format_from_the_future_or_from_elsewhere(version):
    data = {**PyramidConfig(schedule=EXPONENTIAL).to_dict(), "format": version}
    message = f"saved in format {version!r} and this release reads up to 1; upgrade with: pip install -U pyramid-bert"
    with pytest.raises(PyramidError, match=re.escape(message)):
        PyramidConfig.from_dict(data)


def test_a_saved_config_without_its_schedule():
    with pytest.raises(PyramidError, match="a saved pyramid needs a 'schedule'; the config is damaged"):
        PyramidConfig.from_dict({"format": 1, "selector": "first"})


KNOWN = "attention, bipartite, cls-attention, cluster, coreset, first, input-first, pool, random"
NO_CENTERS = "centers_per_step must be an int of at least 1, a fraction in (0, 1) or 'all', got {!r}; 1 covers best"
NO_FIT = "placement {!r} and a schedule of kind {!r} do not fit: selection at the input happens once and takes Sch"
POOLS = "the selector 'pool' averages by itself; leave reduce='drop' and weighted=False"
REFUSED = [
    ({"schedule": [8, 4]}, "schedule must be a Schedule, got list; for example Schedule.exponential(keep_ratio=0.25,"),
    ({"selector": "corset"}, f"unknown selector 'corset'; did you mean 'coreset'? Known: {KNOWN}"),
    ({"reduce": "dropp"}, "unknown reduce 'dropp'; did you mean 'drop'? Known: drop, merge, replace"),
    ({"placement": "midle"}, "unknown placement 'midle'; did you mean 'middle'? Known: end, input, middle"),
    ({"metric": "cosin"}, "unknown metric 'cosin'; did you mean 'cosine'? Known: cosine, euclidean, sensitivity"),
    *(({"centers_per_step": m}, NO_CENTERS.format(m)) for m in (0, -1, 0.0, 1.0, 1.5, True, "most", None)),
    *(({"selector": "random", "seed": seed}, "seed must be an integer in 0-") for seed in (None, 1.5, "7", -1)),
    (
        {"selector": "input-first", "placement": "middle"},
        "the selector 'input-first' works with placement='input' only, got 'middle'",
    ),
    ({"selector": "input-first"}, NO_FIT.format("input", "exponential")),
    ({"placement": "input"}, NO_FIT.format("input", "exponential")),
    ({"schedule": STRIDED, "placement": "input"}, NO_FIT.format("input", "strided")),
    ({"schedule": INPUT, "placement": "middle"}, NO_FIT.format("middle", "input_only")),
    ({"schedule": INPUT, "placement": "end"}, NO_FIT.format("end", "input_only")),
    (
        {"schedule": INPUT, "selector": "attention"},
        "the selector 'attention' cannot select at the input: no attention has been computed there; use 'coreset',",
    ),
    ({"metric": "sensitivity", "placement": "end"}, "sensitivity is measured in the middle of layers, got placement"),
    ({"selector": "pool"}, "the selector 'pool' takes Schedule.strided(window, at_layers), got a schedule of kind 'ex"),
    *(({"schedule": STRIDED, "selector": "pool", "reduce": how}, POOLS) for how in ("merge", "replace")),
    ({"schedule": STRIDED, "selector": "pool", "weighted": True}, POOLS),
    (
        {"reduce": "replace", "weighted": True},
        "with reduce='replace' every token is still there and needs no weight; leave weighted=False, or use reduce='d",
    ),
    *(
        ({"selector": "cluster", "reduce": how}, f"the selector 'cluster' merges by itself, got reduce='{how}'")
        for how in ("drop", "replace")
    ),
    ({"selector": "cluster", "centers_per_step": "all"}, "the selector 'cluster' has no centres, got centers_per_step"),
    ({"within": 3}, "within goes with the selector 'cluster', got 'coreset'"),
    *(({"selector": "cluster", "within": n}, f"within must be an integer of at least 1, got {n}") for n in (0, 2.5)),
    ({"rest_from": 1}, "rest_from must be an integer of at least 2, got 1"),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED, ids=[str(settings) for settings, _ in REFUSED])
def test_what_is_refused(settings, message):
    with pytest.raises(PyramidError, match=f"^{re.escape(message)}"):
        PyramidConfig(**{"schedule": EXPONENTIAL, **settings})


def test_no_speed_up_is_claimed_for_full_lengths():
    PyramidConfig(schedule=EXPONENTIAL).check_saves()
    with pytest.raises(PyramidError, match=r"saves nothing.*reduce='drop', weighted=True gives the same logits"):
        PyramidConfig(schedule=EXPONENTIAL, reduce="replace").check_saves()
