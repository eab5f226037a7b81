"""The table of engines side by side: ratios are those of one round."""

from lab.benchmarks import side_by_side

SAMPLES = {"onnx_runtime": [1.0, 2.0, 4.0], "onnx_runtime_int8": [0.5, 0.8, 2.4]}


def test_a_ratio_is_the_median_over_rounds():
    assert side_by_side.ratio(SAMPLES, "onnx_runtime_int8") == 0.5
    assert side_by_side.ratio(SAMPLES, "onnx_runtime") == 1


def test_the_page_has_a_row_for_each_engine_and_its_fastest_call():
    machine = {"processor": "a processor", "instructions": ["avx2"], "load_average": [0.5]}
    content = {"date": "2026-01-01", "machine": machine, "threads": {"1": {"1x32": SAMPLES}}}
    page = "\n".join(side_by_side.page(content))
    assert "ONNX `int8` in ONNX Runtime | 0.50 (500) |" in page
    assert "threads: 1" in page


def test_engines_in_float32_have_the_score_of_the_model():
    forms = {"onnx_runtime_int8": {"score": 79.0}, "openvino": {"score": 80.5}}
    answers = {"tasks": {"SST-2": {"runs": {"1": {"model": 80.0, "forms": forms}}}}}
    scores = side_by_side.scores_of(answers, "SST-2")
    assert scores["saved_model"] == scores["onnx_runtime"] == 80.0
    assert (scores["onnx_runtime_int8"], scores["openvino"]) == (79.0, 80.5)
    assert "tflite_int8" not in scores
    assert side_by_side.scores_of(answers, "RTE") == {}
