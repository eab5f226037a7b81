"""Turns named entities into several labels per text: the types of entities in each sentence.

    python -m lab.tools.entity_types wnut17/train.conll --outputs=train.tsv
    python -m lab.tools.entity_types wnut17/dev.conll --outputs=dev.tsv,test.tsv

The files have the columns `text` and `types`; a sentence without entities has an empty field.
If there are several output files, they get the sentences in turn.
"""

import argparse
import sys

from albert_tf.core.errors import UserError
from albert_tf.tasks.tagging import conll, entities
from albert_tf.tasks.tagging.settings import FIRST, LAST, SEPARATORS


def main(tags: str, outputs: str, word_separator: str) -> None:
    """Writes the sentences of a file in the format of CoNLL."""
    file = conll.read_tagged(tags, token_column=FIRST, tag_column=LAST, need_tags=True, flag="tags")
    rows = []
    for sentence, own_tags in zip(file.sentences, file.tags, strict=True):
        types = sorted({entity.type for entity in entities.entities_of(own_tags)})
        rows.append(f"{SEPARATORS[word_separator].join(sentence.words)}\t{','.join(types)}\n")
    paths = outputs.split(",")
    for index, path in enumerate(paths):
        with open(path, "w", encoding="utf-8", newline="\n") as output:
            output.writelines(["text\ttypes\n", *rows[index :: len(paths)]])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tags", help="file in the format of CoNLL")
    parser.add_argument("--outputs", required=True, help="files to write, separated by commas")
    parser.add_argument("--word_separator", choices=SEPARATORS, default="space")
    try:
        main(**vars(parser.parse_args()))
    except UserError as error:
        sys.exit(str(error))
