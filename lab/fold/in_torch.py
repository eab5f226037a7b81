"""Distills folded models on a GPU, in PyTorch: the losses and the optimizer of `albert-tf distill`.

Texts are packed in rows of L tokens, so all batches have one shape, and a step is one CUDA graph. Matrix products are
bfloat16, the sums between them float32. Nothing here imports TensorFlow. Shape legend: `model/encoder.py`; R is the
number of rows of a batch, X that of all rows, T the most texts of a row, Z the number of hidden states.
"""

import dataclasses
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from albert_tf.formats.folding import matched_layers
from albert_tf.formats.weights import POOLER
from albert_tf.model.config import AlbertConfig
from lab.fold.muon import Muon

_VECTOR_WEIGHT = 2.0
_BETAS = (0.9, 0.98)
_EPSILON = 1e-6
_DECAY = 0.01
_MOST_NORM = 1.0
_NOT_DECAYED = re.compile("LayerNorm|bias")
_KERNELS = re.compile("/group_.*kernel$")  # of the blocks
_TABLES = "bert/embeddings/"
_PROJECTION = "bert/encoder/embedding_hidden_mapping_in/"
_STEPS_BETWEEN_CHECKS = 50  # of the time
_STEPS_BEFORE_CAPTURE = 3  # of a CUDA graph


@dataclasses.dataclass(frozen=True)
class Rows:
    """Texts packed in rows: for each token its id, the number of its text in the row, and its segment, all [X, L].

    Texts are numbered from 1, and padding has the number 0. The second text of a pair is segment 1, all else 0.
    """

    ids: torch.Tensor
    texts: torch.Tensor
    segments: torch.Tensor

    @classmethod
    def load(
        cls, ids: np.ndarray, texts: np.ndarray, device: str, segments: np.ndarray | None = None
    ) -> "Rows":
        """Rows on a device; without `segments`, no text is a pair."""
        if segments is None:
            segments = np.zeros_like(ids)
        arrays = (ids, texts, segments)
        return cls(*(torch.from_numpy(array.astype(np.int32)).to(device) for array in arrays))

    def at(self, index: torch.Tensor) -> "Rows":
        """The rows at these places, as int64."""
        tensors = (self.ids, self.texts, self.segments)
        return Rows(*(tensor.index_select(0, index).long() for tensor in tensors))

    @property
    def places(self) -> torch.Tensor:
        """The position of each token in its text."""
        # Texts [1 1 1 2 2 0] -> where one begins, [0 0 0 3 3 5] -> [0 1 2 0 1 0]
        columns = torch.arange(self.texts.shape[1], device=self.texts.device).expand_as(self.texts)
        begins = torch.ones_like(self.texts, dtype=torch.bool)
        begins[:, 1:] = self.texts[:, 1:] != self.texts[:, :-1]
        firsts = torch.where(begins, columns, 0).cummax(dim=1).values
        return (columns - firsts) * (self.texts > 0)


class Encoder:
    """A BERT or ALBERT with these float32 parameters, by their released names."""

    def __init__(
        self, config: AlbertConfig, arrays: Mapping[str, np.ndarray], device: str, *, trained: bool
    ):
        self.config = config
        self._approximation = {"gelu": "tanh", "gelu_exact": "none"}[config.hidden_act]
        self.dtype = torch.bfloat16 if device == "cuda" else torch.float32
        self.parameters = {
            name: torch.tensor(array, dtype=torch.float32, device=device, requires_grad=trained)
            for name, array in sorted(arrays.items())
            if name not in POOLER and not name.startswith("cls/")
        }

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        gamma = self.parameters[f"{name}/gamma"]
        beta = self.parameters[f"{name}/beta"]
        return functional.layer_norm(x, gamma.shape, gamma, beta, self.config.layer_norm_eps)

    def _layer(self, *names: str) -> tuple[torch.Tensor, torch.Tensor]:
        """The kernels and biases of dense layers with one input, side by side, as `linear` takes them."""
        kernels = [self.parameters[f"{name}/kernel"] for name in names]
        biases = [self.parameters[f"{name}/bias"] for name in names]
        kernel = torch.cat(kernels, dim=-1).to(self.dtype)
        bias = torch.cat(biases, dim=-1).to(self.dtype)
        return kernel.t(), bias

    def hidden_states(self, rows: Rows) -> list[torch.Tensor]:
        """The input of the first layer and the output of each, [R, L, D] float32; texts do not see each other."""
        return self.outputs(rows)[0]

    def outputs(self, rows: Rows) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Hidden states, and the queries, keys and values of the last layer, [R, N, L, H]."""
        config = self.config
        num_heads = config.num_attention_heads
        hidden = self._embedded(rows)

        # Of 32 rows with 128 tokens and 12 heads: [32, 1, 128, 128] -> [32, 12, 128, 128]
        is_same_text = rows.texts[:, None, :, None] == rows.texts[:, None, None, :]
        mask = torch.zeros(is_same_text.shape, dtype=self.dtype, device=hidden.device)
        mask = mask.masked_fill_(~is_same_text, -torch.inf).expand(-1, num_heads, -1, -1)

        states = [hidden]
        heads = []
        layers = {}
        for number in range(config.num_hidden_layers):
            attention_block = _block(config.attention_group_of_layer(number))
            ffn_block = _block(config.ffn_group_of_layer(number))
            attention = attention_block + "attention_1/"
            ffn = ffn_block + "ffn_1/intermediate/"
            # Layers that share their parameters have one copy in the type of the products.
            if attention not in layers:
                names = [f"{attention}self/{name}" for name in ("query", "key", "value")]
                layers[attention] = (self._layer(*names), self._layer(attention + "output/dense"))
            if ffn not in layers:
                layers[ffn] = (self._layer(ffn + "dense"), self._layer(ffn + "output/dense"))
            (input_kernel, input_bias), (output_kernel, output_bias) = layers[attention]
            (inner_kernel, inner_bias), (outer_kernel, outer_bias) = layers[ffn]

            # [32, 128, 768] -> [32, 128, 2304] -> 3 x [32, 12, 128, 64]
            joined = functional.linear(hidden.to(self.dtype), input_kernel, input_bias)
            heads = [
                part.unflatten(-1, (num_heads, -1)).transpose(1, 2)
                for part in joined.chunk(3, dim=-1)
            ]
            # [32, 12, 128, 64] -> [32, 128, 768]
            context = functional.scaled_dot_product_attention(*heads, attn_mask=mask)
            context = context.transpose(1, 2).flatten(2)
            update = functional.linear(context, output_kernel, output_bias)
            hidden = self._norm(hidden + update, attention_block + "LayerNorm")

            # [32, 128, 768] -> [32, 128, 3072] -> [32, 128, 768]
            inner = functional.linear(hidden.to(self.dtype), inner_kernel, inner_bias)
            inner = functional.gelu(inner, approximate=self._approximation)
            update = functional.linear(inner, outer_kernel, outer_bias)
            hidden = self._norm(hidden + update, ffn_block + "LayerNorm_1")
            states.append(hidden)
        return states, heads

    def _embedded(self, rows: Rows) -> torch.Tensor:
        """The input of the first layer, [R, L, D] float32."""
        parameters = self.parameters
        words = functional.embedding(rows.ids, parameters[_TABLES + "word_embeddings"])
        types = functional.embedding(rows.segments, parameters[_TABLES + "token_type_embeddings"])
        places = functional.embedding(rows.places, parameters[_TABLES + "position_embeddings"])
        embedded = self._norm(words + types + places, _TABLES + "LayerNorm")
        if _PROJECTION + "kernel" not in parameters:
            return embedded
        return embedded @ parameters[_PROJECTION + "kernel"] + parameters[_PROJECTION + "bias"]

    @torch.no_grad()
    def embed(self, texts: list[np.ndarray], rows: int = 1024) -> np.ndarray:
        """Mean vectors of length 1, [X, D], of texts as token ids."""
        device = next(iter(self.parameters.values())).device
        vectors = []
        for start in range(0, len(texts), rows):
            # Texts of 9 and 5 tokens -> [2, 9]
            part = [torch.from_numpy(ids.astype(np.int64)) for ids in texts[start : start + rows]]
            ids = torch.nn.utils.rnn.pad_sequence(part, batch_first=True).to(device)
            is_token = ids > 0
            states = self.hidden_states(Rows(ids, is_token.long(), torch.zeros_like(ids)))
            # [2, 9, D] -> [2, D]; of unit length, the sum is the mean.
            sums = (states[-1] * is_token[:, :, None]).sum(1)
            vectors.append(functional.normalize(sums, dim=-1))
        return torch.cat(vectors).cpu().numpy()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
    """How a student learns; if `seconds` are given, the rate falls to 0 in this time, and `steps` only bounds it."""

    steps: int
    rows: int
    rate: float  # the peak
    warmup: int  # steps
    seed: int
    seconds: float = 0.0
    optimizer: str = (
        "muon"  # of the kernels of the blocks; all else, and with "adamw" these, too, are AdamW's
    )
    kernel_decay: float = 0.01  # of Muon
    compiles: bool = False  # takes half a minute, and about doubles the speed of a GPU


class Distillation:
    """A student, its teacher, and the text from which it learns."""

    def __init__(
        self,
        student: Encoder,
        teacher: Encoder,
        text: Rows,
        *,
        hidden_weight: float = 0.5,
        relation_weight: float = 0.0,
    ):
        self.student = student
        self.teacher = teacher
        self.text = text
        self._hidden_weight = hidden_weight
        self._relation_weight = relation_weight
        self._matched = matched_layers(
            student.config.num_hidden_layers, teacher.config.num_hidden_layers
        )
        self._numbers = torch.arange(1, int(text.texts.max()) + 1, device=text.ids.device)
        self._variances = self._teacher_variances()

    @torch.no_grad()
    def _teacher_variances(self) -> list[float]:
        rows = self.text.at(torch.arange(min(64, len(self.text.ids)), device=self.text.ids.device))
        variances = []
        for state in self.teacher.hidden_states(rows):
            vectors_XD = state[rows.texts > 0]
            distances_X = (vectors_XD - vectors_XD.mean(0)).square().sum(-1)
            variances.append(float(distances_X.mean()))
        return [variances[layer] for layer in self._matched]

    def sums(self, rows: Rows) -> tuple[torch.Tensor, ...]:
        """Relative errors of hidden states [Z], cosines of mean vectors, divergence of relations; tokens, texts."""
        with torch.no_grad():
            teacher_states, teacher_heads = self.teacher.outputs(rows)
        student_states, student_heads = self.student.outputs(rows)

        # Z states of 32 rows with 128 tokens: [32, 128, D] -> [32, 128] -> the error of all tokens
        is_token_RL = (rows.texts > 0).float()
        errors = []
        for state, layer, variance in zip(
            student_states, self._matched, self._variances, strict=True
        ):
            errors_RL = (state - teacher_states[layer]).square().sum(-1)
            errors.append((errors_RL * is_token_RL).sum() / variance)

        # Of up to 6 texts in a row: [32, 6, 128] x [32, 128, D] -> [32, 6, D] -> the cosines [32, 6]
        in_text_RTL = (rows.texts[:, None, :] == self._numbers[:, None]).float()
        is_text_RT = in_text_RTL.any(-1).float()
        student_RTD = in_text_RTL @ student_states[-1]
        teacher_RTD = in_text_RTL @ teacher_states[-1]
        cosines_RT = functional.cosine_similarity(student_RTD, teacher_RTD, dim=-1, eps=1e-12)
        cosine = (cosines_RT * is_text_RT).sum()

        related = torch.zeros((), device=is_token_RL.device)
        if self._relation_weight:
            related = _relations(student_heads, teacher_heads, rows.texts)
        return torch.stack(errors), cosine, related, is_token_RL.sum(), is_text_RT.sum()

    def loss(self, rows: Rows) -> torch.Tensor:
        """The loss of `tasks/distillation/task.py`, and that of relations."""
        errors, cosine, related, tokens, texts = self.sums(rows)
        errors = self._hidden_weight * errors[:-1].mean() + errors[-1]
        total = (errors + self._relation_weight * related) / tokens
        return total + _VECTOR_WEIGHT * (1 - cosine / texts)

    def run(self, training: Training) -> dict[str, float]:
        """Trains the student; returns the numbers of steps and tokens, and the seconds."""
        device = self.text.ids.device
        is_gpu = device.type == "cuda"
        parameters = self.student.parameters
        rate = torch.zeros((), device=device)
        share_left = torch.ones((), device=device)  # of the time
        optimizers = _optimizers(parameters, rate, training)
        loss = torch.compile(self.loss, dynamic=False) if training.compiles else self.loss

        # Of 10 rows in an order, 4 in a step -> 2 steps in an epoch: a step reads the rows at order[4:8], for example.
        generator = torch.Generator(device=device).manual_seed(training.seed)
        per_epoch = len(self.text.ids) // training.rows
        order = torch.empty(len(self.text.ids), dtype=torch.long, device=device)
        step = torch.zeros((), dtype=torch.long, device=device)
        offsets = torch.arange(training.rows, device=device)

        def one_step() -> None:
            index = order.index_select(0, (step % per_epoch) * training.rows + offsets)
            for parameter in parameters.values():
                parameter.grad = None
            loss(self.text.at(index)).backward()
            torch.nn.utils.clip_grad_norm_(parameters.values(), _MOST_NORM, foreach=True)
            warmed = (step + 1) / training.warmup
            decayed = torch.clamp(1 - step / training.steps, min=0.0)
            rate.copy_(training.rate * torch.minimum(warmed, decayed) * share_left)
            for optimizer in optimizers:
                optimizer.step()
            step.add_(1)

        def shuffle() -> None:
            order.copy_(torch.randperm(len(order), generator=generator, device=device))

        shuffle()
        done = 0
        replay: Callable[[], None] = one_step
        if is_gpu:
            replay = _captured(one_step)
            done = _STEPS_BEFORE_CAPTURE
        begin = time.time()
        while done < training.steps:
            replay()
            done += 1
            if done % per_epoch == 0:
                shuffle()
            if training.seconds and done % _STEPS_BETWEEN_CHECKS == 0:
                _wait(is_gpu)
                passed = time.time() - begin
                share_left.fill_(max(0.0, 1 - passed / training.seconds))
                if passed > training.seconds:
                    break
        _wait(is_gpu)
        is_token = float((self.text.texts > 0).float().mean())
        tokens = int(done * training.rows * self.text.ids.shape[1] * is_token)
        return {"steps": done, "tokens": tokens, "seconds": round(time.time() - begin, 2)}

    @torch.no_grad()
    def evaluate(self, rows: int = 256) -> dict[str, float]:
        """The errors and the cosine of an evaluation of `albert-tf distill`."""
        parts = torch.arange(len(self.text.ids), device=self.text.ids.device).split(rows)
        sums_of_parts = [self.sums(self.text.at(part)) for part in parts]
        errors, cosine, _, tokens, texts = map(sum, zip(*sums_of_parts, strict=True))
        named = {f"error_{layer}": float(error) for layer, error in enumerate(errors / tokens)}
        return {"vector_cosine": float(cosine / texts), **named}


def _relations(ours: list, theirs: list, texts: torch.Tensor) -> torch.Tensor:
    """The divergence of the products of queries, keys and values with themselves, a sum over tokens (MiniLMv2)."""
    is_other_text = texts[:, None, :, None] != texts[:, None, None, :]
    is_token = (texts > 0).float()
    total = 0.0
    for of_student, of_teacher in zip(ours, theirs, strict=True):
        # Of 32 rows with 128 tokens and 12 heads: [32, 12, 128, 64] -> [32, 12, 128, 128]
        scale = of_student.shape[-1] ** -0.5
        student = _log_relations(of_student, scale, is_other_text)
        teacher = _log_relations(of_teacher, scale, is_other_text)
        # [32, 12, 128, 128] -> [32, 128]
        divergence = (teacher.exp() * (teacher - student)).sum(-1).mean(1)
        total = total + (divergence * is_token).sum() / len(ours)
    return total


def _log_relations(heads: torch.Tensor, scale: float, is_other_text: torch.Tensor) -> torch.Tensor:
    """The logarithms of the probabilities that the products of each token with all tokens of its text make."""
    products = heads @ heads.transpose(-1, -2)
    return (scale * products.float()).masked_fill(is_other_text, -1e4).log_softmax(-1)


def _block(group: int) -> str:
    """The beginning of the names of a block's parameters."""
    return f"bert/encoder/transformer/group_{group}/inner_group_0/"


def _optimizers(
    parameters: Mapping[str, torch.Tensor], rate: torch.Tensor, training: Training
) -> list[Any]:
    """AdamW, and Muon if it is asked for; each parameter belongs to one of them."""
    kernels = {}
    if training.optimizer == "muon":
        kernels = {name: x for name, x in parameters.items() if _KERNELS.search(name)}
    others = {name: x for name, x in parameters.items() if name not in kernels}
    groups = [
        {
            "params": [x for name, x in others.items() if not _NOT_DECAYED.search(name)],
            "weight_decay": _DECAY,
        },
        {
            "params": [x for name, x in others.items() if _NOT_DECAYED.search(name)],
            "weight_decay": 0.0,
        },
    ]
    adamw = torch.optim.AdamW(
        groups,
        lr=rate,
        betas=_BETAS,
        eps=_EPSILON,
        fused=True,
        capturable=rate.device.type == "cuda",
    )
    if not kernels:
        return [adamw]
    return [adamw, Muon(list(kernels.values()), rate, weight_decay=training.kernel_decay)]


def _captured(function: Callable[[], None]) -> Callable[[], None]:
    """The function as a CUDA graph; some calls before that are real steps."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(_STEPS_BEFORE_CAPTURE):
            function()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return graph.replay


def _wait(is_gpu: bool) -> None:
    if is_gpu:
        torch.cuda.synchronize()
