#!/usr/bin/env bash
# @huggingface/tokenizers 0.2.0 (JavaScript): ideographs above U+FFFF are not cut into words of one character.
#
# BertNormalizer puts blanks around ideographs. In tokenizers 0.23.3 it does so for all blocks of them; the JavaScript
# library, with the same tokenizer.json, only for those of the first plane, and the others stay one word with what is
# beside them. Expected: the same tokens. Seen: "a", U+20BB7, "b" are three words in Python and one unknown word in
# JavaScript; with U+5409, a form of the same character, both give three.
#
# Who meets it: anyone who serves a Chinese or Japanese BERT in a browser: names and Cantonese text in which such a
# character is lose the whole word. Exits with 1 if the behavior changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip --disable-pip-version-check install --quiet tokenizers==0.23.3
npm install --silent --no-audit --no-fund --prefix "$folder" @huggingface/tokenizers@0.2.0
cat >"$folder/check.mjs" <<'JS'
import { readFileSync } from "node:fs";
import { Tokenizer } from "@huggingface/tokenizers";

const [file, ...texts] = process.argv.slice(2);
const tokenizer = new Tokenizer(JSON.parse(readFileSync(file, "utf-8")), {});
console.log(JSON.stringify(texts.map((text) => tokenizer.encode(text).tokens)));
JS
cat >"$folder/check.py" <<'PY'
import json
import subprocess
import sys
from importlib.metadata import version

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

folder = sys.argv[1]
js_version = json.load(open(f"{folder}/node_modules/@huggingface/tokenizers/package.json"))["version"]
print("tokenizers", version("tokenizers"), "| @huggingface/tokenizers", js_version)
tokens = ["[UNK]", "a", "b", "\U00020bb7", "\u5409"]
model = models.WordPiece({token: id for id, token in enumerate(tokens)}, unk_token="[UNK]")
tokenizer = Tokenizer(model)
tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
tokenizer.save(f"{folder}/tokenizer.json")

texts = ["a\u5409b", "a\U00020bb7b", "\U00020bb7\U00020bb7"]
command = ["node", f"{folder}/check.mjs", f"{folder}/tokenizer.json", *texts]
in_js = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
in_python = [tokenizer.encode(text).tokens for text in texts]
for text, *both in zip(texts, in_python, in_js):
    print(ascii(text), "| Python", *map(ascii, both[0]), "| JavaScript", *map(ascii, both[1]))
expected = [["a", "\u5409", "b"], ["a", "\U00020bb7", "b"], ["\U00020bb7", "\U00020bb7"]]
sys.exit(not (in_python == expected and in_js == [expected[0], ["[UNK]"], ["[UNK]"]]))
PY
"$folder/venv/bin/python" "$folder/check.py" "$folder"
