"""Distillation in PyTorch computes what `albert-tf distill` computes, of texts that are packed in rows."""

import json
import types

import numpy as np
import pytest

from albert_tf.formats import pretrained
from albert_tf.formats.weights import Weights
from albert_tf.model.heads import AlbertForPreTraining
from lab.fold import text as text_of_training
from lab.fold.__main__ import folded, packed
from tests.helpers import TINY

LENGTHS = (61, 128, 5, 67, 40)


@pytest.fixture
def texts():
    rng = np.random.default_rng(0)
    return [rng.integers(4, TINY.vocab_size, length) for length in LENGTHS]


def test_each_text_is_whole_in_the_fullest_row_with_room(texts):
    ids, numbers, segments = packed(texts)
    rows = [[0, 2], [1], [3, 4]]
    for row, members in enumerate(rows):
        for number, text in enumerate(members, start=1):
            np.testing.assert_array_equal(ids[row, numbers[row] == number], texts[text])
    assert ids.shape == numbers.shape == (3, 128)
    assert np.count_nonzero(numbers) == sum(LENGTHS)
    assert not segments.any()


def test_the_second_text_of_a_pair_is_segment_one(texts):
    first_segments = [20, 128, 5, 30, 40]  # texts 0 and 3 are pairs
    _, numbers, segments = packed(texts, first_segments=first_segments)
    expected = np.zeros_like(segments)
    expected[0, 20:61] = 1
    expected[2, 30:67] = 1
    np.testing.assert_array_equal(segments, expected)
    assert numbers[2, 66] == 1


def test_an_epoch_has_every_row_once(texts, monkeypatch):
    torch = pytest.importorskip("torch")
    from lab.fold import in_torch

    distillation = object.__new__(in_torch.Distillation)
    distillation.text = in_torch.Rows.load(*packed(texts)[:2], "cpu")
    weight = torch.ones(2, requires_grad=True)
    distillation.student = types.SimpleNamespace(parameters={"kernel": weight})
    seen = []
    monkeypatch.setattr(
        distillation, "loss", lambda rows: seen.append(rows.ids[0, 0].item()) or weight.sum()
    )
    distillation.run(in_torch.Training(steps=9, rows=1, rate=0.1, warmup=1, seed=1))
    firsts = sorted(distillation.text.ids[:, 0].tolist())
    epochs = [seen[start : start + 3] for start in (0, 3, 6)]
    assert [sorted(epoch) for epoch in epochs] == 3 * [firsts]
    assert len(set(map(tuple, epochs))) > 1  # in another order


def test_muon_is_that_of_the_library():
    torch = pytest.importorskip("torch")
    from albert_tf.training import optimizers
    from lab.fold.muon import orthogonalized

    matrix_IO = np.random.default_rng(1).normal(size=(5, 8)).astype(np.float32)
    (found,) = orthogonalized(torch.tensor(matrix_IO[None]), torch.float32).numpy()
    np.testing.assert_allclose(found, optimizers.orthogonalized(matrix_IO), atol=1e-5)


@pytest.mark.parametrize("size", ["4-attention", "4-ffn", "20-all-2"])
def test_hidden_states_of_packed_rows_are_those_of_single_texts(texts, size, eager):
    pytest.importorskip("torch")
    from lab.fold import in_torch

    changes = {"hidden_act": "gelu_exact", "share_parameters": "none", "initializer_range": 0.2}
    sizes = {"num_hidden_layers": 4, "max_position_embeddings": 130}
    config = TINY.replace(embedding_size=TINY.hidden_size, **sizes, **changes)
    teacher = AlbertForPreTraining(config, seed=3)
    arrays = {name: value.numpy() for name, value in teacher.named_variables().items()}
    weights = folded(Weights("teacher", teacher.config, arrays), size)
    model, _ = pretrained.build_model(weights)
    rows = in_torch.Rows.load(*packed(texts)[:2], "cpu")
    encoder = in_torch.Encoder(weights.config, weights.arrays, "cpu", trained=True)
    found = [state.detach().numpy() for state in encoder.hidden_states(rows)]
    for row, number, text in ((0, 2, texts[2]), (2, 1, texts[3]), (1, 1, texts[1])):
        states = model.encoder({"input_ids": text[None]}, output_hidden_states=True)
        for ours, theirs in zip(found, states["hidden_states"], strict=True):
            ours = ours[row][rows.texts[row].numpy() == number]
            np.testing.assert_allclose(ours, theirs[0].numpy(), atol=1e-5)
    student = in_torch.Encoder(weights.config, weights.arrays, "cpu", trained=False)
    distillation = in_torch.Distillation(encoder, student, rows)
    loss = distillation.loss(rows.at(distillation.text.ids.new_tensor([0, 2]))).detach()
    assert float(loss) == pytest.approx(0, abs=1e-5)


@pytest.fixture
def folder_of_data(tmp_path):
    """One page of Wikipedia, one article of SQuAD and one passage of RACE."""
    sentence = "The river floods the valley in spring and leaves fertile soil behind it."
    contents = {
        "text/wikipedia/wiki_00": f"<doc id=1>\nRiver\n\n{' '.join([sentence] * 8)}\n</doc>\n",
        "race/train/high/1.txt": json.dumps(
            {
                "article": "Nobody passed the examination.",
                "questions": ["Who passed the examination?"],
                "options": [["Nobody at the examination.", "An examination."]],
            }
        ),
    }
    paragraph = {"context": sentence, "qas": [{"question": "What does the river flood?"}]}
    squad = {"data": [{"title": "River", "paragraphs": [paragraph]}]}
    for name in ("dev-v1.1.json", "dev-v2.0.rebuilt.json"):
        contents[f"squad/{name}"] = json.dumps(squad)
    for name, content in contents.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return tmp_path


@pytest.mark.parametrize("without_race", [False, True])
def test_without_race_no_line_is_of_race(folder_of_data, without_race):
    written = folder_of_data / "written"
    settings = text_of_training.TextSettings(
        data_dir=str(folder_of_data), output_dir=str(written), without_race=without_race
    )
    text_of_training.main(settings)
    lines = (written / "held_out.txt").read_text()
    pairs = (written / "pairs_held_out.txt").read_text()
    assert "river" in lines
    assert "What does the river flood?" in pairs
    assert ("examination" in lines, "examination" in pairs) == (not without_race, not without_race)
