"""Answers the requests that arrive together in one call of the model, and long requests part by part."""

import asyncio
import collections
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from starlette.exceptions import HTTPException

from albert_tf.serving.settings import LimitSettings


@dataclasses.dataclass(frozen=True, eq=False)
class _Part:
    """Examples of one request that wait for their answers."""

    function: Callable[[Sequence], Sequence]
    examples: Sequence
    answers: asyncio.Future


class Batches:
    """Joins what waits for the same function of the model.

    Args:
      most_examples: the most examples that the model gets at once.
      computed: a counter of the calls.
    """

    def __init__(self, most_examples: int, limits: LimitSettings, computed: Any):
        self._most_examples = most_examples
        self._limits = limits
        self._computed = computed
        self._waiting: collections.deque[_Part] = collections.deque()
        self._something_waits = asyncio.Event()
        self._task: asyncio.Task | None = None

    async def answers(self, function: Callable[[Sequence], Sequence], examples: Sequence) -> list:
        """What `function` returns for some examples; a call of it may also get those of other requests.

        A part of a long request waits only after the part before it is answered, so that other requests get their turn.
        If the caller is cancelled, what still waits is not computed.

        Raises:
          HTTPException: too many requests wait, or a part has waited too long.
        """
        self._task = self._task or asyncio.create_task(self._run())
        answers: list = []
        for start in range(0, len(examples), self._most_examples):
            answers += await self._answers_of_part(
                function, examples[start : start + self._most_examples]
            )
        return answers

    async def _answers_of_part(self, function: Callable, examples: Sequence) -> Sequence:
        if len(self._waiting) >= self._limits.max_waiting:
            raise _busy()
        part = _Part(function, examples, asyncio.get_running_loop().create_future())
        self._waiting.append(part)
        self._something_waits.set()
        try:
            async with asyncio.timeout(self._limits.answer_seconds):
                return await part.answers
        except TimeoutError:
            raise _busy() from None
        finally:
            if part in self._waiting:  # it was too late, or its client has left
                self._waiting.remove(part)

    async def _run(self) -> None:
        while True:
            await self._something_waits.wait()
            await asyncio.sleep(self._limits.batch_wait_ms / 1000)
            batch = self._next_batch()
            if batch:
                await self._answer(batch)

    def _next_batch(self) -> list[_Part]:
        """The first part that waits, and those after it that the same call can answer; none if all have left."""
        batch: list[_Part] = []
        room = self._most_examples
        while self._waiting:
            part = self._waiting[0]
            room -= len(part.examples)
            if batch and (room < 0 or part.function != batch[0].function):
                break
            batch.append(self._waiting.popleft())
        if not self._waiting:
            self._something_waits.clear()
        return batch

    async def _answer(self, batch: Sequence[_Part]) -> None:
        self._computed.inc()
        examples = [example for part in batch for example in part.examples]
        try:
            answers = await asyncio.to_thread(batch[0].function, examples)
        except Exception as error:
            await self._answer_one_by_one(batch, error)
            return
        start = 0
        for part in batch:
            end = start + len(part.examples)
            if not part.answers.done():
                part.answers.set_result(answers[start:end])
            start = end

    async def _answer_one_by_one(self, batch: Sequence[_Part], error: Exception) -> None:
        """Answers the parts of a batch that has failed, so that an error reaches only the request that causes it."""
        if len(batch) > 1:
            for part in batch:
                if not part.answers.done():
                    await self._answer([part])
        elif not batch[0].answers.done():
            batch[0].answers.set_exception(error)


def _busy() -> HTTPException:
    return HTTPException(503, "the server is busy; try again later")
