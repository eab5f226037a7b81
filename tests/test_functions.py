"""Programs as functions of `albert_tf` write the files of the shell, from lists and tables as from files.

Those that fine-tune are in `tests/tasks/test_functions_of_tasks.py`.
"""

import filecmp
import inspect
import pathlib
import threading

import pandas
import pytest

import albert_tf
from albert_tf import functions
from albert_tf.core import memory_files
from tests.helpers import WORDS, error_of, made_up_text, program_here

TEXTS = ["anna saw a dog .", "bert met carl and dora .", "the river was blue ."]


def assert_equal_folders(
    first: pathlib.Path, second: pathlib.Path, without: tuple[str, ...] = ()
) -> None:
    """Checks that two folders have the same files with the same content."""
    names = sorted(path.name for path in first.iterdir() if path.name not in without)
    assert names == sorted(path.name for path in second.iterdir() if path.name not in without)
    _, different, missing = filecmp.cmpfiles(first, second, names, shallow=False)
    assert not different and not missing


def test_text_becomes_sentences_a_vocabulary_and_records(tmp_path):
    documents = made_up_text(12, seed=3).split("\n\n")
    (tmp_path / "text.txt").write_text("\n\n".join(documents) + "\n")
    in_shell = [f"--input_file={tmp_path / 'text.txt'}", "--document_separator=blank_line"]
    program_here("data_prep.split_sentences", *in_shell, f"--output_file={tmp_path / 'a.txt'}")
    path = albert_tf.split_sentences(input_file=documents, output_file=tmp_path / "b.txt")
    assert path == str(tmp_path / "b.txt")
    assert (tmp_path / "b.txt").read_bytes() == (tmp_path / "a.txt").read_bytes()

    small = {"vocab_size": 60, "character_coverage": 1}
    lines = (tmp_path / "a.txt").read_text().splitlines()
    from_file = albert_tf.train_sentencepiece(
        input_file=tmp_path / "a.txt", output_prefix=tmp_path / "a", **small
    )
    from_list = albert_tf.train_sentencepiece(
        input_file=lines, output_prefix=tmp_path / "b", **small
    )
    assert pathlib.Path(from_file).read_bytes() == pathlib.Path(from_list).read_bytes()

    settings = {"spm_model_file": from_file, "max_seq_length": 32, "max_predictions_per_seq": 5}
    settings |= {"num_workers": 1, "num_shards": 2}
    sentences = (tmp_path / "a.txt").read_text().split("\n\n")
    for name, data in (("records_a", tmp_path / "a.txt"), ("records_b", sentences)):
        folder = albert_tf.create_pretraining_data(
            input_file=data, output_dir=tmp_path / name, **settings
        )
        assert folder == str(tmp_path / name)
    # Only the name of the input differs.
    assert_equal_folders(tmp_path / "records_a", tmp_path / "records_b", without=("metadata.json",))


def test_a_conversion_an_export_and_answers_are_those_of_the_shell(tiny_pretrained, tmp_path):
    assert albert_tf.convert(tiny_pretrained, output_dir=tmp_path / "a") == str(tmp_path / "a")
    program_here("convert", f"--model={tiny_pretrained}", f"--output_dir={tmp_path / 'b'}")
    assert_equal_folders(tmp_path / "a", tmp_path / "b", without=("README.md",))
    path = albert_tf.export(tiny_pretrained, output_dir=tmp_path / "c", format="onnx")
    assert path == str(tmp_path / "c" / "model.onnx") and pathlib.Path(path).exists()

    masked = ["anna saw the [MASK]", "bert met [MASK] ."]
    answers = albert_tf.predict(tiny_pretrained, masked)
    predictor = albert_tf.load_predictor(tiny_pretrained)
    assert list(answers["text"]) == masked
    filled = [answer["masks"][0][0]["token"] for answer in predictor.predict(masked)]
    assert [row[0][0]["token"] for row in answers["masks"]] == filled
    frame = pandas.DataFrame({"review": masked, "number": [7, 8]})
    table = albert_tf.predict(
        tiny_pretrained, frame, text_columns="review", output_file=tmp_path / "answers.csv"
    )
    assert list(table["number"]) == [7, 8]
    assert len(pandas.read_csv(tmp_path / "answers.csv")) == 2
    assert albert_tf.score(tiny_pretrained, TEXTS) == predictor.score(TEXTS)


def test_a_search_in_a_list_finds_what_a_file_has(tiny_pretrained, tmp_path):
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    queries = ["a dog", "carl"]
    in_file = albert_tf.search(tiny_pretrained, queries, corpus=tmp_path / "texts.txt", top_k=2)
    in_list = albert_tf.search(tiny_pretrained, queries, corpus=TEXTS, top_k=2)
    assert in_list == in_file
    table = pandas.DataFrame({"body": TEXTS, "price": [1, 2, 3]})
    in_table = albert_tf.search(tiny_pretrained, queries, corpus=table, text_column="body", top_k=2)
    assert [entry["index"] for entry in in_table[0]["results"]] == [
        entry["index"] for entry in in_file[0]["results"]
    ]
    assert {"body", "price"} <= in_table[0]["results"][0].keys()


def test_results_of_a_search_have_the_numbers_of_their_texts_beside_empty_ones(tiny_pretrained):
    corpus = ["", TEXTS[0], " ", TEXTS[1]]
    for query in TEXTS[:2]:
        [answer] = albert_tf.search(tiny_pretrained, [query], corpus=corpus, top_k=4)
        assert [corpus[entry["index"]] for entry in answer["results"]][0] == query
        assert {entry["index"] for entry in answer["results"]} == {1, 3}


def test_every_function_names_and_explains_its_arguments():
    for name in functions.MODULES:
        if name == "fold":  # has a function of its own
            continue
        function = inspect.unwrap(getattr(albert_tf, name))
        shown = inspect.signature(function).parameters
        assert {*functions.program_of(name).fields()} - {*shown} <= {"input_format"}
        for argument in shown:
            assert argument in (function.__doc__ or "").partition("Args:")[2], (name, argument)


def test_a_module_of_a_program_is_its_function():
    import albert_tf.export as module

    assert module is albert_tf.export
    assert "model" in inspect.signature(module).parameters
    assert callable(module.export_model)


def test_calls_in_threads_do_not_take_each_others_data(tiny_pretrained):
    texts = WORDS.split()[:6]
    alone = [albert_tf.search(tiny_pretrained, ["anna"], corpus=[text])[0] for text in texts]
    together: dict[str, dict] = {}

    def search(text: str) -> None:
        together[text] = albert_tf.search(tiny_pretrained, ["anna"], corpus=[text])[0]

    threads = [threading.Thread(target=search, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [together[text] for text in texts] == alone
    assert not memory_files.all_held()


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("predict", {}, "model is required"),
        ("predict", {"model": "MODEL"}, "input_file is required: a list of texts"),
        ("predict", {"model": "MODEL", "input_file": [1]}, "item 1 is 1"),
        (
            "predict",
            {"model": "MODEL", "inptu_file": []},
            "inptu_file: is no setting here; input_file is",
        ),
        ("score", {"model": "MODEL", "texts": "one"}, "texts: expected a list of texts, got one"),
        ("search", {"model": "MODEL", "corpus": ["a"]}, "queries is required: a list of texts"),
        ("search", {"model": "MODEL", "queries": ["a"]}, "corpus is required"),
        (
            "search",
            {"model": "MODEL", "queries": ["a"], "corpus": [""]},
            "corpus: expected at least",
        ),
        (
            "export",
            {"model": "nothing", "output_dir": "x"},
            "model=nothing: no such file or folder",
        ),
        ("export", {"model": "MODEL", "format": "onx"}, "format must be one of"),
        ("convert", {"model": "MODEL"}, "output_dir is required"),
        (
            "search",
            {"model": "MODEL", "queries": ["a"], "corpus": ["a", "b \ud83d"]},
            r"corpus: item 2 has '\ud83d', half a surrogate pair, which is no character: 'b \ud83d'",
        ),
        (
            "predict",
            {"model": "MODEL", "input_file": {"text": ["a", "b \ude00"]}},
            r"input_file: item 2 has '\ude00', half a surrogate pair",
        ),
        (
            "split_sentences",
            {"input_file": ["a \ud83d"], "output_file": "x"},
            r"input_file: item 1 has '\ud83d', half a surrogate pair",
        ),
        ("pretrain", {"output_dir": "x"}, "input_file is required"),
        ("split_sentences", {"input_file": "x", "output_file": "y"}, "input_file=x: no such file"),
        (
            "create_pretraining_data",
            {"input_file": 3, "output_dir": "y"},
            "expected a list of texts",
        ),
    ],
)
def test_wrong_arguments_are_one_line(
    name, arguments, message, tiny_pretrained, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    if arguments.get("model") == "MODEL":
        arguments = {**arguments, "model": tiny_pretrained}
    line = error_of(getattr(albert_tf, name), **arguments)
    assert message in line
    assert "--" not in line


def test_too_many_arguments_without_names_are_one_line():
    assert "expected arguments with names" in error_of(albert_tf.classify, "train.csv")
    assert "at most 2 without a name" in error_of(albert_tf.predict, "a", ["b"], "c")
    line = error_of(albert_tf.embed, ["a text"])
    assert line.endswith("load_predictor(model).embed(texts) makes vectors")
    assert "model is given twice" in error_of(albert_tf.predict, "a", model="b")
