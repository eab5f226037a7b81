"""Rows of several examples: which examples share a row, so that rows of a fixed length are full.

The compiled functions are in a file of their own because numba's cache notices changes of its own file only.
"""

import numba
import numpy as np


def pack(lengths: np.ndarray, row_length: int, max_examples: int) -> tuple[np.ndarray, np.ndarray]:
    """Puts examples of some lengths into rows so that the rows are full: best fit, beginning with the longest example.

    Returns the indices of the examples, row after row, and the number of examples in each row; int64.
    Source: Krell et al., Efficient Sequence Packing without Cross-contamination (arXiv 2107.02027).
    """
    longest_first = np.argsort(-lengths, kind="stable")
    row_of_sorted, num_rows = _best_fit(lengths[longest_first], row_length, max_examples)
    by_row = np.argsort(row_of_sorted, kind="stable")
    return longest_first[by_row], np.bincount(row_of_sorted, minlength=num_rows)


@numba.njit(cache=True)
def _best_fit(lengths, row_length, max_examples):
    """The row of each example, and the number of rows, for examples in the order of their places.

    For lengths [7, 6, 4, 3, 2] and rows of 10 tokens, the rows are [0, 1, 1, 0, 2].
    """
    row_of_example = np.empty(lengths.size, np.int64)
    num_examples = np.zeros(lengths.size, np.int64)  # in each row
    # For each amount of room, the rows that have it are a linked list: the first row, and the row after each.
    first_with_room = np.full(row_length + 1, -1)
    next_row = np.full(lengths.size, -1)
    num_rows = 0
    for index in range(lengths.size):
        # The fullest row that has room for the example.
        room = lengths[index]
        while room <= row_length and first_with_room[room] < 0:
            room += 1
        if room > row_length:
            row = num_rows
            room = row_length
            num_rows += 1
        else:
            row = first_with_room[room]
            first_with_room[room] = next_row[row]

        row_of_example[index] = row
        num_examples[row] += 1
        # The row goes to the list of rows with the room that is left.
        if num_examples[row] < max_examples:
            remaining_room = room - lengths[index]
            next_row[row] = first_with_room[remaining_room]
            first_with_room[remaining_room] = row
    return row_of_example, num_rows


@numba.njit(cache=True, nogil=True)  # the threads of an input pipeline join in parallel
def join_rows(values, counts, per_row, rows):
    """Fills rows with the first `counts` [examples] of the values [examples, n], `per_row` examples in each row."""
    example = 0
    for row in range(per_row.size):
        place = 0
        for _ in range(per_row[row]):
            for index in range(counts[example]):
                rows[row, place] = values[example, index]
                place += 1
            example += 1
