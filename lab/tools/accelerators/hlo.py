"""Reads the text of an HLO module: products, collectives, and traffic to the device's memory. Imports nothing else.

A fusion reads its operands and writes its results once; values inside it stay in registers and on-chip memory. Buffers
that the compiler has put into on-chip memory (`S(1)` in their layout) are not counted. The body of a loop is counted
as often as it runs.
"""

import dataclasses
import math
import re
from collections.abc import Iterator

_BYTES = {"pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "f16": 2, "bf16": 2}
_BYTES |= {"s32": 4, "u32": 4, "f32": 4, "s64": 8, "u64": 8, "f64": 8}
_ARRAY = re.compile(r"\b([a-z]\w*)\[([\d,<=]*)\](\{[^}]*\})?")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*)$")
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) .*\{$")
_OPCODE = re.compile(r"\s([a-z][\w\-]*)\(")
# These instructions move no data, or data that is counted elsewhere.
_FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "iota", "after-all"}
_FREE |= {"copy-done", "slice-done", "all-reduce-done", "partition-id", "replica-id", "while"}
_FREE |= {"conditional", "call", "opt-barrier", "async-done", "async-update"}


@dataclasses.dataclass(frozen=True)
class Array:
    """A result's type, shape, and whether it is in on-chip memory."""

    dtype: str
    shape: tuple[int, ...]
    on_chip: bool

    @property
    def bytes(self) -> int:
        """Its size."""
        return math.prod(self.shape) * _BYTES.get(self.dtype, 0)


@dataclasses.dataclass(frozen=True)
class Instruction:
    """An instruction; `operands` are the names of instructions in the same computation."""

    name: str
    opcode: str
    results: tuple[Array, ...]
    operands: tuple[str, ...]
    text: str

    def called(self, attribute: str) -> str:
        """The name of a computation that it calls; "" if there is none."""
        match = re.search(rf"\b{attribute}=%?([\w.\-]+)", self.text)
        return match[1] if match else ""


Computation = dict[str, Instruction]


class Module:
    """An HLO module: its computations by name, each with its instructions by name, and the one that is run."""

    def __init__(self, text: str):
        self.computations: dict[str, Computation] = {}
        self.entry: Computation = {}
        current: Computation = {}
        for line in text.splitlines():
            if match := _COMPUTATION.match(line):
                current = self.computations[match[1]] = {}
                if line.startswith("ENTRY"):
                    self.entry = current
            elif match := _INSTRUCTION.match(line):
                instruction = _instruction(match[1], match[2])
                current[instruction.name] = instruction

    def executed(
        self, computation: Computation | None = None, times: int = 1
    ) -> Iterator[tuple[Computation, Instruction, int]]:
        """The instructions that are run, each with its computation and number of runs; a fusion is one instruction."""
        computation = self.entry if computation is None else computation
        for instruction in computation.values():
            yield computation, instruction, times
            inner, repeats = "", 1
            if instruction.opcode == "while":
                inner, repeats = instruction.called("body"), self.trip_count(instruction)
            elif instruction.opcode == "call":
                inner = instruction.called("to_apply")
            elif instruction.opcode == "conditional":
                inner = instruction.called("true_computation")
            if inner:
                yield from self.executed(self.computations[inner], times * repeats)

    def trip_count(self, loop: Instruction) -> int:
        """How often a loop's body runs: the compiler's number, or the smallest limit in the loop's condition.

        `tf.while_loop` adds a limit for `maximum_iterations`. The limit of accumulation counts from the second
        micro-batch on, because the first one is outside the loop.
        """
        if match := re.search(r'"known_trip_count":\{"n":"(\d+)"', loop.text):
            return int(match[1])
        return min(self._integers(loop.called("condition")), default=1)

    def _integers(self, name: str) -> Iterator[int]:
        """The constants of a computation and of the computations that it calls."""
        for one in self.computations[name].values():
            if match := re.match(r"s32\[\](?:\{[^}]*\})? constant\((\d+)\)", one.text):
                yield int(match[1])
            elif one.opcode == "call":
                yield from self._integers(one.called("to_apply"))

    def all_instructions(self) -> Iterator[tuple[Computation, Instruction, int]]:
        """Like `executed`, but with the instructions inside fusions."""
        for computation, instruction, times in self.executed():
            yield computation, instruction, times
            yield from self._inside(instruction, times)

    def _inside(self, fusion: Instruction, times: int):
        inner = fusion.opcode == "fusion" and fusion.called("calls")
        computation = self.computations[inner] if inner else {}
        for instruction in computation.values():
            yield computation, instruction, times
            yield from self._inside(instruction, times)

    def traffic(self) -> int:
        """Bytes that are read from and written to the device's memory, over all runs of each instruction."""
        return sum(
            times * self._bytes_of(computation, instruction)
            for computation, instruction, times in self.executed()
            if instruction.opcode not in _FREE
        )

    def _bytes_of(self, computation: Computation, instruction: Instruction) -> int:
        results = instruction.results
        if instruction.opcode == "copy-start":  # results: copy, operand, a flag
            return sum(one.bytes for one in results[:2] if not one.on_chip)
        if instruction.opcode == "slice-start":  # results: operand, slice, a flag
            return sum(results[1].bytes for one in results[:2] if not one.on_chip)
        written = [one.bytes for one in results if not one.on_chip]
        inner = instruction.opcode == "fusion" and instruction.called("calls")
        body = self.computations[inner] if inner else {}
        parameters = _parameters(body)
        total = 0
        for index, name in enumerate(instruction.operands):
            operand = computation.get(name)
            if not operand or any(one.on_chip for one in operand.results):
                continue
            size = sum(one.bytes for one in operand.results)
            users = [one for one in body.values() if parameters.get(index) in one.operands]
            if instruction.opcode in ("dynamic-slice", "gather") and index == 0:
                size = sum(written)
            elif instruction.opcode == "dynamic-update-slice" and index == 0:
                size = 0
            elif users and all(one.opcode in ("dynamic-slice", "gather") for one in users):
                size = min(size, sum(one.results[0].bytes for one in users))
            elif users and all(
                one.opcode == "dynamic-update-slice" and one.operands[0] == parameters[index]
                for one in users
            ):
                size = 0
                updates = [body[one.operands[1]].results[0].bytes for one in users]
                written = [sum(updates)] if len(written) == 1 else written
            total += size
        if instruction.opcode == "dynamic-update-slice" and written:
            written = [computation[instruction.operands[1]].results[0].bytes]
        return total + sum(written)

    def products(self) -> list["Product"]:
        """The matrix products of a module before compilation; a TPU's compiler turns them into convolutions."""
        found = []
        for computation, instruction, times in self.all_instructions():
            if instruction.opcode == "dot":
                left, right = (computation[name].results[0] for name in instruction.operands[:2])
                result = instruction.results[0]
                flops = 2 * math.prod(result.shape) * _contracted(instruction, left)
                types = (left.dtype, right.dtype, result.dtype)
                found.append(Product(flops, times, types, instruction.name))
        return found

    def collectives(self) -> list[Instruction]:
        """The instructions that communicate with other devices."""
        kinds = ("all-reduce", "all-gather", "reduce-scatter", "collective-permute", "all-to-all")
        names = {*kinds, *(f"{kind}-start" for kind in kinds)}
        return [one for _, one, _ in self.all_instructions() if one.opcode in names]


@dataclasses.dataclass(frozen=True)
class Product:
    """A matrix product: operations of one run, number of runs, types of operands and result."""

    flops: int
    times: int
    types: tuple[str, str, str]
    name: str


def _contracted(instruction: Instruction, left: Array) -> int:
    """The number of terms of each sum of a product."""
    (dimensions,) = re.findall(r"lhs_contracting_dims=\{([\d,]*)\}", instruction.text)
    return math.prod(left.shape[int(one)] for one in dimensions.split(",") if one)


def _parameters(computation: Computation) -> dict[int, str]:
    """Names of a computation's parameters by their numbers."""
    found = {}
    for one in computation.values():
        if one.opcode == "parameter":
            (number,) = re.findall(r"parameter\((\d+)\)", one.text)
            found[int(number)] = one.name
    return found


def _instruction(name: str, text: str) -> Instruction:
    match = _OPCODE.search(text)
    opcode, start = (match[1], match.start()) if match else ("", len(text))
    results = tuple(
        Array(
            dtype,
            tuple(int(one.strip("<=")) for one in shape.split(",") if one),
            "S(" in (layout or ""),
        )
        for dtype, shape, layout in _ARRAY.findall(text[:start])
    )
    if "__cublas$" in text:  # results: product, working memory
        results = results[:1]
    depth, end = 0, match.end() - 1 if match else len(text)
    begin = end
    for end in range(begin, len(text)):
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        if depth == 0:
            break
    arguments = text[begin:end]
    operands = re.findall(r"%([\w.\-]+)", arguments) or [
        one.split()[-1] for one in arguments.strip("() ").split(",") if one.strip()
    ]
    return Instruction(name, opcode, results, tuple(operands), text)
