"""Computes models from ONNX files or graphs in memory, without TensorFlow."""

import functools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from albert_tf.core import files
from albert_tf.core.errors import UserError, shortened
from albert_tf.core.workers import num_cores
from albert_tf.formats import exported_files, transformers_folders
from albert_tf.formats.file_names import EXPORT, ONNX_MODEL, TF1_CONFIG
from albert_tf.formats.weights import Weights, encoder_shapes, head_shapes
from albert_tf.model.config import AlbertConfig
from albert_tf.model.head_names import PRETRAINING
from albert_tf.serving import graph_engines
from albert_tf.serving.graph_engines import GraphEngine, Run
from albert_tf.serving.parts import TOKENS
from albert_tf.tasks.predictor import Arrays, Compute, Features

MODEL = ONNX_MODEL
MASKED_LM = "masked_lm.onnx"
TOKENS_OF_BATCH = "tokens_of_batch"  # a setting beside that of the engine in an export's file
INPUTS = ("input_ids", "attention_mask", "token_type_ids")  # `TOKENS` as transformers names them
# Our names of the outputs in `MODEL` for a pretrained model.
PRETRAINED_OUTPUTS = {
    "last_hidden_state": "sequence_output",
    "pooler_output": "pooled_output",
    "sop_logits": "sentence_order_logits",
}


def complete(features: Arrays) -> Arrays:
    """Features with the mask and the segments, which may be left out."""
    ids = features["input_ids"]
    return {"input_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids), **features}


def inputs_of(features: Arrays) -> Arrays:
    """The inputs of a file, from features of this project."""
    renamed = dict(zip(TOKENS, INPUTS, strict=True))
    return {renamed.get(name, name): np.asarray(ids, np.int64) for name, ids in features.items()}


class OnnxModel(Compute):
    """A model computed from its ONNX files, by path or content, with the model's own names of tensors."""

    tokens_of_call = 32  # 12 to 31, by engine and form, for six layers of 384 units

    def __init__(
        self,
        contents: Mapping[str, str | bytes],
        config: AlbertConfig,
        model_class: str = PRETRAINING,
        engine: GraphEngine = graph_engines.PLAIN,
        tokens_of_batch: int = Compute.tokens_of_batch,
    ):
        self.config = config
        self.engine = engine
        self.tokens_of_batch = tokens_of_batch
        self._contents = contents
        self._model_class = model_class
        # Process, and whether the graph is that of `MASKED_LM`: those that are compiled for one thread.
        self._compiled_graphs: set[tuple[int, bool]] = set()

    def count_params(self) -> int:
        """The number of parameters, of which shared ones count once; the method of Keras has this name."""
        shapes = [encoder_shapes(self.config), head_shapes(self._model_class, self.config)]
        return sum(math.prod(shape) for group in shapes for shape in group.values())

    @functools.cache  # noqa: B019 - there are one or two models in a process
    def _compiled(self, process: int, file: str, threads: int) -> Run:
        """A file's graph in one process: a forked one compiles it again, because it lacks the threads of the first."""
        return self.engine.compile(self._contents[file], threads)

    def every(self, batches: Sequence[Features]) -> list[Arrays]:
        """See `Compute`; each batch is computed on one core, which is faster than each on all."""
        if len(batches) == 1:
            return [self(batches[0](), threads=0)]
        outputs = []
        features = batches[0]()
        graph = (os.getpid(), "masked_lm_positions" in features)
        if graph not in self._compiled_graphs:
            # The first batch alone: all threads at once would compile the graph several times.
            outputs = [self(features, threads=1)]
            self._compiled_graphs.add(graph)
        remaining = batches[len(outputs) :]
        with ThreadPoolExecutor(num_cores()) as pool:
            return outputs + list(pool.map(lambda make: self(make(), threads=1), remaining))

    def __call__(self, features: Arrays, threads: int = 0) -> Arrays:
        inputs = complete(features)
        positions_BP = inputs.pop("masked_lm_positions", None)
        if positions_BP is None:
            outputs = self.outputs(MODEL, inputs, threads)
            return {PRETRAINED_OUTPUTS.get(name, name): array for name, array in outputs.items()}
        logits_BLV = self.outputs(MASKED_LM, inputs, threads)["logits"]
        logits_BPV = np.take_along_axis(logits_BLV, positions_BP[..., None], axis=1)
        return {"masked_lm_logits": logits_BPV}

    def values(self) -> Iterator[tuple[str, np.ndarray]]:
        """The bytes of the files, and what decides how exactly they are computed."""
        for name, content in self._contents.items():
            if isinstance(content, bytes):
                yield name, np.frombuffer(content, np.uint8)
            elif files.exists(content):
                yield name, np.frombuffer(files.read_bytes(content), np.uint8)
        if self.engine != graph_engines.PLAIN:
            yield "engine", np.frombuffer(files.json_bytes(self.engine.describe()), np.uint8)

    def outputs(self, file: str, features: Arrays, threads: int = 0) -> Arrays:
        """The outputs of a file, under its own names; for `threads` see `GraphEngine.compile`."""
        run = self._compiled(os.getpid(), file, threads)
        return run(inputs_of(features))


def is_export(path: str) -> bool:
    """Whether a path is that of an ONNX file, or of a folder with one of our exports in it.

    Beside the weights of transformers, an ONNX file without our description is that of another program.
    """
    if path.endswith(".onnx") and not files.is_folder(path):
        return True
    if not files.exists(os.path.join(path, MODEL)):
        return False
    is_of_others = transformers_folders.layout_of(path).recognizes(path)
    return files.exists(os.path.join(path, EXPORT)) or not is_of_others


def read(path: str) -> Weights:
    """What the files of an export say about its model, without arrays; `path` is the folder, or a file in it."""
    folder = exported_files.folder_of(path)
    name_of_file = "" if files.is_folder(path) else os.path.basename(path)
    if name_of_file not in ("", MODEL, MASKED_LM):
        advice = (
            f"give it the name {MODEL}, in a folder with {EXPORT}, {TF1_CONFIG} and the vocabulary"
        )
        raise UserError(f"{path}: expected a file {MODEL}; {advice}")
    for name in (MODEL, EXPORT, TF1_CONFIG):
        file = os.path.join(folder, name)
        if not files.exists(file):
            expected = "the files of albert-tf export --format=onnx"
            raise UserError(f"{file}: is missing; expected {expected}")
    return exported_files.read_without_arrays(folder)


def load(weights: Weights, engine: str = "") -> OnnxModel:
    """The model in the folder of an export, of what `read` returned.

    Args:
      engine: the name of what computes it; by default, what `albert-tf tune` chose, or ONNX Runtime.
    """
    folder = weights.source
    contents = {name: os.path.join(folder, name) for name in (MODEL, MASKED_LM)}
    tuned = weights.engine
    source = os.path.join(folder, EXPORT)
    used: GraphEngine
    if not engine:
        used = graph_engines.installed_engine_of(tuned, source)
    elif engine == tuned.get("name", graph_engines.ONNX_RUNTIME):
        used = graph_engines.engine_of(tuned, source)
    else:
        used = graph_engines.BY_NAME[engine]
    tokens = tuned.get(TOKENS_OF_BATCH, Compute.tokens_of_batch)
    if type(tokens) is not int or tokens < 1:
        raise UserError(f"{source}: {TOKENS_OF_BATCH} is {shortened(tokens)}, expected a number")
    return OnnxModel(contents, weights.config, weights.model_class, used, tokens)
