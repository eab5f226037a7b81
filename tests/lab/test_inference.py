"""What the programs that compare engines and forms say about their results."""

from lab import inference, tune_check

INSTRUCTIONS = ["avx2", "avx512f", "avx512_vnni"]


def way(speed, cosine, milliseconds, is_ours):
    return {
        inference.SPEED: speed,
        "median_cosine": cosine,
        inference.ONE_TEXT: milliseconds,
        "is_ours": is_ours,
    }


WAYS = {
    "float32, ONNX Runtime": way(20.0, 1.0, 6.0, True),
    "int8_calibrated, OpenVINO": way(60.0, 0.999, 4.0, True),
    "int8_rows, ONNX Runtime": way(50.0, 0.9985, 3.0, True),
    "int8, ONNX Runtime": way(90.0, 0.99, 2.0, True),
    "OpenVINO, float32": way(30.0, 1.0, 5.0, False),
    "OpenVINO, NNCF": way(80.0, 0.987, 4.5, False),
}
SHARED = {"none": {"ratio": 0.7}, "int8": {"ratio": 0.9}}


def test_the_conclusion_compares_ways_that_are_near_enough():
    text = inference.conclusion({"ways": WAYS, "one_text_of_16_tokens": SHARED})
    assert "the fastest of ours is int8_calibrated in OpenVINO." in text
    assert "It has 2.00 times the speed of the fastest of the others, float32 in OpenVINO." in text
    assert "the fastest is NNCF in OpenVINO (cosine 0.987), and ours has 0.75 times its" in text
    assert "int8_rows in ONNX Runtime is the fastest of the ways with this cosine (3.0 ms)" in text


def test_the_conclusion_does_not_name_the_same_way_of_others_twice():
    ways = {name: way for name, way in WAYS.items() if name != "OpenVINO, NNCF"}
    text = inference.conclusion({"ways": ways, "one_text_of_16_tokens": SHARED})
    assert "Of all others" not in text


def test_the_table_of_choices_has_what_each_loses():
    run = {
        "model": "m",
        "instructions": INSTRUCTIONS,
        "texts_per_processor_second": {"int8": 90.0, "int8_rows": 50.0, "float32": 20.0},
        "exact_enough": ["int8_rows", "float32"],
        "chosen": ["float32", "int8_rows", "float32"],
        "lost": [0.6, 0.0, 0.6],
    }
    row = tune_check.table_of([run])[-1]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells == [
        "m",
        "AVX-512 and VNNI",
        "int8_rows (50)",
        "float32 (60.0 %), int8_rows (0.0 %)",
        "3",
    ]
