"""Muon, an optimizer for the kernels of hidden layers, in PyTorch.

Each update is the momentum of the gradient with all its singular values set to about 1 (Jordan et al. 2024,
"Muon: An optimizer for hidden layers in neural networks"), with a scale that suits the learning rate of AdamW
(Liu et al. 2025, arXiv 2502.16982, section 2.2): `albert_tf.training.optimizers.Muon` in PyTorch. Kernels of one shape
are computed together, which a GPU needs: alone, each is too small to fill it.
"""

from collections.abc import Sequence

import torch

# The polynomial of the Newton-Schulz iteration: it maps singular values in (0, 1] to about .7 to 1.2 in five steps.
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5
MOMENTUM = 0.95
UPDATE_SIZE = 0.1  # the root mean square of an update, before the rate


def orthogonalized(matrices_XIO: torch.Tensor, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """The matrices with singular values of about 1, [X, I, O] with I <= O, computed in `dtype`."""
    a, b, c = _COEFFICIENTS
    norms_X11 = matrices_XIO.norm(dim=(1, 2), keepdim=True)
    result_XIO = (matrices_XIO / (norms_X11 + 1e-7)).to(dtype)
    for _ in range(_ITERATIONS):
        gram_XII = result_XIO @ result_XIO.transpose(1, 2)
        polynomial_XII = b * gram_XII + c * (gram_XII @ gram_XII)
        result_XIO = a * result_XIO + polynomial_XII @ result_XIO
    return result_XIO.to(matrices_XIO.dtype)


class Muon:
    """Updates kernels in place; `rate` is a tensor, so that a step can be recorded in a CUDA graph."""

    def __init__(
        self,
        kernels: Sequence[torch.Tensor],
        rate: torch.Tensor,
        *,
        weight_decay: float,
    ):
        self._rate = rate
        self._weight_decay = weight_decay

        by_shape: dict[tuple[int, ...], list[torch.Tensor]] = {}
        for kernel in kernels:
            by_shape.setdefault(tuple(sorted(kernel.shape)), []).append(kernel)
        self._stacks = list(by_shape.values())
        self._buffers = [
            torch.zeros([len(stack), *shape], device=stack[0].device)
            for shape, stack in by_shape.items()
        ]

    @torch.no_grad()
    def step(self) -> None:
        """One update of every kernel by its gradient."""
        for kernels, buffer_XIO in zip(self._stacks, self._buffers, strict=True):
            gradients_XIO = torch.stack([_wide(kernel.grad, kernel) for kernel in kernels])
            buffer_XIO.mul_(MOMENTUM).add_(gradients_XIO)
            updates_XIO = orthogonalized(gradients_XIO + MOMENTUM * buffer_XIO)
            scale = self._rate * UPDATE_SIZE * max(kernels[0].shape) ** 0.5
            for kernel, update_IO in zip(kernels, updates_XIO, strict=True):
                kernel.mul_(1 - self._rate * self._weight_decay)
                kernel.sub_(scale * _wide(update_IO, kernel))


def _wide(matrix: torch.Tensor | None, kernel: torch.Tensor) -> torch.Tensor:
    """The matrix, transposed if the kernel has more rows than columns; the same call transposes it back."""
    assert matrix is not None
    rows, columns = kernel.shape
    return matrix.t() if rows > columns else matrix
