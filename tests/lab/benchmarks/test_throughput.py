"""Texts of mixed lengths: their choice, and the table."""

from lab.benchmarks import throughput


def test_paragraphs_and_sentences_take_turns_without_markup():
    corpus = (
        "<doc id=1>\nA first sentence here. A second one.\n\ntoo short\nOne two three four five.\n"
    )
    texts = throughput.mixed_texts(corpus)
    assert texts == ["A first sentence here. A second one.", "One two three four five."]


def test_ratios_are_to_the_fastest_other_library_of_the_round():
    machine = {"processor": "a processor", "instructions": ["avx2"]}
    seconds = {"ours": [1.0, 2.0], "transformers": [4.0, 3.0], "sentence-transformers": [3.0, 8.0]}
    content = {"date": "2026-01-01", "machine": machine, "threads": 2, "others": 0.0}
    lines = throughput.page({**content, "texts": 12, "seconds": seconds})
    assert lines[-3] == "| ours | 9.0 (6.0 to 12.0) | 2.25 |"
