"""The parts of the comparison: each runs some programs and returns their values."""

import hashlib
import json
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import sentencepiece
from safetensors import numpy as safetensors

from lab.equality import data
from lab.equality.checkout import Checkout
from lab.equality.data import LONG, MINILM, SENTENCEPIECE, TINY, WORDPIECE

SMALL_MODEL = {
    "vocab_size": 6000,
    "embedding_size": 16,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_hidden_groups": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
TEXTS = ["it is the name of the file.", "returns a new array of the given shape", "x"]
FINE_TUNING = (
    f"--init_checkpoint={TINY} --num_hidden_layers=2 --num_train_steps=6 --train_batch_size=8 --max_seq_length=48"
    " --learning_rate=0.001 --log_every_steps=2 --eval_every_steps=3 --seed=6"
)
SQUAD_QUESTION = {"question": "what follows it?", "context": TEXTS[0]}
RACE_QUESTION = {"article": TEXTS[0], "question": "the _", "options": ["name", "file", "it", "a"]}


def digest(content: bytes) -> str:
    """A short hash of bytes."""
    return hashlib.sha256(content).hexdigest()[:16]


def summary(array: np.ndarray) -> dict:
    """A few numbers that change when an array does: sizes, sum, norm, first and last values."""
    flat = np.asarray(array, np.float64).reshape(-1)
    return {
        "shape": list(np.shape(array)),
        "sum": float(flat.sum()),
        "norm": float(np.sqrt((flat**2).sum())),
        "first": flat[:2].tolist(),
        "last": flat[-2:].tolist(),
    }


def summarized(answer: Any) -> Any:
    """An answer in which long vectors are replaced by their summaries."""
    if isinstance(answer, dict):
        return {name: summarized(value) for name, value in answer.items()}
    if isinstance(answer, list):
        is_vector = len(answer) > 20 and all(isinstance(value, float) for value in answer)
        if is_vector:
            return summary(np.array(answer))
        return [summarized(value) for value in answer]
    return answer


def weights(folder: pathlib.Path) -> dict:
    """Summaries of the tensors in a model's folder."""
    tensors = safetensors.load_file(folder / "model.safetensors")
    return {name: summary(values) for name, values in sorted(tensors.items())}


def finished_run(folder: pathlib.Path) -> dict:
    """Losses, results and weights of a finished run, without speeds."""
    lines = []
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        values = json.loads(line)
        values.pop("examples_per_second", None)
        lines.append(values)
    results = json.loads((folder / "results.json").read_text())
    kept = ("step", "eval", "best", "num_parameters")
    return {
        "log": lines,
        "results": {name: results[name] for name in kept if name in results},
        "weights": weights(folder / "model"),
    }


def record_values(folder: pathlib.Path) -> list[dict[str, list]]:
    """The features of all records of a folder, in the order of the files."""
    import tensorflow as tf

    paths = sorted(str(path) for path in folder.glob("*.tfrecord*"))
    records = []
    for raw in tf.data.TFRecordDataset(paths).as_numpy_iterator():
        features = tf.train.Example.FromString(raw).features.feature
        record = {}
        for name, feature in sorted(features.items()):
            kind = feature.WhichOneof("kind")
            record[name] = [float(value) for value in getattr(feature, kind).value]
        records.append(record)
    return records


def make_records(checkout: Checkout, name: str, text: pathlib.Path, flags: str) -> pathlib.Path:
    """Makes a folder of pretraining records of at most 64 tokens."""
    folder = checkout.work / "records" / name
    if not folder.exists():
        checkout.run(
            f"data create_pretraining_data --input_file={text} --output_dir={folder} --max_seq_length=64"
            f" --max_predictions_per_seq=9 --num_workers=1 --num_shards=2 --random_seed=7 {flags}"
        )
    return folder


def corpus_file(checkout: Checkout) -> pathlib.Path:
    """A file of random documents."""
    path = checkout.work / "corpus.txt"
    if not path.exists():
        path.write_text(data.corpus(1, 40))
    return path


def tokens(checkout: Checkout) -> dict:
    """Token ids of lines that are difficult to clean, for each kind of vocabulary and cleaning."""
    text = checkout.work / "difficult.txt"
    text.write_text(data.DIFFICULT_LINES)
    cases = {
        "sentencepiece": SENTENCEPIECE,
        "sentencepiece_cased": f"{SENTENCEPIECE} --do_lower_case=false",
        "sentencepiece_accents": f"{SENTENCEPIECE} --keep_accents",
        "wordpiece": WORDPIECE,
        "wordpiece_cased": f"{WORDPIECE} --do_lower_case=false",
    }
    values = {}
    for name, flags in cases.items():
        flags += " --record_format=full --dupe_factor=1 --sentence_task=none --short_seq_prob=0"
        folder = make_records(checkout, f"tokens_{name}", text, flags)
        values[name] = [unmasked_ids(record) for record in record_values(folder)]
    lines = checkout.run(f"score {TINY}", data.DIFFICULT_LINES).splitlines()
    return {"ids": values, "score": [json.loads(line) for line in lines]}


def unmasked_ids(record: dict[str, list]) -> list[int]:
    """The token ids of a record as they were before tokens were masked."""
    length = int(sum(record["input_mask"]))
    ids = [int(value) for value in record["input_ids"][:length]]
    masked = zip(
        record["masked_lm_positions"],
        record["masked_lm_ids"],
        record["masked_lm_weights"],
        strict=True,
    )
    for position, token_id, weight in masked:
        if weight:
            ids[int(position)] = int(token_id)
    return ids


def records(checkout: Checkout) -> dict:
    """Sentences of prose, and the contents of records of each format."""
    prose = checkout.work / "prose.txt"
    prose.write_text(data.PROSE)
    split = checkout.work / "sentences.txt"
    checkout.run(
        f"data split_sentences --input_file={prose} --output_file={split} --num_workers=1"
        " --document_separator=blank_line --min_sentences=1"
    )
    cases = {
        "packed": f"{SENTENCEPIECE} --dupe_factor=2",
        "dynamic": f"{SENTENCEPIECE} --masking=dynamic",
        "full": f"{SENTENCEPIECE} --dupe_factor=1 --record_format=full --sentence_task=nsp --single_segment=clean",
        "wordpiece": f"{WORDPIECE} --dupe_factor=1 --ngram=1 --do_whole_word_mask=false",
    }
    values: dict[str, Any] = {"sentences": split.read_text().splitlines()}
    for name, flags in cases.items():
        folder = make_records(checkout, name, corpus_file(checkout), flags)
        contents = record_values(folder)
        features = {}
        for feature in contents[0]:
            rows = [record[feature] for record in contents]
            features[feature] = {
                "sum": sum(sum(row) for row in rows),
                "digest": digest(json.dumps(rows).encode()),
            }
        metadata = json.loads((folder / "metadata.json").read_text())
        values[name] = {"records": len(contents), "counts": metadata["counts"], **features}
    return values


def pretraining(checkout: Checkout) -> dict:
    """Losses and weights of a few steps: with each optimizer, each format of records, and resumed."""
    config = checkout.work / "albert_config.json"
    config.write_text(json.dumps(SMALL_MODEL))
    text = corpus_file(checkout)
    packed = make_records(checkout, "packed", text, f"{SENTENCEPIECE} --dupe_factor=2")
    dynamic = make_records(checkout, "dynamic", text, f"{SENTENCEPIECE} --masking=dynamic")
    full = make_records(
        checkout,
        "full",
        text,
        f"{SENTENCEPIECE} --dupe_factor=1 --record_format=full --sentence_task=nsp --single_segment=clean",
    )
    common = (
        f"pretrain --albert_config_file={config} {SENTENCEPIECE} --seed=5 --train_batch_size=16 --num_train_steps=6"
        " --num_warmup_steps=2 --learning_rate=0.005 --log_every_steps=1 --save_checkpoints_steps=3"
        " --eval_every_steps=3 --max_eval_steps=2"
    )
    cases = {
        "whole": f"--input_file={packed} --eval_file={packed}",
        "adamw": f"--input_file={dynamic} --do_eval=false --optimizer=adamw --recompute_activations",
        "muon": f"--input_file={full} --eval_file={full} --optimizer=muon --gradient_accumulation_steps=2",
    }
    values = {}
    for name, flags in cases.items():
        folder = checkout.work / "pretraining" / name
        checkout.run(f"{common} {flags} --output_dir={folder}")
        values[name] = finished_run(folder)
    resumed = checkout.work / "pretraining" / "resumed"
    command = f"{common} {cases['whole']} --output_dir={resumed}"
    checkout.run(f"{command} --stop_after_steps=4")
    checkout.run(command)
    values["resumed"] = finished_run(resumed)
    values["resumed"]["equals_whole"] = values["resumed"] == values["whole"]
    return values


def _fine_tuning_flags(folder: pathlib.Path) -> dict[str, str]:
    """Program and flags of each task."""
    table = "classify --task_name=table --text_columns=text"
    files = "--train_file={0}/train.{1} --eval_file={0}/dev.{1}"
    labels = files.format(folder, "labels.tsv")
    scores = files.format(folder, "scores.tsv")
    topics = files.format(folder, "topics.tsv")
    return {
        "classification": f"{table} {labels}",
        "regression": (
            f"classify --task_name=table --text_columns=a,b --label_column=score --kind=regression {scores}"
        ),
        "multi_label": f"{table} --label_separator=; {topics}",
        "squad": f"squad --max_query_length=12 --doc_stride=16 {files.format(folder, 'json')}",
        "race": f"race --max_qa_length=20 --data_dir={folder}/RACE",
        "tagging": f"tag --doc_stride=16 --nobias_correction {files.format(folder, 'conll')}",
        "embedding": f"embed --text_columns=a,b {scores} --eval_kind=retrieval",
        "embedding_scores": f"embed --text_columns=a,b --loss=cosent {scores} --max_score=5",
        "taught": f"{table} {labels} --teacher={folder.parent}/tasks/classification",
    }


def _question(task: str) -> list[str]:
    """Lines for `predict` with a model of a task."""
    if task == "squad":
        return [json.dumps(SQUAD_QUESTION)]
    if task == "race":
        return [json.dumps(RACE_QUESTION)]
    if task == "regression":
        return [f"{text}\t{TEXTS[1]}" for text in TEXTS]
    return TEXTS


def trained(checkout: Checkout, task: str) -> pathlib.Path:
    """The folder of a run of a task, which is trained at the first call."""
    folder = checkout.work / "tasks" / task
    if not folder.exists():
        task_data = checkout.work / "task_data"
        if not task_data.exists():
            data.write_task_data(task_data)
        flags = _fine_tuning_flags(task_data)[task]
        checkout.run(f"{flags} {FINE_TUNING} --output_dir={folder}")
    return folder


def fine_tuning(checkout: Checkout) -> dict:
    """Losses, scores, weights and answers of a small fine-tuning of each task, with and without a teacher."""
    values = {}
    for task in _fine_tuning_flags(checkout.work):
        folder = trained(checkout, task)
        values[task] = finished_run(folder)
        values[task]["answers"] = summarized(checkout.answers(folder, _question(task)))
    return values


def predictions(checkout: Checkout) -> dict:
    """Answers of the models of the project: masks, pairs and vectors, for lines, tables and searches."""
    table = checkout.work / "texts.csv"
    table.write_text("id,text\n" + "".join(f"{n},{text}\n" for n, text in enumerate(TEXTS)))
    answered = checkout.work / "answers.jsonl"
    checkout.run(f"predict {TINY} --input_file={table} --output_file={answered}")
    corpus = checkout.work / "searched.txt"
    corpus.write_text("\n".join(data.sentences(9, 30)) + "\n")
    results = checkout.run(f"search {MINILM} --corpus={corpus} --top_k=4", f"{TEXTS[0]}\n")
    masks = ["it is the [MASK] of the file.", f"{TEXTS[0]}\t{TEXTS[1]}", "[MASK] [MASK]"]
    return {
        "tiny": summarized(checkout.answers(TINY, [*masks, *TEXTS])),
        "two_layers": summarized(checkout.answers(f"{TINY} --num_hidden_layers=2", masks)),
        "minilm": summarized(checkout.answers(MINILM, TEXTS)),
        "minilm_long": summarized(checkout.answers(LONG, [" ".join(data.words(3, 300)), *TEXTS])),
        "table": summarized([json.loads(line) for line in answered.read_text().splitlines()]),
        "search": summarized([json.loads(line) for line in results.splitlines()]),
    }


def _saved_model_outputs(folder: pathlib.Path) -> dict:
    """Outputs of each signature of a SavedModel that takes strings."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  (its operations)

    model = tf.saved_model.load(str(folder / "1"))
    outputs = {}
    for name in sorted(model.signatures):
        signature = model.signatures[name]
        specs = signature.structured_input_signature[1]
        takes_strings = specs and all(spec.dtype == tf.string for spec in specs.values())
        if not takes_strings:  # the initialization of a SavedModel has no inputs
            continue
        inputs = {key: tf.constant(TEXTS) for key in specs}
        result = signature(**inputs)
        outputs[name] = {
            key: summary_or_texts(np.asarray(result[key].numpy())) for key in sorted(result)
        }
    return outputs


def summary_or_texts(array: np.ndarray) -> Any:
    """A summary of numbers, or a list of strings."""
    if array.dtype.kind in "OS":
        return [text.decode() for text in array.reshape(-1).tolist()]
    return summary(array)


def _tflite_outputs(folder: pathlib.Path) -> dict:
    """Outputs of a TFLite file, for ids of SentencePiece."""
    from ai_edge_litert.interpreter import Interpreter

    processor = sentencepiece.SentencePieceProcessor(model_file=str(TINY / "spiece.model"))
    runner = Interpreter(str(folder / "model.tflite")).get_signature_runner()
    shape = runner.get_input_details()["input_ids"]["shape"]
    rows = []
    for text in TEXTS:
        ids = [2, *processor.encode(text), 3]
        input_ids = np.zeros(shape, np.int32)
        input_ids[0, : len(ids)] = ids
        input_mask = (input_ids > 0).astype(np.int32)
        outputs = runner(
            input_ids=input_ids, input_mask=input_mask, segment_ids=np.zeros(shape, np.int32)
        )
        rows.append({name: summary(values) for name, values in sorted(outputs.items())})
    return {"rows": rows}


def exports(checkout: Checkout) -> dict:
    """Outputs of exports of a classifier and other tasks in each format."""
    values: dict[str, Any] = {}
    classifier = trained(checkout, "classification")
    onnx = {
        "classifier": f"{classifier} --format=onnx",
        "classifier_int8": f"{classifier} --format=onnx --quantization=int8",
        "classifier_int8_weights": f"{classifier} --format=onnx --quantization=int8_weights",
        "pretrained": f"{TINY} --format=onnx",
        "squad": f"{trained(checkout, 'squad')} --format=onnx",
        "tagger": f"{trained(checkout, 'tagging')} --format=onnx",
        "minilm": f"{MINILM} --format=onnx",
    }
    for name, flags in onnx.items():
        folder = checkout.work / "exports" / name
        checkout.run(f"export {flags} --output_dir={folder}")
        lines = [json.dumps(SQUAD_QUESTION)] if name == "squad" else TEXTS
        values[name] = summarized(checkout.answers(folder / "model.onnx", lines))
    saved_model = checkout.work / "exports" / "saved_model"
    checkout.run(f"export {classifier} --output_dir={saved_model}")
    values["saved_model"] = _saved_model_outputs(saved_model)
    for quantization in ("none", "int8"):
        folder = checkout.work / "exports" / f"tflite_{quantization}"
        flags = f"--format=tflite --quantization={quantization} --max_seq_length=32"
        checkout.run(f"export {classifier} {flags} --output_dir={folder}")
        values[f"tflite_{quantization}"] = _tflite_outputs(folder)
    return values


def model_folder(folder: pathlib.Path) -> dict:
    """Names of the files, configuration and tensors of a model's folder in Hugging Face's layout."""
    return {
        "files": sorted(path.name for path in folder.iterdir()),
        "config": json.loads((folder / "config.json").read_text()),
        "weights": weights(folder),
    }


def conversions(checkout: Checkout) -> dict:
    """Models in each layout: TF1 and back, keras-hub, and a sentence-transformers folder written again."""
    import tensorflow as tf

    folder = checkout.work / "converted"
    checkout.run(f"convert {TINY} --format=tf1 --output_dir={folder}/tf1")
    checkout.run(f"convert {folder}/tf1 --output_dir={folder}/back")
    checkout.run(f"convert {TINY} --format=keras_hub --output_dir={folder}/keras_hub")
    checkout.run(f"convert {MINILM} --output_dir={folder}/minilm")
    (index_file,) = (folder / "tf1").glob("*.index")
    checkpoint = tf.train.load_checkpoint(str(index_file.with_suffix("")))
    names = sorted(checkpoint.get_variable_to_shape_map())
    values = {name: model_folder(folder / name) for name in ("back", "keras_hub", "minilm")}
    values["tf1"] = {
        "files": sorted(path.name for path in (folder / "tf1").iterdir()),
        "weights": {name: summary(checkpoint.get_tensor(name)) for name in names},
    }
    return values


def folding(checkout: Checkout) -> dict:
    """Folded models, and a few steps of the distillation of one."""
    folder = checkout.work / "folded"
    cases = {
        "groups": "--embedding_size=32 --num_hidden_groups=2",
        "first_layers": "--num_folded_layers=3 --layers_from=first --embedding_size=24 --num_hidden_groups=1",
        "mean_layers": "--layers_from=mean --share_parameters=ffn",
    }
    values = {}
    for name, flags in cases.items():
        checkout.run(f"fold {TINY} {flags} --output_dir={folder}/{name}")
        values[name] = model_folder(folder / name)
    text = checkout.work / "distilled.txt"
    text.write_text("\n".join(data.sentences(8, 80)) + "\n")
    run = checkout.work / "distillation"
    checkout.run(
        f"distill --teacher={TINY} --init_checkpoint={folder}/groups --input_file={text} --eval_file={text}"
        " --num_train_steps=5 --num_warmup_steps=1 --train_batch_size=8 --max_seq_length=32 --log_every_steps=1"
        f" --masked_lm_weight=0.5 --seed=4 --output_dir={run}"
    )
    values["distillation"] = finished_run(run)
    return values


def errors(checkout: Checkout) -> dict:
    """Status and error line of wrong input."""
    folder = checkout.work / "wrong"
    folder.mkdir()
    data.write_task_data(folder / "data")
    for name in ("config", "weights"):
        model = folder / name
        model.mkdir()
        for path in TINY.iterdir():
            (model / path.name).write_bytes(path.read_bytes())
    (folder / "config" / "config.json").write_text('{"vocab_size": ')
    (folder / "weights" / "model.safetensors").write_bytes(b"12345678901234567890")
    (folder / "broken.json").write_text('{"data": [{"paragraphs": 3}]}')
    (folder / "untagged.conll").write_text("one\ntwo O\n\n")
    (folder / "latin.txt").write_bytes(b"caf\xe9\n")
    task = f"--init_checkpoint={TINY} --output_dir={folder}/run"
    table = f"classify --task_name=table {task} --train_file={folder}/data/train.labels.tsv"
    commands = {
        "program": "pretrian",
        "flag": f"pretrain --train_batchsize=8 --output_dir={folder}/run",
        "choice": f"classify --task_name=MRCP {task}",
        "column": f"{table} --eval_file={folder}/data/dev.labels.tsv --text_columns=texts",
        "missing_file": f"{table} --eval_file={folder}/no.tsv --text_columns=text",
        "long": f"{table} --eval_file={folder}/data/dev.labels.tsv --text_columns=text --max_seq_length=999",
        "squad": f"squad {task} --train_file={folder}/broken.json --eval_file={folder}/broken.json",
        "tags": f"tag {task} --train_file={folder}/untagged.conll --eval_file={folder}/untagged.conll",
        "no_model": f"predict {folder}/none",
        "config": f"predict {folder}/config",
        "weights": f"convert {folder}/weights --output_dir={folder}/out",
        "quantization": f"export {TINY} --format=tflite --quantization=int8_weights --output_dir={folder}/out",
        "utf8": (
            f"data create_pretraining_data --input_file={folder}/latin.txt --output_dir={folder}/out {SENTENCEPIECE}"
        ),
    }
    values = {}
    for name, command in commands.items():
        status, _, printed = checkout.status(command, "x\n")
        lines = printed.strip().splitlines()  # the last may come after lines of progress
        values[name] = {
            "status": status,
            "line": general(checkout, lines[-1]),
            "has_traceback": "Traceback" in printed,
        }
    return values


def general(checkout: Checkout, line: str) -> str:
    """An error line without the folders of this machine."""
    return checkout.without_paths(line).replace(str(data.ROOT), "PROJECT")


PARTS: dict[str, Callable[[Checkout], dict]] = {
    "tokens": tokens,
    "records": records,
    "pretraining": pretraining,
    "fine_tuning": fine_tuning,
    "predictions": predictions,
    "exports": exports,
    "conversions": conversions,
    "folding": folding,
    "errors": errors,
}
