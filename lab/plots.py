"""Figures as PNG files in one style: colors, size and grid, drawn without a display."""

import os

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

COLORS = ("#1f5fa8", "#c4551d", "#3a7d44", "#7d3a78", "#8a6d1d", "#444444")

matplotlib.rcParams.update(
    {
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlesize": 9,
        "figure.titlesize": 9,
        "font.size": 9,
        "grid.alpha": 0.3,
        "legend.edgecolor": "none",
        "legend.fontsize": 8,
        "savefig.dpi": 110,
    }
)


def new_figure(
    columns: int, rows: int = 1, *, width: float = 3.2, height: float = 2.8, sharey: bool = False
) -> tuple[Figure, np.ndarray]:
    """A figure, `width` and `height` inches per panel, and the panels' `Axes`, [rows, columns]."""
    size = (max(4.0, width * columns), height * rows)
    return plt.subplots(
        rows, columns, figsize=size, layout="constrained", squeeze=False, sharey=sharey
    )


def save(figure: Figure, path: str | os.PathLike) -> None:
    """Writes a figure and frees its memory."""
    figure.savefig(path)
    plt.close(figure)
