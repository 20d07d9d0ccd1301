#!/bin/sh
# real_models.sh - every comparison of real models with transformers, one after the other;
# ends with the first that fails.
#
#   tools/real-models FOLDER
#   bench/real_models.sh FOLDER [parity|speed]
#
# $PYTHON (python3) has torch, transformers, accelerate (by which transformers reads GGUF) and
# gguf; onnxruntime, with onnx beside it, and llama-cpp-python are measured where it has them.
# Figures of a machine stand in bench/log/real-models.md.

set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
[ $# -ge 1 ] || { sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; exit 2; }
folder=$1 what=${2:-all} python=${PYTHON:-python3}
gguf=$folder/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf

if [ "$what" != speed ]; then
    "$python" "$here/real_models.py" "$folder" 200
    "$python" "$here/encoders.py" "$folder" parity
    "$python" "$here/whisper.py" "$folder/whisper" "$folder"/whisper/sound-?.npy parity
    "$python" "$here/random_checkpoints.py" 10
fi
[ "$what" != parity ] || exit 0
[ -d "$folder/smollm2/f32" ] ||
    "$here/../build/polyhead" export "$gguf" --dtype f32 --out "$folder/smollm2/f32"
"$python" "$here/decoders.py" "$gguf" "$folder/smollm2/f32"
"$python" "$here/encoders.py" "$folder" speed
"$python" "$here/whisper.py" "$folder/whisper" "$folder/whisper/sound-0.npy" speed
"$python" "$here/random_models.py"
