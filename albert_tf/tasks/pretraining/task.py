"""Masked LM and sentence order (paper, section 3.1; original run_pretraining.py)."""

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.core import files
from albert_tf.core.errors import UserError
from albert_tf.core.settings import Settings
from albert_tf.data.datasets import RecordData
from albert_tf.data.reading import example_weights, first_batches
from albert_tf.data.record_formats.base import mask_settings
from albert_tf.data.record_formats.packed import SENTENCE_WEIGHTS
from albert_tf.data.record_set import RecordSet, find_pretraining_records
from albert_tf.formats import depth, pretrained
from albert_tf.formats.tokenizer_files import vocabulary_files
from albert_tf.model.config import AlbertConfig
from albert_tf.model.heads import AlbertForPreTraining
from albert_tf.tasks.pretraining.settings import PretrainingConfig
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.training.losses import Ratio, accuracy, cross_entropy
from albert_tf.training.settings import RunConfig
from albert_tf.training.task import Features, Files, Metrics, Outputs, Task

_MAJORITY_RECORDS = 1000
# Entries of the records' metadata.json that say how their text was cleaned; for the model card.
_CLEANING = ("do_lower_case", "keep_accents")
_DATA_OF_CARD = (
    "text",
    "documents",
    "sentences",
    "examples",
    "dupe_factor",
    "max_seq_length",
    "max_predictions_per_seq",
    "masked_lm_prob",
    "ngram",
    "short_seq_prob",
    "sentence_task",
    "single_segment",
    *_CLEANING,
)


class PretrainingTask(Task):
    """Pretrains an `AlbertForPreTraining`."""

    best_metric = "masked_lm_accuracy"
    loss_epsilons = {"masked_lm_loss": 1e-5}  # original run_pretraining.py:335

    def __init__(self, config: PretrainingConfig, run: RunConfig):
        self.config = config
        self._find_records(run)
        self.model_config = self._resolve_model_config(run)

    def _find_records(self, run: RunConfig) -> None:
        config = self.config
        config.check_with({RunConfig: run})
        flags = []
        if run.do_train:
            flags.append("input_file")
        if run.do_eval and config.eval_file:
            flags.append("eval_file")
        records = {flag: find_pretraining_records(getattr(config, flag), flag) for flag in flags}
        self._all_records = records

        devices = tf.distribute.get_strategy().num_replicas_in_sync
        parts = {"input_file": devices * run.gradient_accumulation_steps, "eval_file": devices}
        buffer_examples = config.shuffle_buffer_examples
        data = {}
        for flag, record_set in records.items():
            # Such hosts would mask the records, but this process's compiled function is not there.
            if mask_settings(record_set.metadata) and run.tpu_name not in ("", "local"):
                reason = f"--tpu_name={run.tpu_name}, whose hosts mask nothing"
                raise UserError(f"--{flag}: needs records of --masking=static with {reason}")
            is_shuffled = buffer_examples > 1
            data[flag] = RecordData(record_set, is_shuffled, buffer_examples, parts=parts[flag])
        self.train_data = data.get("input_file")
        self.eval_data = data.get("eval_file")

    def _resolve_model_config(self, run: RunConfig) -> AlbertConfig:
        """The sizes of the model, which records, flags, vocabularies and the initial model agree on."""
        config = self.config
        stretches = run.warm_start_from_shallower
        weights = None
        if run.init_checkpoint:
            num_layers = None if stretches else config.num_hidden_layers
            weights = pretrained.read_weights(run.init_checkpoint, num_layers)
        vocabulary_of_model = weights.vocabulary if weights else ""
        self._vocabulary_file = config.vocabulary_file or vocabulary_of_model

        metadata_of_flags = {
            f"--{flag}": record_set.metadata for flag, record_set in self._all_records.items()
        }
        first_metadata = next(iter(metadata_of_flags.values()))
        checkpoint = weights.config if weights else None
        model_config = config.chosen_config(run, checkpoint, first_metadata.get("vocab_size"))

        # How the text of an initial model was cleaned, as far as its files say.
        cleaning = {name: getattr(weights, name, None) for name in _CLEANING}
        facts = {
            **metadata_of_flags,
            "the flag": config.to_dict(),
            "the model": {"vocab_size": model_config.vocab_size, **cleaning},
        }
        for file in filter(None, (config.vocabulary_file, vocabulary_of_model)):
            facts[file] = {"spm_sha256": Tokenizer.from_file(file).sha256}
        _check_agreement(facts)
        self._check_fits(model_config)

        sentence_task = first_metadata.get("sentence_task", "none")
        if sentence_task not in ("none", model_config.sentence_task):
            foreign = {**model_config.foreign, "sentence_task": sentence_task}
            model_config = model_config.replace(foreign=foreign)
        fit = depth.stretched if stretches else depth.fitted
        self._init_weights = fit(weights, model_config) if weights else None
        return model_config

    def _check_fits(self, model_config: AlbertConfig) -> None:
        """Checks the sizes of the model; records without metadata do not say how large their vocabulary is."""
        for flag, record_set in self._all_records.items():
            length = record_set.metadata["max_seq_length"]
            features = self._sample(record_set, 64)
            largest = max(int(features[name].max()) for name in ("input_ids", "masked_lm_ids"))
            most = model_config.max_position_embeddings
            if length > most or largest >= model_config.vocab_size:
                limits = f"the model has {most} positions and vocab_size {model_config.vocab_size}"
                needs = f"has {length} tokens in a row and token id {largest}"
                raise UserError(f"--{flag} {needs}, but {limits}")

    def _sample(self, record_set: RecordSet, num_records: int) -> dict[str, np.ndarray]:
        """The first records, as one batch."""
        batch = next(first_batches(record_set, record_set.schema, num_records))
        return {name: value.numpy() for name, value in batch.items()}

    def data_files(self) -> Mapping[str, Mapping[str, str]]:
        record_set = self._all_records.get("eval_file")
        if not record_set:
            return {}
        # A copy has other times of its files; metadata tells how their contents were made.
        sizes = [files.size_and_time(path)[0] for path in record_set.files]
        content = json.dumps([record_set.metadata, sizes], sort_keys=True)
        sha256 = hashlib.sha256(content.encode()).hexdigest()
        return {"eval": {"file": self.config.eval_file, "sha256": sha256}}

    def settings(self) -> Mapping[str, Settings | Mapping]:
        # Files may move before a run is resumed, but their contents must not change.
        record_set = next(iter(self._all_records.values()))
        return {
            "task": self.config,
            "model": self.model_config,
            "records": {
                "num_files": len(record_set.files),
                "num_examples": record_set.num_examples,
                "spm_sha256": record_set.metadata.get("spm_sha256"),
                "masking": mask_settings(record_set.metadata) or "static",
            },
        }

    def build_model(self, *, dtype: str, recompute_activations: bool, seed: int):
        """A new model, with the values of --init_checkpoint if there is one."""
        model = AlbertForPreTraining(
            self.model_config, dtype=dtype, recompute_activations=recompute_activations, seed=seed
        )
        if self._init_weights:
            report = pretrained.assign_weights(model.named_variables(), self._init_weights)
            print(report.describe(self._init_weights.source), flush=True)
            self._init_weights = None
        return model

    def loss_counts(self, features: Features) -> Mapping[str, tf.Tensor]:
        """Number of masked tokens and of examples."""
        return {
            "masked_lm_loss": tf.reduce_sum(_masked_lm_weights(features)),
            "sentence_order_loss": tf.reduce_sum(_sentence_weights(features)),
        }

    def losses(self, outputs: Outputs, features: Features, training: bool) -> Mapping[str, Ratio]:
        """Masked-LM and sentence-order cross entropy (original run_pretraining.py:177, equal weights)."""
        del training
        return {
            "masked_lm_loss": cross_entropy(*_masked_lm(outputs, features)),
            "sentence_order_loss": cross_entropy(*_sentence_order(outputs, features)),
        }

    def metrics(self, outputs: Outputs, features: Features) -> Mapping[str, Ratio]:
        """Masked-LM and sentence-order accuracy."""
        return {
            "masked_lm_accuracy": accuracy(*_masked_lm(outputs, features)),
            "sentence_order_accuracy": accuracy(*_sentence_order(outputs, features)),
        }

    def vocabulary_files(self) -> Files:
        """The vocabulary's files in the Hugging Face layout, if the vocabulary is known."""
        path = self._vocabulary_file
        tokenizer = Tokenizer.from_file(path, **self._cleaning()) if path else None
        return vocabulary_files(tokenizer, self.model_config.max_position_embeddings)

    def _cleaning(self) -> dict[str, Any]:
        """How the text of the records was cleaned, as far as their metadata says."""
        metadata = self._all_records["input_file"].metadata
        return {name: metadata[name] for name in _CLEANING if name in metadata}

    def save_model(self, model, folder: str, history: Mapping[str, Mapping]) -> None:
        """Writes the model in the Hugging Face layout, with its vocabulary if it is known."""
        metadata = self._all_records["input_file"].metadata
        texts = [os.path.basename(entry["file"]) for entry in metadata.get("input_files", [])]
        facts = {**metadata, **metadata.get("counts", {}), "text": ", ".join(texts)}
        facts["examples"] = self.train_data.num_examples if self.train_data else 0
        names = [name for name in _DATA_OF_CARD if facts.get(name, "") != ""]
        data = {name.replace("_", " "): facts[name] for name in names}
        # If no pair is out of order, the head learns only to answer that.
        has_order = metadata.get("sentence_task") != "none"
        unlearned = [] if has_order else model.named_variables()
        pretrained.save_pretrained(
            model,
            folder,
            spm_model_file=self._vocabulary_file,
            **self._cleaning(),
            untrained=[name for name in unlearned if name.startswith("cls/seq_relationship/")],
            card={"Data": data, **history},
        )

    def majority_levels(self) -> Metrics:
        """Accuracy if the most frequent answer among the first examples is always given."""
        record_set = self._all_records.get("eval_file") or self._all_records["input_file"]
        features = self._sample(record_set, _MAJORITY_RECORDS)
        masked = features["masked_lm_ids"][features["masked_lm_weights"] > 0]
        counts = np.bincount(masked, minlength=1)
        labels = features["next_sentence_labels"]
        swapped = np.average(labels, weights=features.get(SENTENCE_WEIGHTS))
        return {
            "masked_lm_accuracy": float(counts.max() / counts.sum()) if len(masked) else None,
            "sentence_order_accuracy": float(max(swapped, 1 - swapped)),
        }


def _check_agreement(facts: Mapping[str, Mapping[str, Any]]) -> None:
    """Checks that what records, flags, vocabularies and model say about the same thing is the same."""
    sizes = ("max_seq_length", "max_predictions_per_seq", "spm_sha256", "vocab_size")
    for name in (*sizes, *_CLEANING):
        value_of_owner = {
            owner: facts_of_owner[name]
            for owner, facts_of_owner in facts.items()
            if facts_of_owner.get(name) or facts_of_owner.get(name) is False
        }
        if len(set(value_of_owner.values())) > 1:
            words = ", ".join(f"{owner} has {value}" for owner, value in value_of_owner.items())
            raise UserError(f"{name} must be the same everywhere: {words}")


def _masked_lm_weights(features: Features) -> tf.Tensor:
    return features["masked_lm_weights"] * example_weights(features)[:, None]


def _masked_lm(outputs: Outputs, features: Features):
    return outputs["masked_lm_logits"], features["masked_lm_ids"], _masked_lm_weights(features)


def _sentence_order(outputs: Outputs, features: Features):
    labels = features["next_sentence_labels"]
    labels = labels if SENTENCE_WEIGHTS in features else labels[:, 0]
    return outputs["sentence_order_logits"], labels, _sentence_weights(features)


def _sentence_weights(features: Features) -> tf.Tensor:
    """Float [B], or [B, S] for packed rows: 1 for a real example."""
    weights = example_weights(features)
    if SENTENCE_WEIGHTS not in features:
        return weights
    return features[SENTENCE_WEIGHTS] * weights[:, None]
