#!/usr/bin/env bash
# Pretrains the small English model; the same command continues it after it was stopped.
#
#   lab/small_en/pretrain.sh DATA WORK         # DATA: see text.py; WORK: a folder outside the checkout
#   lab/small_en/pretrain.sh DATA WORK last    # ends it
#
# The model begins with values that were computed from the text (initial_values.py). Its shared layer is first used twice,
# then three times: six uses take twice the time of three and were no better after nine million tokens. The learning rate
# stays constant, so that the run may take any time; stop it, and end it by a last run with longer rows, six layers with
# losses of the others, and a falling rate.
# Each run has another seed: with the same one, it would see the examples of the run before again, with the same masks.
set -euo pipefail
data=$1 work=$2
mkdir -p "$work"
cd "$(dirname "$0")/../.."
python=${PYTHON:-.venv/bin/python}

config() { # number of layers
  echo '{"vocab_size": 16000, "embedding_size": 128, "hidden_size": 384, "num_attention_heads": 6,
    "intermediate_size": 1536, "max_position_embeddings": 512, "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0, "initializer_range": 0.04, "num_hidden_layers": '"$1"'}' > "$work/$1_layers.json"
}
train() { # name, length, flags
  local name=$1 length=$2
  shift 2
  if [ ! -f "$work/$name/results.json" ]; then
    nice -n 19 "$python" run_pretraining.py --input_file="$work/records/train_$length" \
      --eval_file="$work/records/held_out_$length" --spm_model_file="$work/spiece.model" --output_dir="$work/$name" \
      --mixed_precision=mixed_bfloat16 --num_warmup_steps=100 --log_every_steps=50 --eval_every_steps=500 \
      --max_eval_steps=20 --save_checkpoints_steps=250 --keep_checkpoint_max=2 "$@"
  fi
}

log_processor_time() { # for report.py: time, process, its processor seconds, its folder and last step
  while sleep 30; do
    ps -eo pid=,times=,args= | sed -n "s|^ *\([0-9]*\) *\([0-9]*\) .*run_pretraining.*--output_dir=\($work/[^ ]*\).*|\1 \2 \3|p" |
      while read -r process seconds folder; do
        step=$(tail -n 1 "$folder/metrics.jsonl" 2> /dev/null | grep -o '"step": [0-9]*' | grep -o '[0-9]*') || true
        echo "$(date +%s) $process $seconds $folder $step" >> "$work/processor.log"
      done
  done
}
log_processor_time &
trap "kill $!" EXIT

if [ ! -f "$work/spiece.model" ]; then
  "$python" -m lab.small_en.text --data_dir="$data" --output_dir="$work/text"
  "$python" -m data_prep.split_sentences --input_file="$work/text" --output_file="$work/train.txt" \
    --eval_output_file="$work/held_out.txt" --eval_fraction=0.01 --line_breaks=paragraphs
  "$python" -m data_prep.train_sentencepiece --input_file="$work/train.txt" --output_prefix="$work/spiece" \
    --vocab_size=16000 --input_sentence_size=1000000
fi
records() { # length, predictions
  local common=(--spm_model_file="$work/spiece.model" --max_seq_length="$1" --max_predictions_per_seq="$2" --single_segment=clean)
  "$python" -m data_prep.create_pretraining_data --input_file="$work/train.txt" --output_dir="$work/records/train_$1" \
    --masking=dynamic --dupe_factor=3 "${common[@]}"
  "$python" -m data_prep.create_pretraining_data --input_file="$work/held_out.txt" --output_dir="$work/records/held_out_$1" \
    --dupe_factor=1 "${common[@]}"
}
records 128 20
records 512 77

config 2
config 3
config 6
if [ ! -f "$work/initial/config.json" ]; then
  "$python" -m lab.small_en.initial_values --albert_config_file="$work/2_layers.json" --input_file="$work/train.txt" \
    --spm_model_file="$work/spiece.model" --output_dir="$work/initial"
fi
train 2_layers 128 --seed=1 --albert_config_file="$work/2_layers.json" --init_checkpoint="$work/initial" \
  --train_batch_size=16 --learning_rate=5e-3 --poly_power=0 --num_train_steps=1500
if [ "${3:-}" != last ]; then
  train 3_layers 128 --seed=2 --albert_config_file="$work/3_layers.json" --init_checkpoint="$work/2_layers" \
    --warm_start_from_shallower --train_batch_size=32 --learning_rate=3e-3 --poly_power=0 --num_train_steps=1000000
fi
train last 512 --seed=3 --albert_config_file="$work/6_layers.json" --init_checkpoint="$work/3_layers" \
  --warm_start_from_shallower --depth_losses=0.3 --train_batch_size=16 --learning_rate=3e-3 --num_train_steps=5000
