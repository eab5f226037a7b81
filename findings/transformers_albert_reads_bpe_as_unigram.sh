#!/usr/bin/env bash
# transformers 5.24.0: AlbertTokenizer segments the pieces of a BPE SentencePiece model as if they were a unigram model.
#
# A folder has spiece.model, trained with model_type=bpe, and "tokenizer_class": "AlbertTokenizer", and no
# tokenizer.json. Expected: the ids of SentencePiece for the same file, or an error that names the type of the model.
# Seen: other ids, silently. The scores of a BPE model are the order of its merges, and the tokenizer adds them up as
# log probabilities of a unigram model.
#
# Who meets it: anyone who opens an ALBERT or another model of that class whose vocabulary was trained with BPE: the
# model then reads tokens that it hardly saw in training. Exits with 1 if the behavior changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip --disable-pip-version-check install --quiet transformers==5.24.0 sentencepiece==0.2.1 \
    protobuf==7.34.1
cat >"$folder/check.py" <<'PY'
import json
import os
import pathlib
import sys

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
import sentencepiece
import transformers

print("transformers", transformers.__version__, "| sentencepiece", sentencepiece.__version__)
folder = pathlib.Path(sys.argv[1])
words = "water window winter garden harbor letter number paper river silver summer winter yellow market bridge".split()
lines = [f"the {first} and the {second} of {third}" for first in words for second in words for third in words[:3]]
texts = lines[::97]


def differing(model_type):
    """How many texts have other ids in transformers than in SentencePiece, for a model of a type."""
    model = folder / model_type
    model.mkdir()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_prefix=str(model / "spiece"),
        vocab_size=90,
        hard_vocab_limit=False,
        model_type=model_type,
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        control_symbols="[CLS],[SEP],[MASK]",
        minloglevel=2,
    )
    (model / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "AlbertTokenizer"}))
    (model / "config.json").write_text(json.dumps({"model_type": "albert"}))
    theirs = transformers.AutoTokenizer.from_pretrained(model)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model / "spiece.model"))
    count = 0
    for text in texts:
        expected = processor.encode(text)
        ids = theirs(text, add_special_tokens=False)["input_ids"]
        count += ids != expected
        if ids != expected and count == 1:
            print(model_type, repr(text), "SentencePiece", processor.encode(text, out_type=str))
            print(model_type, repr(text), "transformers ", theirs.convert_ids_to_tokens(ids))
    return count


unigram = differing("unigram")
bpe = differing("bpe")
print(f"texts with other ids, of {len(texts)}: unigram", unigram, "| bpe", bpe)
sys.exit(not (unigram == 0 and bpe > 0))
PY
"$folder/venv/bin/python" "$folder/check.py" "$folder"
