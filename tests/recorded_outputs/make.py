"""Makes the files of this folder: small models that transformers and torch wrote, and what they compute.

python tests/recorded_outputs/make.py     (needs torch and transformers; the tests that read the files need neither)
"""

import pathlib

import numpy as np
import torch
import transformers

FOLDER = pathlib.Path(__file__).parent


def randomised(model: torch.nn.Module) -> torch.nn.Module:
    """The model with random values in every parameter, large enough that each has an effect on the output."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.15)
    return model.eval()


def main() -> None:
    """Writes the files anew."""
    sizes = dict(
        vocab_size=41,
        embedding_size=7,
        hidden_size=20,
        num_hidden_layers=4,
        num_hidden_groups=2,
        inner_group_num=1,
        num_attention_heads=5,
        intermediate_size=19,
        max_position_embeddings=17,
    )
    labels = ("no", "maybe", "yes")
    config = transformers.AlbertConfig(**sizes)
    classifier_config = transformers.AlbertConfig(
        **sizes,
        id2label=dict(enumerate(labels)),
        label2id={label: index for index, label in enumerate(labels)},
    )
    ids = np.random.default_rng(5).integers(5, config.vocab_size, [3, 11])
    mask = np.arange(11)[None] < np.array([[11], [8], [5]])
    inputs = {
        "input_ids": ids * mask,
        "attention_mask": mask.astype(np.int64),
        "token_type_ids": (np.arange(11)[None] > 4) * mask,
    }
    tensors = {name: torch.tensor(value, dtype=torch.long) for name, value in inputs.items()}

    model = randomised(transformers.AlbertForPreTraining(config))
    model.save_pretrained(FOLDER / "pretraining")
    torch.save(model.state_dict(), FOLDER / "zip.bin")
    torch.save(model.state_dict(), FOLDER / "legacy.bin", _use_new_zipfile_serialization=False)
    classifier = randomised(transformers.AlbertForSequenceClassification(classifier_config))
    classifier.save_pretrained(FOLDER / "classifier")
    with torch.no_grad():
        outputs = model(**tensors)
        encoded = model.albert(**tensors)
        logits = classifier(**tensors).logits
        exact_config = transformers.AlbertConfig(**sizes, hidden_act="gelu")
        exact = transformers.AlbertForPreTraining(exact_config).eval()
        exact.load_state_dict(model.state_dict())
        exact_outputs = exact(**tensors, output_hidden_states=True)
    np.savez_compressed(
        FOLDER / "outputs.npz",
        **{name: np.asarray(value, np.int32) for name, value in inputs.items()},
        sequence_output=encoded.last_hidden_state,
        pooled_output=encoded.pooler_output,
        masked_lm_logits=outputs.prediction_logits,
        sentence_order_logits=outputs.sop_logits,
        classifier_logits=logits,
        exact_gelu_sequence_output=exact_outputs.hidden_states[-1],
        exact_gelu_masked_lm_logits=exact_outputs.prediction_logits,
    )


if __name__ == "__main__":
    main()
