#!/usr/bin/env bash
# The runs of docs/results/finetuning.md, tagging.md and chinese.md: a small pretrained model, and the same model from
# random weights, on eight tasks and, if they are named, on the entities of wnut17 (English, cased model) and msra_zh
# (Chinese), and on Chinese reviews: ChnSentiCorp and, in the folder of the model, shopping.
#
#   lab/tools/finetuning_runs.sh DATA PRETRAINED RUNS [pretrained|random] [task ...]
#
# DATA contains glue/, squad/{train,dev}-v{1.1,2.0}.json, race/, chinese/ and tagging/*/{train,dev}.conll; PRETRAINED is a
# run of run_pretraining.py, with its spiece.model or vocab.txt and small.json next to it. Each of the GLUE, tagging and
# Chinese tasks is run with $SEEDS seeds (5). Finished runs are kept.
set -euo pipefail
cd "$(dirname "$0")/.."
data=$1 pretrained=$2 runs=$3
kinds=${4:-pretrained random}
seeds=${SEEDS:-5}
shift $(($# < 4 ? $# : 4))
tasks=${*:-CoLA MRPC RTE STS-B SST-2 squad1.1 squad2.0 race}

for task in $tasks; do
  for kind in $kinds; do
    folder=$runs/$task/$kind
    [ -e "$folder/results.json" ] && continue
    rate="--learning_rate=3e-4"
    # With AdamW, every word gets the tag O at 1e-3 and 3e-4 (docs/results/tagging.md).
    case $task in wnut17 | msra_zh) rate="--optimizer=lamb --learning_rate=5e-3" ;; esac
    beside=$(dirname "$pretrained")
    vocabulary="--spm_model_file=$beside/spiece.model"
    [ -e "$beside/vocab.txt" ] && vocabulary="--vocab_file=$beside/vocab.txt"
    model="--init_checkpoint=$pretrained"
    [ "$kind" = random ] && model="--albert_config_file=$beside/small.json"
    common="$model $vocabulary --output_dir=$folder
      $rate --train_batch_size=32 --eval_batch_size=128 --feature_cache_dir=$runs/features
      --log_every_steps=100"
    glue="run_classifier.py --task_name=$task --data_dir=$data/glue"
    squad="--train_file=$data/squad/train-v${task#squad}.json --eval_file=$data/squad/dev-v${task#squad}.json"
    words="run_tagger.py --train_file=$data/tagging/$task/train.conll --eval_file=$data/tagging/$task/dev.conll
      --max_seq_length=64 --doc_stride=32 --num_runs=$seeds"
    texts="run_classifier.py --task_name=tsv --max_seq_length=128 --num_train_epochs=3 --num_runs=$seeds"
    reviews=$data/chinese/ChnSentiCorp shopping=$beside/shopping
    case $task in
      wnut17) program="$words --do_lower_case=false --num_train_epochs=10" ;;
      msra_zh) program="$words --word_separator=none --num_train_epochs=4" ;;
      ChnSentiCorp) program="$texts --train_file=$reviews/train.tsv --eval_file=$reviews/dev.tsv
        --text_columns=text_a --label_column=label" ;;
      shopping) program="$texts --train_file=$shopping/train.tsv --eval_file=$shopping/dev.tsv
        --text_columns=text --label_column=category" ;;
      CoLA) program="$glue --max_seq_length=64 --num_train_epochs=3 --num_runs=$seeds" ;;
      SST-2) program="$glue --max_seq_length=64 --num_train_epochs=1 --num_runs=$seeds" ;;
      RTE) program="$glue --max_seq_length=128 --num_train_epochs=5 --num_runs=$seeds" ;;
      MRPC | STS-B) program="$glue --max_seq_length=128 --num_train_epochs=4 --num_runs=$seeds" ;;
      squad*) program="run_squad.py --version=${task#squad} $squad --max_seq_length=128 --doc_stride=64
        --max_query_length=32 --num_train_epochs=1 --eval_every_steps=250" ;;
      race) program="run_race.py --data_dir=$data/race --max_seq_length=128 --max_qa_length=48
        --num_train_epochs=1 --eval_every_steps=1000" ;;
    esac
    echo "=== $task, $kind"
    # shellcheck disable=SC2086
    python $program $common
  done
done
