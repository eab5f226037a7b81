"""The computed costs of docs/costs.md: the formula by hand, and the tables that the script prints."""

import re

import pytest

from tests.helpers import ROOT, run_script


def printed(*flags):
    return run_script("-m lab.tools.scaling_table", *flags)


def test_the_document_holds_what_the_script_prints():
    result = printed()
    assert result.returncode == 0, result.stderr
    tables = result.stdout.split("\n\n")
    assert len(tables) == 4
    document = (ROOT / "docs" / "costs.md").read_text()
    for table in tables:
        assert table.strip() in document


def test_operations_are_those_of_the_matrix_products():
    # 2 layers would not do: the script knows models by name. One product after the other, for bert-large.
    length, width, inner, vocab_size = 512, 1024, 4096, 30000
    layer = 4 * [(length, width, width)] + [(length, width, inner), (length, inner, width)]
    layer += 16 * [(length, 64, length), (length, length, 64)]  # scores and context of 16 heads
    predictions = [(10, width, width), (10, width, vocab_size)]
    sentence = [(1, width, width), (1, width, 2)]
    forward = sum(2 * m * k * n for m, k, n in [*(24 * layer), *predictions, *sentence])
    flags = ["--max_predictions_per_seq=10", "--num_train_steps=1", "--train_batch_size=1000"]
    [row] = [line for line in printed(*flags).stdout.splitlines() if "| bert-large | 1." in line]
    assert row == f"| bert-large | {3e-12 * forward:.3f} | {3e-12 * forward:.2f} | 0 |"


def test_prices_and_utilization_are_parameters():
    [row] = [line for line in printed("--prices=v3=1").stdout.splitlines() if "v3-8 | 4.00" in line]
    [dollars] = re.findall(r", (\$\S+) \| ", row)[:1]
    double = printed("--prices=v3=2", "--utilization=0.8").stdout
    assert re.search(rf"\| TPU v3-8 \| 8\.00 \| [\d.]+ d, {re.escape(dollars)} \|", double)


@pytest.mark.parametrize(("prices", "message"), [("x", "must be like"), ("v9=1", "chip: v9")])
def test_wrong_prices(prices, message):
    result = printed(f"--prices={prices}")
    assert result.returncode == 2 and result.stderr.count("\n") == 1
    assert re.search(message, result.stderr)
