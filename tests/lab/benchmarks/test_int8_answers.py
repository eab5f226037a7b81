"""The table of answers in int8: medians over runs, with their range where they differ."""

from lab.benchmarks import int8_answers


def test_a_row_has_the_median_and_the_range_over_runs():
    def run(changed, accuracy):
        cell = {"changed": changed, "accuracy": accuracy}
        return {form: {"ONNX Runtime": cell, "OpenVINO": cell} for form in int8_answers.FORMS}

    results = {"SST-2": {"texts": 7, "runs": [run(0, 0.5), run(2, 0.75), run(1, 0.5)]}}
    lines = int8_answers.rows(results)
    assert len(lines) == 2 + len(int8_answers.FORMS)
    cell = "1 (0 to 2), 0.5 (0.5 to 0.75)"
    assert lines[2] == f"| SST-2 | 7 | float32 | {cell} | {cell} |"


def test_the_page_has_the_committed_numbers():
    page = int8_answers.PAGE.read_text()
    results = int8_answers.files.read_json(str(int8_answers.RESULTS))
    assert int8_answers.with_table(page, "answers", int8_answers.rows(results)) == page
