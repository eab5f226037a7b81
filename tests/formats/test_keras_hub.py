"""keras-hub presets: recorded ones and, where keras-hub is installed, fresh ones give what keras-hub computes."""

import importlib.util
import json
import shutil
import zipfile

import h5py
import numpy as np
import pytest

from albert_tf import AlbertForPreTraining, UserError, load_pretrained, save_pretrained
from albert_tf.formats import keras_hub, pretrained
from tests.helpers import ROOT, TINY, run_script

MAKER = "tests/recorded_outputs/make_keras_hub.py"
RECORDED = ROOT / "tests" / "recorded_outputs" / "keras_hub.zip"


@pytest.fixture(scope="module", params=["recorded", "fresh"])
def made(request, tmp_path_factory):
    """A folder of presets, with what keras-hub computes in outputs.npz."""
    folder = tmp_path_factory.mktemp("keras_hub")
    archive = RECORDED
    if request.param == "fresh":
        if not importlib.util.find_spec("keras_hub"):
            pytest.skip("keras-hub is not installed")
        archive = folder / "fresh.zip"
        process = run_script(MAKER, archive, KERAS_BACKEND="tensorflow")
        assert process.returncode == 0, process.stderr
    with zipfile.ZipFile(archive) as file:
        file.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The folder of the recorded presets alone, for tests of what is wrong with one."""
    folder = tmp_path_factory.mktemp("recorded")
    with zipfile.ZipFile(RECORDED) as file:
        file.extractall(folder)
    return folder


@pytest.fixture
def preset(recorded, tmp_path):
    def copy(name):
        return shutil.copytree(recorded / name, tmp_path / name)

    return copy


@pytest.mark.parametrize("name", ["groups", "same_width", "classifier"])
def test_a_written_preset_has_the_arrays_and_sizes_of_the_recorded_one(recorded, name, tmp_path):
    """keras-hub wrote the recorded one; a head is left out, and the same names lead keras-hub to each array."""
    save_pretrained(load_pretrained(recorded / name), tmp_path / "new", format="keras_hub")
    files = [recorded / name / keras_hub.WEIGHTS, tmp_path / "new" / keras_hub.WEIGHTS]
    theirs, ours = ({}, {})
    for path, found in zip(files, (theirs, ours), strict=True):
        with h5py.File(path) as file:
            file.visititems(
                lambda name, item, found=found: found.update(
                    {name: item[()]} if isinstance(item, h5py.Dataset) else {}
                )
            )
    assert ours.keys() == theirs.keys()
    for key, array in theirs.items():
        np.testing.assert_array_equal(ours[key], array, err_msg=key)
    configs = [
        json.loads((folder / "config.json").read_text())
        for folder in (recorded / name, tmp_path / "new")
    ]
    for config in configs:
        for key in ("name", "dtype"):
            config["config"].pop(key, None)
    assert configs[0] == configs[1]


@pytest.mark.parametrize(
    "changes",
    [{"layer_norm_eps": 1e-2}, {"num_hidden_layers": 22, "num_hidden_groups": 22}],
)
def test_what_keras_hub_computes_in_another_way_is_not_written(changes, tmp_path):
    with pytest.raises(
        UserError, match="not written, as keras-hub only has equal groups of layers"
    ):
        save_pretrained(AlbertForPreTraining(TINY.replace(**changes)), tmp_path / "x", "keras_hub")


def test_what_keras_hub_cannot_compute_is_not_written(tmp_path):
    model = AlbertForPreTraining(TINY.replace(share_parameters="ffn"))
    with pytest.raises(
        UserError, match="not written, as keras-hub only has equal groups of layers"
    ):
        save_pretrained(model, tmp_path / "new", format="keras_hub")
    assert not (tmp_path / "new").exists()


def inputs_of(theirs):
    return {
        "input_ids": theirs["token_ids"],
        "input_mask": theirs["padding_mask"],
        "segment_ids": theirs["segment_ids"],
        "masked_lm_positions": theirs["mask_positions"],
    }


def compare(folder, name, outputs):
    """Our outputs beside the recorded ones, {ours: theirs}."""
    with np.load(folder / "outputs.npz") as theirs:
        ours = load_pretrained(folder / name)(inputs_of(theirs))
        for output, recorded_name in outputs.items():
            recorded = theirs[f"{name}/{recorded_name}"]
            assert np.ptp(recorded) > 1  # the weights are large enough to show a difference
            np.testing.assert_allclose(ours[output], recorded, atol=1e-5, err_msg=output)


@pytest.mark.parametrize("name", ["groups", "same_width"])
def test_a_backbone_computes_the_same(made, name):
    outputs = ("sequence_output", "pooled_output")
    compare(made, name, dict(zip(outputs, outputs, strict=True)))


def test_sizes_are_those_of_the_preset(made):
    config = pretrained.read_weights(made / "groups").config
    assert (config.num_hidden_groups, config.inner_group_num) == (2, 3)
    assert config.hidden_dropout_prob == config.attention_probs_dropout_prob == 0.1
    assert config.max_position_embeddings == 17


def test_a_classifier_gives_the_same_logits(made):
    compare(made, "classifier", {"logits": "logits"})
    weights = pretrained.read_weights(made / "classifier")
    assert weights.config.classifier_dropout_prob == 0.3
    assert weights.config.labels == ("LABEL_0", "LABEL_1", "LABEL_2")


def test_a_masked_lm_head_is_loaded_and_its_epsilon_named(made, caplog):
    # Theirs is 1e-5, and the variances here are of order 1: logits of order 10 differ by about 1e-4.
    with np.load(made / "outputs.npz") as theirs:
        inputs, expected = inputs_of(theirs), theirs["masked_lm/logits"]
    with caplog.at_level("WARNING"):
        model = load_pretrained(made / "masked_lm")
    assert "normalizes with epsilon 1e-05, here it is 1e-12" in caplog.text
    np.testing.assert_allclose(model(inputs)["masked_lm_logits"], expected, atol=1e-3)
    model.masked_lm_head.layer_norm.epsilon = 1e-5
    np.testing.assert_allclose(model(inputs)["masked_lm_logits"], expected, atol=1e-5)


def test_bfloat16_comes_as_float32(made):
    array = pretrained.read_weights(made / "half").arrays["bert/pooler/dense/kernel"]
    with np.load(made / "outputs.npz") as theirs:
        np.testing.assert_array_equal(array, theirs["half/pooled_kernel"])
    assert array.dtype == np.float32


def test_the_vocabulary_is_found(preset):
    folder = preset("groups")
    assert pretrained.read_weights(folder).vocabulary == ""
    path = folder / "assets" / "tokenizer" / "vocabulary.spm"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"pieces")
    assert pretrained.read_weights(folder).vocabulary == str(path)


def test_layers_without_names_go_by_their_order(preset, recorded):
    # As Keras 2.13 wrote them, under another root too.
    folder = preset("groups")
    with h5py.File(folder / "model.weights.h5", "r+") as file:
        file.visititems(lambda _, member: member.attrs.clear())
        file.move("layers", "_layer_checkpoint_dependencies")
    ours = keras_hub.read(str(folder)).arrays
    for name, array in keras_hub.read(str(recorded / "groups")).arrays.items():
        np.testing.assert_array_equal(ours[name], array)


def test_names_count_more_than_the_order(preset):
    folder = preset("same_width")  # E = D: no shape would show that two layers change places
    expected = keras_hub.read(str(folder)).arrays["bert/pooler/dense/kernel"]
    with h5py.File(folder / "model.weights.h5", "r+") as file:
        file.move("layers/dense", "layers/other")
        file.move("layers/dense_1", "layers/dense")
        file.move("layers/other", "layers/dense_1")
    found = keras_hub.read(str(folder)).arrays["bert/pooler/dense/kernel"]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("file", "changes", "sizes", "message"),
    [
        ("config", {"class_name": "BertBackbone"}, {}, "is 'BertBackbone', expected 'AlbertB"),
        ("config", {"config": []}, {}, "expected the class_name and config"),
        ("config", {}, {"num_heads": 3}, "num_attention_heads must divide"),
        ("config", {}, {"num_heads": 5}, r"has shape \[20, 4, 5\], but num_heads .* 5"),
        ("config", {}, {"num_heads": "4"}, "num_attention_heads must be of type int"),
        ("config", {}, {"vocabulary_size": 24}, r"word_embeddings has shape \[23, 7\]"),
        ("config", {}, {"num_groups": 2}, "0 layers of the name group_1"),
        ("config", {}, {"num_layers": None}, "num_layers is missing"),
        # int(15 / 22 * 22) is 14: the original's rule gives layer 15 to another group than theirs.
        ("config", {}, {"num_layers": 22, "num_groups": 22}, "22 groups in another way"),
        ("task", {"class_name": "AlbertTagger"}, {}, "without task.json, the backbone alone"),
        ("task", {}, {"activation": "relu"}, "expected linear or softmax"),
    ],
)
def test_what_does_not_fit_is_named(preset, file, changes, sizes, message):
    folder = preset("classifier")
    path = folder / f"{file}.json"
    values = json.loads(path.read_text())
    own = {
        name: value for name, value in {**values["config"], **sizes}.items() if value is not None
    }
    path.write_text(json.dumps({**values, "config": own, **changes}))
    with pytest.raises(UserError, match=message) as error:
        load_pretrained(folder)
    assert "\n" not in str(error.value) and str(folder) in str(error.value)


def test_a_projection_that_has_no_place_here_is_rejected(preset):
    folder = preset("same_width")
    with h5py.File(folder / "model.weights.h5", "r+") as file:
        file["layers/dense/vars/1"][3] = 0.5
    with pytest.raises(UserError, match="embedding_projection is not the identity"):
        load_pretrained(folder)


@pytest.mark.parametrize("kind", ["link", "external", "virtual", "integers"])
def test_a_weights_file_leads_nowhere_else(preset, recorded, kind):
    folder = preset("groups")
    other = str(recorded / "groups" / "model.weights.h5")
    with h5py.File(folder / "model.weights.h5", "r+") as file:
        group = file["layers/embedding/vars"]
        del group["0"]
        if kind == "link":
            group["0"] = h5py.ExternalLink(other, "layers/embedding/vars/0")
        elif kind == "external":
            group.create_dataset("0", [2, 7], "f4", external=[(other, 0, 56)])
        elif kind == "virtual":
            layout = h5py.VirtualLayout((2, 7), "f4")
            layout[:] = h5py.VirtualSource(other, "layers/embedding/vars/0", (2, 7))
            group.create_virtual_dataset("0", layout)
        else:
            group["0"] = np.zeros([2, 7], np.int8)
    with pytest.raises(UserError, match="has no 0|lies in another file|is int8, expected floats"):
        load_pretrained(folder)
