"""What a run says about itself: the advice after a collapse."""

import pytest

from albert_tf.training.results import advice_after_collapse

ADVICE = {
    "lower": ": a lower --learning_rate",
    "higher": ": a higher --learning_rate than 0.0003",
    "steps": ", it was still falling: more steps may help",
    "seed": "another --seed, a lower",
    "few": "more steps, or another --seed",
}


@pytest.mark.parametrize(
    ("losses", "rate", "expected"),
    [
        ([1.80, 1.84, 1.85, 1.81, 1.80, 1.79, 1.80, 1.79], 3e-4, "lower"),  # rose
        ([1.80, 1.60, 1.50, 1.40, 1.70, 1.75, 1.76, 1.77], 3e-4, "lower"),  # fell and came back
        ([1.80, 1.79, 1.80, 1.79, 1.79, 1.79, 1.78, 1.79], 3e-4, "higher"),
        ([1.80, 1.79, 1.80, 1.79, 1.79, 1.79, 1.78, 1.79], 2e-3, "lower"),  # above the default
        ([1.80, 1.70, 1.50, 1.30, 1.10, 0.90, 0.80, 0.70], 3e-4, "steps"),
        ([1.80, 1.70, 1.50, 1.30, 1.10, 0.90, 0.91, 0.89], 3e-4, "steps"),
        ([1.80, 1.70, 1.50, 1.30, 1.11, 1.09, 1.10, 1.10], 3e-4, "seed"),
        ([1.80, 1.70], 3e-4, "steps"),
        ([1.80], 3e-4, "few"),
        ([], 3e-4, "few"),
    ],
)
def test_the_advice_after_a_collapse_follows_the_training_loss(losses, rate, expected):
    advice = advice_after_collapse(losses, rate, usual_rate=1e-3)
    [found] = [name for name, words in ADVICE.items() if words in advice]
    assert found == expected, advice


def test_the_advice_names_the_losses_and_the_default():
    losses = [0.690, 0.692, 0.688, 0.691]
    advice = advice_after_collapse(losses, 0.02, usual_rate=1e-4)
    assert "went from 0.690 to 0.691, it did not move" in advice and "default is 0.0001" in advice
    assert "default" not in advice_after_collapse(losses, 0.02, usual_rate=None)
