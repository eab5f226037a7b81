"""Vectors of finished models: predictor, SavedModel, ONNX, search, reranking."""

import io
import json

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import UserError, load_predictor, load_pretrained, save_pretrained, search
from albert_tf.export import export_model
from albert_tf.model.heads import AlbertForEmbedding, AlbertForSequenceClassification
from albert_tf.serving import corpus_search
from albert_tf.tasks.classification.predictor import better_label
from albert_tf.tasks.embedding.source import read_corpus
from tests.helpers import WORDS, error_of, make_task, noisy, train_spm

CORPUS = ["anna saw a dog", "the red house", "who left ?", "anna saw a dog", "bert and carl", "a"]
HOW = {"pooling": "cls", "projection_size": 9, "normalize": True}


@pytest.fixture(scope="module")
def folder(tiny_pretrained, tmp_path_factory):
    """A finished embedder."""
    folder = tmp_path_factory.mktemp("embedder") / "model"
    # In graphs, the tokenizer needs a token for the comma.
    spm = train_spm(folder.with_name("spiece.model"), [f"{WORDS} ,"] * 3, vocab_size=60)
    config = load_pretrained(tiny_pretrained).config
    about = {"sentence_embedding": HOW, "finetuning_task": "embedding"}
    config = config.replace(vocab_size=60, foreign=about)
    model = noisy(AlbertForEmbedding(config, seed=3))
    task = {"max_seq_length": 14, "text_columns": "title,text", **HOW}
    save_pretrained(model, folder, spm_model_file=spm, task=task)
    return folder


@pytest.fixture(scope="module")
def embedder(folder):
    return load_predictor(folder)


@pytest.fixture(scope="module")
def reranker(tiny_pretrained, tmp_path_factory):
    """A classifier of pairs with one score."""
    folder = tmp_path_factory.mktemp("reranker")
    config = load_pretrained(tiny_pretrained).config.with_labels(["score"], "tsv")
    model = noisy(AlbertForSequenceClassification(config, seed=5))
    save_pretrained(model, folder, spm_model_file=tiny_pretrained / "spiece.model")
    return folder


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("\n\n".join(CORPUS) + "\n")
    return path


def test_vectors_do_not_depend_on_the_batch_and_order_the_texts(embedder):
    vectors = embedder.embed(CORPUS)
    assert vectors.dtype == np.float32 and vectors.shape == (6, 9)
    for text, vector in zip(CORPUS, vectors, strict=True):
        np.testing.assert_allclose(embedder.embed([text])[0], vector, atol=1e-6)
        assert embedder.predict([text])[0]["embedding"] == pytest.approx(vector.tolist(), abs=1e-6)
    products = embedder.similarity(CORPUS[:2], CORPUS)
    np.testing.assert_allclose(products, vectors[:2] @ vectors.T, atol=1e-6)
    order = embedder.rank(CORPUS[1], CORPUS)
    assert [entry["score"] for entry in order] == pytest.approx(
        sorted(products[1].tolist(), reverse=True), abs=1e-6
    )
    assert order[0] == {"index": 1, "score": pytest.approx(1), "text": CORPUS[1]}
    assert embedder.rank(CORPUS[1], iter(CORPUS)) == order
    assert embedder.embed([]).shape == (0, 9)
    assert embedder.similarity(["a"], []).shape == (1, 0)
    assert embedder.rank("a", []) == []


def test_a_row_is_embedded_by_the_first_column_of_the_training(folder, embedder, tmp_path):
    row = {"text": CORPUS[0], "title": CORPUS[1]}
    assert embedder.predict([row]) == embedder.predict([CORPUS[1]])
    (tmp_path / "t.csv").write_text("text,title\na,b\n")
    flags = ["--do_train=false", "--do_eval=false", "--do_predict", f"--init_checkpoint={folder}"]
    made = make_task("embedder", *flags, f"--predict_file={tmp_path / 't.csv'}")
    assert [item.texts for item in made.items["predict"]] == [("b",)]


def test_training_goes_on_with_the_head_of_an_embedder(folder, embedding_files, capsys):
    flags = [f"--train_file={embedding_files / 'train_pairs.tsv'}", "--text_columns=q,p"]
    made = make_task("embedder", *flags, "--do_eval=false", f"--init_checkpoint={folder}")
    made.build_model(dtype="float32", recompute_activations=False, seed=1)
    assert not made.initialized and HOW.items() <= made.model_config.sentence_embedding.items()
    shown = "was trained: --pooling=cls --projection_size=9 --normalize=true\n"
    assert shown in capsys.readouterr().out


def test_a_pretrained_model_embeds_with_the_mean_of_its_tokens(tiny_pretrained):
    predictor = load_predictor(tiny_pretrained, engine="tensorflow")
    answers = predictor.predict(CORPUS)
    found = predictor.embed(CORPUS)
    np.testing.assert_allclose(found, [answer["embedding"] for answer in answers], atol=1e-6)
    mean = AlbertForEmbedding(predictor.model.config)
    for name, variable in mean.named_variables().items():
        variable.assign(predictor.model.named_variables()[name])
    ids = [[predictor.tokenizer.cls_id, 7, 9, predictor.tokenizer.sep_id]]
    hidden = predictor.model({"input_ids": ids})["sequence_output"]
    expected = tf.reduce_mean(hidden, axis=1)
    np.testing.assert_allclose(mean({"input_ids": ids})["embedding"], expected, atol=1e-6)


def test_an_export_has_the_vectors_of_strings(folder, embedder, tmp_path):
    path = export_model(str(folder), str(tmp_path / "served"))
    embed = tf.saved_model.load(path).signatures["embed"]
    found = embed(texts=tf.constant(CORPUS))["embedding"]
    np.testing.assert_allclose(found, embedder.embed(CORPUS), atol=1e-5)


def test_search_finds_the_nearest_and_keeps_their_vectors(embedder, corpus, monkeypatch):
    texts, places, rows = read_corpus(str(corpus))
    assert (texts, places, rows) == (CORPUS, [0, 2, 4, 6, 8, 10], [])
    found = corpus_search.Search(embedder, str(corpus), texts, places, top_k=3)
    (answer,) = found.predict(["anna saw a dog"])
    assert [entry["index"] for entry in answer["results"]][:2] == [
        0,
        6,
    ]  # equal texts in their order
    assert answer["query"] == "anna saw a dog"
    expected = np.sort(embedder.similarity(["anna saw a dog"], CORPUS)[0])[::-1][:3]
    scores = [entry["score"] for entry in answer["results"]]
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    kept = list(corpus.parent.glob("corpus.txt.*.vectors"))
    assert len(kept) == 1
    calls = []
    embed = type(embedder).vectors_of_texts
    monkeypatch.setattr(
        type(embedder), "vectors_of_texts", lambda s, t: calls.append(len(t)) or embed(s, t)
    )
    for change, expected_calls in (
        (lambda: None, []),
        (lambda: kept[0].write_bytes(kept[0].read_bytes()[:-30]), [6]),
        (lambda: texts.append("new"), [7]),
        (lambda: None, []),
    ):
        change()
        corpus_search.Search(embedder, str(corpus), texts, [*range(len(texts))])
        assert calls == expected_calls
        calls.clear()
    assert list(corpus.parent.glob("corpus.txt.*.vectors")) == kept


def test_another_model_or_length_has_another_hash(embedder, folder, tiny_pretrained):
    models = [embedder, load_predictor(folder, max_seq_length=9), load_predictor(tiny_pretrained)]
    assert len({corpus_search.model_hash(model) for model in models}) == 3
    assert corpus_search.model_hash(load_predictor(folder)) == corpus_search.model_hash(embedder)


def test_a_reranker_orders_the_best(embedder, reranker, corpus):
    model = load_predictor(reranker)
    texts, places, _ = read_corpus(str(corpus))
    options = {"top_k": 2, "reranker": model, "rerank_top": 4}
    found = corpus_search.Search(embedder, str(corpus), texts, places, **options)
    (answer,) = found.predict(["red house"])
    best = embedder.rank("red house", texts)[:4]
    ranked_again = model.rank("red house", [entry["text"] for entry in best])
    assert [entry["text"] for entry in answer["results"]] == [
        entry["text"] for entry in ranked_again[:2]
    ]
    assert answer["results"][0]["score"] == pytest.approx(ranked_again[0]["score"], abs=1e-6)
    scores = model.predict([{"text_a": "red house", "text_b": text} for text in texts])
    ranked = {entry["index"]: entry["score"] for entry in model.rank("red house", texts)}
    for number, entry in enumerate(scores):
        assert ranked[number] == pytest.approx(entry["score"], abs=1e-6)


def test_the_program_answers_lines(folder, corpus, monkeypatch, capsys):
    table = corpus.with_suffix(".csv")
    table.write_text('id,text\n1,"the red, red house"\n2,a dog\n')
    stdin = io.TextIOWrapper(io.BytesIO(b'"a dog"\n{"query": "house", "id": 7}\n'))
    monkeypatch.setattr("sys.stdin", stdin)
    settings = {"text_column": "text", "input_format": "json"}
    search.main(search.SearchSettings(model=str(folder), corpus=str(table), **settings))
    first, second = map(json.loads, capsys.readouterr().out.splitlines()[-2:])
    assert first["results"][0]["text"] == "a dog" and first["results"][0]["index"] == 1
    assert first["results"][0]["id"] == "2"
    assert second["id"] == 7 and len(second["results"]) == 2


def test_results_have_the_rows_own_columns(embedder, tmp_path):
    path = tmp_path / "shop.jsonl"
    rows = [
        {"id": 7, "about": "anna saw a dog", "score": 2.5, "text": "other"},
        {"id": 8, "about": "", "score": 0, "text": ""},
        {"id": 9, "about": "the red house ", "score": None, "text": ["a", "b"]},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    texts, places, columns = read_corpus(str(path), "about")
    assert (texts, places) == (["anna saw a dog", "the red house"], [0, 2])
    found = corpus_search.Search(embedder, str(path), texts, places, rows=columns, top_k=1)
    for query, index in (("anna saw a dog", 0), ("the red house", 2)):
        (result,) = found.predict([query])[0]["results"]
        assert result["index"] == index and result["predicted_score"] == pytest.approx(1, abs=1e-6)
        assert {name: result[name] for name in rows[index]} == rows[index]
        assert json.loads(json.dumps(result)) == result


def test_a_reranker_warns_once_of_unknown_texts(reranker):
    model = load_predictor(reranker)
    with pytest.warns(UserWarning, match="does not know 100 %") as caught:
        model.rank("送餐 很 快", ["难吃 死了", "味道 不错"])
        model.rank("送餐 很 快", ["难吃 死了", "味道 不错"])
    assert len(caught) == 1 and caught[0].filename == __file__


def test_search_says_once_that_texts_are_unknown(folder, tmp_path, monkeypatch, capsys):
    corpus = tmp_path / "c.txt"
    corpus.write_text("送餐 很 快\n难吃 死了\n")
    for _ in range(2):  # the vectors are kept the second time
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("味道 不错\n".encode())))
        search.main(search.SearchSettings(model=str(folder), corpus=str(corpus)))
        assert capsys.readouterr().err.count("does not know") == 1


def test_contradictory_settings_are_named():
    with pytest.raises(UserError, match="rerank_top=3 must be at least --top_k=4"):
        search.SearchSettings(model="m", corpus="t", rerank="r", rerank_top=3, top_k=4)


def test_the_better_of_two_labels_is_known_or_asked_for():
    assert better_label(["score"]) == 0
    assert better_label(["0", "1"]) == better_label(["not_duplicate", "duplicate"]) == 1
    assert better_label(["entailment", "not_entailment"]) == 0
    assert better_label(["not-same", "same"]) == 1
    assert "match and unrelated" in error_of(better_label, ["match", "unrelated"])


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda e, r, c: corpus_search.Search(load_predictor(r), c, ["a"], [1]), "has no vectors"),
        (
            lambda e, r, c: corpus_search.Search(e, c, ["a"], [1], reranker=e),
            "--rerank: expected a",
        ),
        (lambda e, r, c: read_corpus(c, "text"), "has no column 'text'"),
        (lambda e, r, c: read_corpus("texts.csv"), "text_column must name the column of texts.csv"),
        (lambda e, r, c: read_corpus(f"{c}.none"), "no such file|No such file"),
    ],
)
def test_wrong_models_and_files_are_named(embedder, reranker, corpus, make, message):
    with pytest.raises(UserError, match=message):
        make(embedder, str(reranker), str(corpus))


def test_vectors_that_cannot_be_kept_are_made_again_each_time(embedder, corpus, capsys):
    texts = corpus.read_text().split("\n")
    found = corpus_search.Search(embedder, str(corpus), texts, [*range(len(texts))])
    expected = found.predict(["anna saw a dog"])
    (kept,) = corpus.parent.glob("corpus.txt.*.vectors")
    kept.unlink()
    kept.mkdir()  # no file can take its place, as in a folder that cannot be written
    found = corpus_search.Search(embedder, str(corpus), texts, [*range(len(texts))])
    assert found.predict(["anna saw a dog"]) == expected
    line = f"{kept}: cannot be written (it is a folder); so the vectors are made again each time\n"
    assert line in capsys.readouterr().err
