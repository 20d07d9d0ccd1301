#!/bin/sh
# test_convert.sh - `polyhead convert` on tiny published checkpoints.

set -u
CDPATH='' cd -- "$(dirname -- "$0")/.." || exit 1
. tests/shell_bed.inc
one_thread

models=tests/golden/checkpoints
printf '%s\n' "the cat sat on the mat." "a dog ran." "the mat sat." "dog" >"$tmp/texts"

# ---- merged, written, exported ----

run convert $models/llama --to mqa --out "$tmp/one"
same "convert, status" $status 0
holds "bytes of keys and values" "$out" "256 -> 128 bytes"
run export "$tmp/one" --out "$tmp/folder"
same "export, status" $status 0
holds "heads in its configuration" "$(cat "$tmp/folder/config.json")" '"num_key_value_heads": 1'
run convert "$tmp/folder" --to mha --out "$tmp/many"
same "back from the folder, status" $status 0
run convert "$tmp/many" --to mqa --json
holds "copies of the head" "$out" '"parameters": 23776'
holds "and one of them again" "$out" '"converted_parameters": 20704'

# ---- with texts; the tokenizer comes along ----

run convert $models/bert-sentence --to gqa:2 --data "$tmp/texts" --out "$tmp/bert" --json
json "convert --json"
holds "a distance" "$out" '"distance":'
holds "groups of heads" "$out" '"groups":'
lacks "an encoder has no loss of a next token" "$out" '"loss"'
run embed "$tmp/bert" "the cat sat on the mat."
same "vectors of the converted model, status" $status 0
run convert $models/bert-sentence --to collab:32 --data "$tmp/texts" --out "$tmp/full"
same "full rank, status" $status 0
holds "full rank loses nothing" "$out" "distance of the outputs            0.0000"
run export "$tmp/full" --out "$tmp/none"
same "collaborative heads have no folder, status" $status 4
holds "its sentence" "$err" "attention is collab:dim=32,content=1, which no published type has"
run convert $models/gpt2 --to mqa --out "$tmp/gpt2"
run export "$tmp/gpt2" --out "$tmp/none"
holds "a model whose end is no token of it can be read again" "$err" "no published type"
run convert $models/marian --to mqa --out "$tmp/marian"
run export "$tmp/marian" --out "$tmp/none"
same "no folder for these stacks, status" $status 4
holds "its sentence" "$err" "no published type has all that this model has: t5 differs in"
holds "Marian has as many key and value heads as heads" "$err" "marian differs in kv_heads"
cp -r $models/marian "$tmp/both"
cp $models/t5/tokenizer.json "$tmp/both/target_tokenizer.json"
run export "$tmp/both" --out "$tmp/exported"
same "a folder with a tokenizer of the decoder's texts keeps it" \
    "$(cmp "$tmp/both/target_tokenizer.json" "$tmp/exported/target_tokenizer.json" && echo same)" same
run convert $models/t5 --to gqa:1 --data "$tmp/texts"
same "an encoder-decoder without targets, status" $status 3
holds "its sentence" "$err" "text 1 has no tab"

run convert $models/bert-sentence --to gqa:2 --data "$tmp/texts" --tune 3 --distil --json
json "convert --tune --json"
holds "the cosine after training" "$out" '"cosine":'
run convert $models/bert-sentence --to gqa:2 --data "$tmp/texts" --tune 3 --out "$tmp/bad"
same "vectors have no labels, status" $status 2
run convert $models/bert-sentence --to gqa:2 --tune 3 --out "$tmp/bad"
same "training without texts, status" $status 2
printf '1\tthe cat sat\n0\ta dog ran\n1\tthe cat\n0\ta dog\n' >"$tmp/labels"
run convert $models/bert-classes --to mqa --data "$tmp/labels" --tune 3
same "a classifier is trained with labels, status" $status 0
holds "its accuracy" "$out" "token accuracy"

# ---- heads of a variant, with the weights of plain ones ----

run convert $models/bert-sentence --to talking+gated:head --data "$tmp/texts"
same "talking heads, status" $status 0
holds "identities lose nothing" "$out" "distance of the outputs            0.0000"
lacks "nothing was aligned" "$out" "aligned on"
run convert $models/gpt2 --to mohsa:overlap=2 --out "$tmp/overlapping" --json
json "convert --to mohsa --json"
holds "rows of wo for the neighbours" "$out" '"converted_parameters": 20480'
lacks "no errors of single heads" "$out" '"key_error"'
run convert $models/qwen3-sentence --to dcmha --out "$tmp/composed"
run look -m "$tmp/composed" "the cat sat"
same "rotated heads of a variant can be looked at, status" $status 0
run convert "$tmp/overlapping" --to mqa --out "$tmp/bad"
same "from a variant, status" $status 4
holds "its sentence" "$err" "attention of layer 0 is mohsa:overlap=2, expected mha, gqa or mqa"
run export "$tmp/overlapping" --out "$tmp/none"
holds "overlapping heads have no folder" "$err" "which no published type has"
run convert $models/bert-sentence --to "mohsa:overlap=1;mohsa:overlap=2" --data "$tmp/texts" --tune 3 --distil --json
same "an overlap for each layer, trained, status" $status 0
holds "the cosine before" "$out" '"cosine_before":'

# layers and heads of the table count from 1, as everywhere
run convert $models/llama --to gqa:1
holds "table: the first layer" "$out" "decoder    1 "
lacks "table: no layer 0" "$out" "decoder    0 "
run convert $models/gpt2 --to gqa:2 --group consecutive
holds "table: heads" "$out" " 1 2 | 3 4"

# ---- refused: a sentence, nothing written ----

run convert $models/llama --to gqa:3 --out "$tmp/bad"
same "groups that do not fit, status" $status 2
holds "its sentence" "$err" "2 key and value heads cannot be merged to 3"
run convert $models/llama --to collab:4 --out "$tmp/bad"
same "rotary positions, status" $status 4
run convert $models/llama --to gqa:9999999 --out "$tmp/bad"
holds "a number that is too large" "$err" "from 1 to 1048576"
run convert $models/llama --to mohsa:overlap=2 --out "$tmp/bad"
same "neighbours of shared heads, status" $status 4
holds "its sentence" "$err" "4, 2 and 2 heads of q, k and v"
run convert $models/llama --to diff --out "$tmp/bad"
same "no weights to begin with, status" $status 4
holds "its sentence" "$err" "expected gqa:G, mqa, mha, collab:R, entmax,"
run convert $models/gpt2 --to mohsa:2 --out "$tmp/bad"
same "an option it does not have, status" $status 2
run convert $models/llama --out "$tmp/bad"
same "no target, status" $status 2
run convert $models/llama --to mqa --distil --out "$tmp/bad"
holds "distilled, not trained" "$err" "--distil needs --tune STEPS"
run convert $models/bert-sentence --to gqa:2 --data "$tmp/no-such-file" --tune 3 --out "$tmp/bad"
holds "labels of vectors, before texts are read" "$err" "--tune needs --distil"
idle() { # OPTION... : an option that nothing would read
    run convert $models/bert-sentence "$@" --out "$tmp/bad"
    same "$*: status" $status 2
    holds "$*: sentence" "$err" "polyhead: $idle"
}
idle="--error goes with --to collab only"
idle --to mqa --error 0.1
idle --to collab:4 --error 0.1
for option in "--align none" "--group similar" "--merge mean" --renorm "--seed 1"; do
    idle="${option%% *} goes with"
    idle --to mha $option
    idle --to collab:4 $option
    idle --to talking $option
done
idle="--lr needs --tune" && idle --to mqa --lr 1
idle="--max-tokens needs --data" && idle --to mqa --max-tokens 9
run convert $models/whisper --to mqa --data "$tmp/texts" --out "$tmp/bad"
same "texts for sound are refused" $((status > 0)) 1
if [ -e "$tmp/bad" ]; then bad "something was written"; else good; fi
run convert $models/llama --to mqa --out "$tmp/one"
same "a model that exists, status" $status 7

finish
