#!/bin/sh
# test_prune.sh - `polyhead importance` and `polyhead prune`: tables, files, curves, refusals.

set -u
CDPATH='' cd -- "$(dirname -- "$0")/.." || exit 1
. tests/shell_bed.inc
one_thread

run train copy --steps 40 --batch 8 --model-dim 16 --heads 4 --ff-dim 16 --layers 1 --test 10 \
    -q -o "$tmp/run"
same "train: status" "$status" 0
model=$tmp/run/model.safetensors
few="--recipe copy --texts 12"

# ---- importance ----

run importance "$model" $few --method all
same "importance: status" "$status" 0
holds "importance: a head" "$out" "cross    1-4 "
holds "importance: agreement of ranks" "$out" "rank correlation"
holds "importance: relevance" "$out" "lrp_ab      layer-wise relevance"
lacks "importance: sites as files name them" "$out" "decoder.0"
run importance "$model" $few --csv
holds "csv: sites as files name them, heads from 0" "$out" "decoder.0.cross,3,"
same "csv: a line for each of 12 heads" "$(printf '%s\n' "$out" | wc -l | tr -d ' ')" 13
run importance "$model" $few --json
json "importance --json"
run importance "$model" $few --method token,zero --html "$tmp/worth.html"
same "importance --html: status" "$status" 0
holds "importance --html: a head" "$(cat "$tmp/worth.html")" 'title="cross 1-4: '
same "importance --html: two grids of 12 heads" "$(grep -o ' 1-[1-4]: ' "$tmp/worth.html" | wc -l | tr -d ' ')" 24
same "importance --html: whole" "$(grep -c 'nan' "$tmp/worth.html")" 0
run importance "$model" $few --html "$tmp/none/worth.html"
same "importance --html nowhere: status" "$status" 7
run importance pronouns --recipe pronouns --texts 4 --csv
same "the model in the program: 16 heads" "$(printf '%s\n' "$out" | wc -l | tr -d ' ')" 17

run train copy --steps 1 --batch 2 --model-dim 16 --heads 2 --ff-dim 16 --layers 1 --test 2 -q \
    --variant talking -o "$tmp/talking"
run importance "$tmp/talking" $few --method lrp_ab
same "relevance of a variant: status" "$status" 4
holds "relevance of a variant" "$err" "plain attention only, and the model has talking"
run importance "$tmp/talking" --data "$tmp/no-such-file" --method path,lrp_ab
holds "relevance of a variant is refused before texts are read" "$err" "the model has talking"
run importance "$tmp/talking" $few --method all --csv
same "all methods of a variant: status" "$status" 0
holds "what is left out" "$err" "left out: relevance"
same "eight methods are left" "$(printf '%s\n' "$out" | head -1 | tr -cd , | wc -c | tr -d ' ')" 17

# ---- prune ----

run prune "$model" $few --heads 6 --tune 3 --out "$tmp/small" --curve "$tmp/curve.csv" --json
same "prune: status" "$status" 0
json "prune --json"
holds "prune: six are gone" "$out" '"removed": 6'
same "curve: eleven points" "$(wc -l <"$tmp/curve.csv" | tr -d ' ')" 12
run importance "$tmp/small" $few --csv
same "a pruned model has six" "$(printf '%s\n' "$out" | wc -l | tr -d ' ')" 7
run prune "$tmp/small" $few --share 1 --out "$tmp/none" --curve "$tmp/curve.html"
same "no head left: status" "$status" 0
holds "no head left" "$out" "none (of 2)"
holds "the curve as a page" "$(cat "$tmp/curve.html")" "random orders"
run generate "$tmp/none" abc
same "it still generates" "$status" 0
run look --model "$tmp/none" abc
same "without heads there is nothing to look at: status" "$status" 3
holds "nothing to look at" "$err" "no heads left"
run look --model "$tmp/small" abc
same "it can be looked at" "$status" 0
run prune "$model" $few --gates --gate-steps 3 --only-gates --l0 1
same "gates: status" "$status" 0
holds "gates" "$out" "ended between open and closed"

cat >"$tmp/plan.json" <<END
{"schema":"polyhead.plan/1","heads":[{"site":"encoder.0.self","head":2,"edit":"zero"}]}
END
run prune "$model" $few --plan "$tmp/plan.json" --out "$tmp/planned"
same "plan: status" "$status" 0
holds "plan: what is left" "$out" "encoder    1  1 2 4 (of 4)"

run prune "$model" $few --remove "E:1:1,4 A:1:2"
same "list: status" "$status" 0
holds "list: encoder" "$out" "encoder    1  2 3 (of 4)"
holds "list: cross-attention" "$out" "cross      1  1 3 4 (of 4)"
holds "list: decoder" "$out" "decoder    1  1 2 3 4 (of 4)"

run train copy --steps 1 --batch 2 --model-dim 16 --heads 4 --ff-dim 16 --layers 1 --test 2 -q \
    --variant gqa:2 --cross gqa:2 -o "$tmp/groups" # 4240 parameters
for structure in group even; do
    run prune "$tmp/groups" $few --heads 1 --structure $structure --json
    holds "--structure $structure: groups of one size" "$out" '"removed": 0'
    run prune "$tmp/groups" $few --heads 2 --structure $structure --json
    holds "--structure $structure: two heads" "$out" '"removed": 2'
    count=$(printf '%s\n' "$out" | sed -n 's/.*"parameters_left": \([0-9]*\).*/\1/p')
    [ "$count" -lt 4240 ] && good || bad "--structure $structure: $count parameters"
done

# ---- uneven numbers of heads in a published folder ----

printf '%s\n' "the cat sat on the mat." "a dog ran." >"$tmp/words"
run prune tests/golden/checkpoints/bert --data "$tmp/words" --remove 1:1 --out "$tmp/uneven"
same "one head of a published model: status" "$status" 0
run export "$tmp/uneven" --out "$tmp/folder"
same "export of uneven heads: status" "$status" 0
holds "export says what is zeros" "$err" "1 of 8 heads in '$tmp/folder' are zeros"

# ---- refusals: a sentence, and nothing is written ----

refuse() {
    name=$1 code=$2 part=$3
    shift 3
    run prune "$@" --out "$tmp/refused"
    same "$name: status" "$status" "$code"
    holds "$name: sentence" "$err" "$part"
    [ ! -e "$tmp/refused" ] && good || bad "$name: something was written"
}
sed 's/"zero"/"mean"/' "$tmp/plan.json" >"$tmp/mean.json"
sed 's/2/9/' "$tmp/plan.json" >"$tmp/far.json"
printf 'abc\n' >"$tmp/lines"
refuse "two ways" 2 "expected one of" "$model" $few --heads 1 --share 0.5
refuse "no way" 2 "expected one of" "$model" $few
refuse "distilled, not trained" 2 "--distil needs --tune" "$model" $few --heads 1 --distil
for option in "--l0 1" "--gate-steps 2" --only-gates; do
    refuse "$option without gates" 2 "needs --gates" "$model" $few --heads 1 $option
done
for option in "--method zero" --raw "--rescore 1" "--structure head" "--keep 1" "--curve $tmp/x.csv"; do
    refuse "$option with gates" 2 "goes with --heads and --share only" "$model" $few --gates $option
done
refuse "a rate, not trained" 2 "--lr needs" "$model" $few --heads 1 --lr 1
refuse "a seed of nothing" 2 "--seed needs" "$model" $few --heads 1 --seed 1
refuse "raw ablations" 2 "--raw needs --method token" "$model" $few --heads 1 --method zero --raw
refuse "tokens of samples" 2 "--max-tokens needs --data" "$model" $few --heads 1 --max-tokens 9
run importance "$model" $few --method zero --normalise
same "ablations normalised: status" "$status" 2
refuse "links of a teacher" 4 "points from word to word" pronouns --recipe pronouns --texts 4 \
    --heads 1 --tune 1 --distil
refuse "no data" 2 "expected --data FILE or --recipe NAME" "$model" --heads 1
refuse "too many" 2 "the model has 12" "$model" $few --heads 13
refuse "a mean" 3 "expected heads that are off" "$model" $few --plan "$tmp/mean.json"
refuse "no such head" 3 "has no head 9" "$model" $few --plan "$tmp/far.json"
for list in " " "E" "E:1" "E:1:" "E:1:1," "E:1:1;2" "E:0:1" "E:1:x" "E:1:1 A" "X:1:1"; do
    refuse "list '$list'" 2 "--remove: '" "$model" $few --remove "$list"
done
refuse "no such layer" 2 "there is no head encoder 2-1, expected" "$model" $few --remove E:2:1
refuse "far" 2 "there is no head encoder 1-" "$model" $few --remove E:1:99999999999999999999
refuse "no letter" 2 "expected E:, A: or D:" "$model" $few --remove 1:1
refuse "no tab" 3 "expected source TAB target" "$model" --data "$tmp/lines" --heads 1
refuse "another recipe" 2 "not a model of this recipe" "$model" --recipe dates --heads 1
refuse "no method" 2 "there is no method" "$model" $few --heads 1 --method x
refuse "a file that never ends" 3 "a byte that is 0" "$model" --data /dev/zero --heads 1
run train shapes --steps 1 --batch 2 --model-dim 16 --heads 2 --ff-dim 16 --layers 1 --test 2 \
    -o "$tmp/shapes"
holds "pictures are counted as such" "$err" "% of 2 pictures"
refuse "pictures" 4 "of pictures, expected texts" "$tmp/shapes" --recipe shapes --heads 1

# ---- what the model cannot do is known before texts are read: the file is not there ----

albert=tests/golden/checkpoints/albert talking=$tmp/talking
none="--data $tmp/no-such-file"
for way in --gates "--heads 1" "--share 0.5" "--remove 1:1"; do
    refuse "$way of layers that share parameters" 4 "layers share parameters" $albert $none $way
done
refuse "gates of mixed heads" 4 "heads of talking cannot be removed" "$talking" $none --gates
refuse "a list of mixed heads" 4 "heads of talking cannot be removed" "$talking" $none --remove E:1:1
refuse "relevance of parallel sublayers" 4 "are parallel" tests/golden/checkpoints/gpt_neox $none \
    --heads 1 --method lrp_ab
refuse "more heads than there are" 2 "the model has 12" "$model" $none --heads 13
refuse "no such head, no texts" 2 "there is no head encoder 2-1" "$model" $none --remove E:2:1
refuse "labels of vectors" 2 "--gates needs --distil" tests/golden/checkpoints/bert-sentence $none --gates
refuse "a recipe that is not there, before the model" 2 "there is no recipe 'x'" "$tmp/no-model" \
    --recipe x --heads 1

# ---- what is there already stays ----

run prune "$tmp/no-model" $few --heads 1 --out "$tmp/small"
same "an old directory: status" "$status" 7
holds "an old directory is refused before any work" "$err" "expected a new directory"
mkfifo "$tmp/pipe.html"
cat "$tmp/pipe.html" >"$tmp/piped" &
reader=$!
run prune "$model" $few --heads 1 --curve "$tmp/pipe.html"
[ -p "$tmp/pipe.html" ] && good || { bad "a pipe was replaced by a file"; kill "$reader"; }
wait "$reader"
holds "a curve through a pipe" "$(cat "$tmp/piped")" "random orders"

# A limit of no bytes is a full disk. What the program says is a file too: pipes have no limit.
said=$( (ulimit -f 0; trap '' XFSZ; "$program" prune "$model" $few --heads 1 --curve "$tmp/full.csv" 2>&1) | cat)
holds "a curve on a full disk" "$said" "cannot write"
[ ! -e "$tmp/full.csv" ] && good || bad "half a curve stays"
said=$( (ulimit -f 0; trap '' XFSZ; "$program" prune "$model" --remove E:1:1 --out "$tmp/full" 2>&1) | cat)
holds "a model on a full disk" "$said" "cannot write"
[ ! -e "$tmp/full" ] && good || bad "an empty directory stays"
mkdir "$tmp/mine"
said=$( (ulimit -f 0; trap '' XFSZ; "$program" prune "$model" --remove E:1:1 --out "$tmp/mine" 2>&1) | cat)
[ -d "$tmp/mine" ] && good || bad "a directory that was there is gone"

# ---- a plan needs no text ----

printf 'a %0200d\tb\n' 0 >"$tmp/long.tsv"
run prune "$model" --data "$tmp/long.tsv" --plan "$tmp/plan.json"
same "a plan beside long texts: status" "$status" 0
run prune "$model" --plan "$tmp/plan.json" --out "$tmp/unmeasured"
same "a plan without texts: status" "$status" 0
holds "a plan without texts: what is left" "$out" "encoder    1  1 2 4 (of 4)"
case $out in *loss*) bad "a loss without texts" ;; *) good ;; esac
cmp -s "$tmp/unmeasured/model.safetensors" "$tmp/planned/model.safetensors" && good ||
    bad "texts change what a plan removes"
echo '{"schema":"polyhead.plan/1","heads":[]}' >"$tmp/nothing.json"
run prune tests/golden/checkpoints/bert --plan "$tmp/nothing.json" --out "$tmp/same"
same "a plan of nothing: status" "$status" 0
run embed "$tmp/same" "the cat sat"
same "a plan of nothing leaves a model: status" "$status" 0
run prune "$model" --remove E:1:1 --json
same "a list without texts: status" "$status" 0
json "a list without texts"
refuse "training without texts" 2 "expected --data FILE or --recipe NAME" "$model" --plan "$tmp/plan.json" --tune 1
refuse "a test file alone" 2 "--test needs --data" "$model" --plan "$tmp/plan.json" --test "$tmp/lines"

finish
