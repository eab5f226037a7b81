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
        at = torch.arange(self.texts.shape[1], device=self.texts.device).expand_as(self.texts)
        begins = torch.ones_like(self.texts, dtype=torch.bool)
        begins[:, 1:] = self.texts[:, 1:] != self.texts[:, :-1]
        return (at - torch.where(begins, at, 0).cummax(dim=1).values) * (self.texts > 0)


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
        gamma, beta = (self.parameters[f"{name}/{part}"] for part in ("gamma", "beta"))
        return functional.layer_norm(x, gamma.shape, gamma, beta, self.config.layer_norm_eps)

    def _layer(self, *names: str) -> tuple[torch.Tensor, torch.Tensor]:
        """The kernels and biases of dense layers with one input, side by side, as `linear` takes them."""
        kernel, bias = (
            torch.cat([self.parameters[f"{name}/{part}"] for name in names], dim=-1).to(self.dtype)
            for part in ("kernel", "bias")
        )
        return kernel.t(), bias

    def hidden_states(self, rows: Rows) -> list[torch.Tensor]:
        """The input of the first layer and the output of each, [R, L, D] float32; texts do not see each other."""
        return self.outputs(rows)[0]

    def outputs(self, rows: Rows) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Hidden states, and the queries, keys and values of the last layer, [R, N, L, H]."""
        config, texts, get = self.config, rows.texts, self.parameters.__getitem__
        words, positions, types = (
            get(f"{_TABLES}{name}_embeddings") for name in ("word", "position", "token_type")
        )
        x = functional.embedding(rows.ids, words) + functional.embedding(rows.segments, types)
        x = self._norm(x + functional.embedding(rows.places, positions), _TABLES + "LayerNorm")
        if _PROJECTION + "kernel" in self.parameters:
            x = x @ get(_PROJECTION + "kernel") + get(_PROJECTION + "bias")
        same = texts[:, None, :, None] == texts[:, None, None, :]
        mask = torch.zeros(same.shape, dtype=self.dtype, device=x.device)
        mask = mask.masked_fill_(~same, -torch.inf).expand(-1, config.num_attention_heads, -1, -1)
        states = [x]
        heads = []
        layers = {}
        for number in range(config.num_hidden_layers):
            groups = config.attention_group_of_layer(number), config.ffn_group_of_layer(number)
            one, two = (f"bert/encoder/transformer/group_{g}/inner_group_0/" for g in groups)
            attention, ffn = one + "attention_1/", two + "ffn_1/intermediate/"
            if attention not in layers:
                names = (f"{attention}self/{name}" for name in ("query", "key", "value"))
                layers[attention] = self._layer(*names), self._layer(attention + "output/dense")
            if ffn not in layers:
                layers[ffn] = self._layer(ffn + "dense"), self._layer(ffn + "output/dense")
            heads = functional.linear(x.to(self.dtype), *layers[attention][0]).chunk(3, dim=-1)
            heads = [
                part.unflatten(-1, (config.num_attention_heads, -1)).transpose(1, 2)
                for part in heads
            ]
            context = functional.scaled_dot_product_attention(*heads, attn_mask=mask)
            context = functional.linear(context.transpose(1, 2).flatten(2), *layers[attention][1])
            x = self._norm(x + context, one + "LayerNorm")
            inner = functional.linear(x.to(self.dtype), *layers[ffn][0])
            inner = functional.gelu(inner, approximate=self._approximation)
            x = self._norm(x + functional.linear(inner, *layers[ffn][1]), two + "LayerNorm_1")
            states.append(x)
        return states, heads

    @torch.no_grad()
    def embed(self, texts: list[np.ndarray], rows: int = 1024) -> np.ndarray:
        """Mean vectors of length 1, [X, D], of texts as token ids."""
        found = []
        for start in range(0, len(texts), rows):
            part = [torch.from_numpy(ids.astype(np.int64)) for ids in texts[start : start + rows]]
            ids = torch.nn.utils.rnn.pad_sequence(part, batch_first=True)
            ids = ids.to(next(iter(self.parameters.values())).device)
            last = self.hidden_states(Rows(ids, (ids > 0).long(), torch.zeros_like(ids)))[-1]
            found.append(functional.normalize((last * (ids > 0)[:, :, None]).sum(1), dim=-1))
        return torch.cat(found).cpu().numpy()


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
        depths = student.config.num_hidden_layers, teacher.config.num_hidden_layers
        self._matched = matched_layers(*depths)
        self._numbers = torch.arange(1, int(text.texts.max()) + 1, device=text.ids.device)
        self._variances = self._teacher_variances()

    @torch.no_grad()
    def _teacher_variances(self) -> list[float]:
        rows = self.text.at(torch.arange(min(64, len(self.text.ids)), device=self.text.ids.device))
        taken = [state[rows.texts > 0] for state in self.teacher.hidden_states(rows)]
        found = [float((one - one.mean(0)).square().sum(-1).mean()) for one in taken]
        return [found[layer] for layer in self._matched]

    def sums(self, rows: Rows) -> tuple[torch.Tensor, ...]:
        """Relative errors of hidden states [Z], cosines of mean vectors, divergence of relations; tokens, texts."""
        with torch.no_grad():
            theirs, their_heads = self.teacher.outputs(rows)
        ours, heads = self.student.outputs(rows)
        is_token = (rows.texts > 0).float()
        pairs = zip(ours, self._matched, self._variances, strict=True)
        errors = [
            ((own - theirs[layer]).square().sum(-1) * is_token).sum() / variance
            for own, layer, variance in pairs
        ]
        in_text_RTL = (rows.texts[:, None, :] == self._numbers[:, None]).float()
        vectors = in_text_RTL @ ours[-1], in_text_RTL @ theirs[-1]
        is_text = in_text_RTL.any(-1).float()
        cosines = functional.cosine_similarity(*vectors, dim=-1, eps=1e-12)
        related = torch.zeros((), device=is_token.device)
        if self._relation_weight:
            related = _relations(heads, their_heads, rows.texts)
        cosine = (cosines * is_text).sum()
        return torch.stack(errors), cosine, related, is_token.sum(), is_text.sum()

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
        left = torch.ones((), device=device)  # of the time
        optimizers = _optimizers(parameters, rate, training)
        loss = torch.compile(self.loss, dynamic=False) if training.compiles else self.loss

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
            rate.copy_(training.rate * torch.minimum(warmed, decayed) * left)
            for optimizer in optimizers:
                optimizer.step()
            step.add_(1)

        def shuffle() -> None:
            order.copy_(torch.randperm(len(order), generator=generator, device=device))

        shuffle()
        done, replay = (3, _captured(one_step)) if is_gpu else (0, one_step)
        begin = time.time()
        while done < training.steps:
            replay()
            done += 1
            if done % per_epoch == 0:
                shuffle()
            if training.seconds and done % _STEPS_BETWEEN_CHECKS == 0:
                _wait(is_gpu)
                passed = time.time() - begin
                left.fill_(max(0.0, 1 - passed / training.seconds))
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
        found = [self.sums(self.text.at(part)) for part in parts]
        errors, cosine, _, tokens, texts = (sum(values) for values in zip(*found, strict=True))
        named = {f"error_{layer}": float(error) for layer, error in enumerate(errors / tokens)}
        return {"vector_cosine": float(cosine / texts), **named}


def _relations(ours: list, theirs: list, texts: torch.Tensor) -> torch.Tensor:
    """The divergence of the products of queries, keys and values with themselves, a sum over tokens (MiniLMv2)."""
    other_text = texts[:, None, :, None] != texts[:, None, None, :]
    is_token = (texts > 0).float()
    total = 0.0
    for pair in zip(ours, theirs, strict=True):
        products = [one @ one.transpose(-1, -2) for one in pair]
        scale = pair[0].shape[-1] ** -0.5
        own, wanted = (
            (scale * one.float()).masked_fill(other_text, -1e4).log_softmax(-1) for one in products
        )
        divergence = (wanted.exp() * (wanted - own)).sum(-1).mean(1)
        total = total + (divergence * is_token).sum() / len(ours)
    return total


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
    """The function as a CUDA graph; three calls before that are real steps."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            function()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return graph.replay


def _wait(is_gpu: bool) -> None:
    if is_gpu:
        torch.cuda.synchronize()
