"""Recipes change each other, a target is reached between two evaluations, and the page shows medians of seeds."""

import tomllib

import pytest

from lab.small_en.speedrun import RECIPES, crossing, page_table, recipe_of

DECLARED = {
    "common": {
        "model": {"a": 1, "b": 2},
        "records": {},
        "training": {"rate": 3},
        "phases": [{}],
        "initial_values": "",
    },
    "recipes": {
        "plain": {"what": "everything usual"},
        "fast": {"changes": "plain", "what": "another rate", "training": {"rate": 4}},
        "long": {
            "changes": "fast",
            "what": "two phases",
            "model": {"b": 5},
            "phases": [{"steps": 6}, {}],
        },
    },
}


def test_a_recipe_has_the_values_of_the_one_that_it_changes():
    assert recipe_of(DECLARED, "long") == {
        "model": {"a": 1, "b": 5},
        "records": {},
        "training": {"rate": 4},
        "phases": [{"steps": 6}, {}],
        "initial_values": "",
    }
    assert recipe_of(DECLARED, "plain")["training"] == {"rate": 3}


def test_every_recipe_of_the_laboratory_is_complete():
    declared = tomllib.loads(RECIPES.read_text())
    for name, recipe in declared["recipes"].items():
        whole = recipe_of(declared, name)
        assert (
            recipe["what"]
            and whole["model"]["num_hidden_layers"]
            and whole["training"]["optimizer"]
        )
        assert "steps" not in whole["phases"][-1] and all(
            each["steps"] for each in whole["phases"][:-1]
        )


def test_the_target_is_reached_between_two_evaluations():
    curve = [(0.0, 0.0), (10.0, 0.1), (30.0, 0.2), (40.0, 0.15)]
    assert crossing(curve, 0.15) == pytest.approx(20)
    assert crossing(curve, 0.05) == pytest.approx(5)
    assert crossing(curve, 0.3) is None


def test_the_page_shows_the_median_in_steps_of_plain_or_the_best_accuracy():
    def run(recipe, seed, seconds, curve=((0.0, 0.0), (9.0, 0.11))):
        about = {"recipe": recipe, "seed": seed, "date": "2026-01-02", "commit": "abc"}
        return {**about, "reference_step": 0.5, "seconds": seconds, "curve": [*curve]}

    results = [run("fast", 1, 100), run("fast", 2, 300), run("fast", 3, 120), run("long", 1, None)]
    assert page_table(DECLARED, results)[2:] == [
        "| `fast` | another rate | 240 | 200 to 600 | 3 | 2026-01-02 | abc |",
        "| `long` | two phases | not reached (11.0%) |  | 1 | 2026-01-02 | abc |",
    ]
