"""Texts and JSON as nobody writes them, and as everybody does."""

from hypothesis import settings
from hypothesis import strategies as st

# For tests in which an example takes a large part of a second.
FEWER = settings(max_examples=min(200, settings.default.max_examples))

# Separators of lines that are not "\n", spaces, marks, directions, what normalization changes, and what ends C strings.
ODD = [
    *"\0\x01\x0b\x0c\r\x1c\x1f\x7f\x85\u2028\u2029\u00a0\u3000\u200b\u200d\u200e\u202e\ufeff\ufffe\ufffd",
    *"\u0301\u0334\u0903\u0f71İıßẞΣςǅ½ﬁＣ™…Ⅸ①²´¨▁中あ한กאع😀\U0001f1e9\U0010ffff\"'\\,.()[]{}<>€–",
    *("e\u0301", "ΑΣ", "1999,", "12,345", "[CLS]", "[MASK]", "<unk>", "👩‍👩‍👧", "cat", "the cat"),
    "\r\n",
]
CHARACTERS = st.characters(exclude_categories=["Cs"])
# Half a surrogate pair is no text: readers refuse it.
TEXTS = st.lists(st.sampled_from([*ODD, *"  \tabc019"]) | CHARACTERS, max_size=25).map("".join)
LINES = TEXTS.map(lambda text: text.replace("\n", " ").replace("\r", " "))
WORDS = st.lists(
    st.sampled_from(["the", "cat", "sat", "on", "mat,", "1999,", "(straße)", "café", "5,"]) | TEXTS
)
SENTENCES = WORDS.map(" ".join)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda values: st.lists(values, max_size=3) | st.dictionaries(TEXTS, values, max_size=3),
    max_leaves=10,
)

HALF_PAIRS = st.sampled_from(["\ud800", "a\udfff", "\ude00\ud83d"])  # json.dumps escapes them


def broken(valid: st.SearchStrategy) -> st.SearchStrategy:
    """JSON values of about the right form: parts of valid ones are replaced by anything, or missing."""

    def mutate(value, choose):
        if choose(8) == 0:
            return choose(JSON | HALF_PAIRS)
        if isinstance(value, dict):
            return {key: mutate(each, choose) for key, each in value.items() if choose(8)}
        if isinstance(value, list):
            return [mutate(each, choose) for each in value]
        return value

    @st.composite
    def values(draw):
        def choose(what):
            return draw(st.integers(0, what - 1) if isinstance(what, int) else what)

        return mutate(draw(valid), choose)

    return values()
