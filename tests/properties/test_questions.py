"""SQuAD's windows map back to the context; lines for `predict` are items or rejected in one line."""

from hypothesis import given
from hypothesis import strategies as st

from albert_tf.tasks.squad.questions import SquadQuestion
from albert_tf.tasks.squad.windows import WindowSettings, make_windows
from tests.properties.strategies import SENTENCES


@st.composite
def questions(draw):
    """A question, perhaps with an answer somewhere in its context."""
    context = draw(SENTENCES)
    start = draw(st.integers(0, len(context)))
    text = context[start : draw(st.integers(start, len(context)))]
    answers = ((text, start),) if text.strip() else ()
    return SquadQuestion("q", draw(SENTENCES), context, answers, not answers)


@st.composite
def lengths(draw):
    """Settings of windows, some of which have room for a single token of the context."""
    query = draw(st.integers(1, 6))
    return {
        "max_query_length": query,
        "max_seq_length": query + 3 + draw(st.integers(1, 12)),
        "doc_stride": draw(st.integers(1, 9)),
    }


@given(question=questions(), settings=lengths())
def test_windows_map_back_to_the_context_and_to_the_answer(tokenizer, question, settings):
    table = make_windows(WindowSettings(tokenizer, **settings), [(3, question)])
    ids, spans = tokenizer.encode_with_offsets(question.context)
    query = tokenizer.encode(question.question)[: settings["max_query_length"]]
    best_windows = {}  # of each token of the context, by its span and number
    position = 0
    first = len(query) + 2
    assert (table.columns["question_index"] == 3).all()
    for window in range(len(table)):
        row = {name: table.sequence(name, window).tolist() for name in table.sequences}
        size = len(row["input_ids"])
        assert size <= settings["max_seq_length"]
        assert row["input_ids"][:first] == [tokenizer.cls_id, *query, tokenizer.sep_id]
        assert row["input_ids"][-1] == tokenizer.sep_id
        assert row["segment_ids"] == [0] * first + [1] * (size - first)
        assert row["p_mask"] == [0] + [1] * (first - 1) + [0] * (size - first - 1) + [1]
        inside = slice(first, size - 1)
        if window:
            room = settings["max_seq_length"] - len(query) - 3
            position += min(room, settings["doc_stride"])
        end = position + size - 1 - first
        assert row["input_ids"][inside] == ids[position:end]
        chars = list(zip(row["start_chars"][inside], row["end_chars"][inside], strict=True))
        assert chars == spans[position:end]
        for token, is_best in zip(range(position, end), row["is_max_context"][inside], strict=True):
            best_windows[token] = best_windows.get(token, 0) + is_best
        check_answer(question, row, table, window)
    assert best_windows == dict.fromkeys(range(len(ids)), 1)


def check_answer(question, row, table, window):
    """The answer is from the first to the last of the tokens with a character of it, or is in no window."""
    start, end, is_impossible = (
        int(table.columns[name][window, 0])
        for name in ("start_positions", "end_positions", "is_impossible")
    )
    assert is_impossible == (start == 0) == (end == 0)
    if is_impossible:
        return
    text, begin = question.answers[0]
    spans = enumerate(zip(row["start_chars"], row["end_chars"], strict=True))
    touched = [place for place, (one, two) in spans if one < begin + len(text) and begin < two]
    assert (touched[0], touched[-1]) == (start, end)
