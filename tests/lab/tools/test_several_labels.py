"""The tools for several labels: sentences with entities as files of texts with labels, and the baseline on them."""

from lab.tools import entity_types, multi_label_baseline

TAGS = """anna B-PER
met O
carl B-PER
. O

in O
new B-LOC
york I-LOC
gert I-PER

hello O
"""


def test_a_sentence_has_the_types_of_its_entities(tmp_path):
    (tmp_path / "tags.conll").write_text(TAGS)
    paths = [tmp_path / name for name in ("a.tsv", "b.tsv")]
    for separator, joined in (("space", "in new york gert"), ("none", "innewyorkgert")):
        entity_types.main(str(tmp_path / "tags.conll"), ",".join(map(str, paths)), separator)
        first, second = (path.read_text().splitlines() for path in paths)
        assert second == ["text\ttypes", f"{joined}\tLOC,PER"]
        assert len(first) == 3 and first[1].endswith("\tPER") and first[2] == "hello\t"


def test_the_baseline_finds_words_that_decide(tmp_path, capsys):
    rows = ["anna eats\tname,food", "anna runs\tname", "carl eats\tfood", "carl runs\t"] * 10
    path = tmp_path / "all.tsv"
    path.write_text("\n".join(["text\tlabel", *rows]))
    multi_label_baseline.main(*[str(path)] * 3, "text", "label", ",")
    output = capsys.readouterr().out
    for name in ("words", "characters", "both"):
        assert f"{name}\n  micro_average_precision 1.0000\n" in output
    assert output.count("food         20         20") == 3
