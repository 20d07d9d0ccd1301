#!/bin/sh
# test_train.sh - trainings that are stopped, killed, damaged or refused; models that answer.
#
# KILLS=1000 tests/test_train.sh kills that often instead of 20 times.

set -u
CDPATH='' cd -- "$(dirname -- "$0")/.." || exit 1
. tests/shell_bed.inc
one_thread

sum() { cksum <"$1" 2>/dev/null; }

small="--layers 1 --model-dim 16 --heads 2 --ff-dim 16 --batch 8 --dropout 0.1 --test 0 -q"
train() { "$program" train "$@"; }

# ---- the same bits, however it was run ----

train copy $small --steps 120 --checkpoint-every 7 -o "$tmp/whole" >/dev/null || bad "train"
whole=$(sum "$tmp/whole/model.safetensors")
train copy $small --steps 120 -t 2 -o "$tmp/one" >/dev/null
same "two threads" "$(sum "$tmp/one/model.safetensors")" "$whole"
same "checkpoints kept" "$(find "$tmp/whole" -name 'step-*' | wc -l | tr -d ' ')" 3

# ---- closed standard streams: their numbers go to no file of the program ----

train copy ${small% -q} --steps 3 -o "$tmp/closed" <&- >&- 2>&-
same "closed streams: status" $? 0
same "closed streams: lines of the log that are no JSON" \
    "$(grep -vc '^{.*}$' "$tmp/closed/log.jsonl")" 0

# ---- kill -9 at random moments: every resume ends with the same bits ----

kills=${KILLS:-20} n=0 before='' lost='' other=''
mkdir "$tmp/killed"
while [ $n -lt "$kills" ]; do
    if [ -n "$(find "$tmp/killed" -name 'step-*.safetensors')" ]; then
        "$program" train --resume -q -o "$tmp/killed" >/dev/null 2>&1 &
    else
        "$program" train copy $small --steps 120 --checkpoint-every 7 -o "$tmp/killed" >/dev/null 2>&1 &
    fi
    pid=$!
    sleep "0.0$(od -An -N1 -tu1 /dev/urandom | awk '{printf "%02d", $1 % 100}')"
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    n=$((n + 1))
    last=$(find "$tmp/killed" -name 'step-*.safetensors' | sort | tail -n 1)
    if [ "$(printf '%s\n%s\n' "$before" "$last" | sort | tail -n 1)" != "$last" ]; then
        lost="$lost$before after $n kills, "
    fi
    before=$last
    if [ -e "$tmp/killed/model.safetensors" ]; then # done: from the start again
        [ "$(sum "$tmp/killed/model.safetensors")" = "$whole" ] || other="$other$n, "
        rm -rf "$tmp/killed" && mkdir "$tmp/killed"
        before=
    fi
done
if [ -n "$(find "$tmp/killed" -name 'step-*.safetensors')" ]; then
    train --resume -q -o "$tmp/killed" >/dev/null || bad "resume after kills"
else
    train copy $small --steps 120 -o "$tmp/killed" >/dev/null || bad "train after kills"
fi
same "checkpoints lost by kills" "$lost" ""
same "models done between kills with other bits" "$other" ""
same "after all kills" "$(sum "$tmp/killed/model.safetensors")" "$whole"
same "nothing half written" "$(find "$tmp/killed" -name '*.tmp*' | wc -l | tr -d ' ')" 0

# killed while the last file was written, after the last checkpoint
: >"$tmp/killed/.polyhead-$(sh -c 'echo $$')-0.tmp" && rm "$tmp/killed/model.safetensors"
train --resume --test 0 -q -o "$tmp/killed" >/dev/null || bad "resume of what is done"
same "the last file again" "$(sum "$tmp/killed/model.safetensors")" "$whole"
same "no half of it" "$(find "$tmp/killed" -name '*.tmp*' | wc -l | tr -d ' ')" 0

# ---- Ctrl-C, a terminal that is closed, and a second training in the same directory ----

for name in INT HUP; do
    [ $name = INT ] && expected=130 || expected=129
    "$program" train copy $small --steps 1000000 -o "$tmp/$name" >"$tmp/out" 2>"$tmp/err" &
    pid=$!
    until grep -q '"step":10,' "$tmp/$name/log.jsonl" 2>/dev/null; do sleep 0.05; done
    if [ $name = INT ]; then
        words=$(train copy $small --steps 5 -o "$tmp/INT" 2>&1)
        same "second training, status" $? 2
        holds "second training" "$words" "another training is running in $tmp/INT"
        words=$(train --resume -o "$tmp/INT" 2>&1)
        holds "second training, resumed" "$words" "another training is running in $tmp/INT"
    fi
    kill -$name $pid
    wait $pid
    same "SIG$name, status" $? "$expected"
    holds "SIG$name, words" "$(cat "$tmp/err")" "resume with: polyhead train --resume -o"
    same "SIG$name, checkpoint" "$(find "$tmp/$name" -name 'step-*' | wc -l | tr -d ' ')" 1
done

# ---- a resumed training keeps its pace, unless told otherwise ----

train copy $small --steps 12 --checkpoint-every 5 --keep 9 --seed 9223372036854775807 -o "$tmp/pace" >/dev/null
rm "$tmp"/pace/step-00000012* "$tmp"/pace/step-00000010*
train --resume -q -o "$tmp/pace" >/dev/null
same "pace" "$(cd "$tmp/pace" && echo step-*)" \
    "step-00000005.safetensors step-00000010.safetensors step-00000012.safetensors"
rm "$tmp"/pace/step-00000012* "$tmp"/pace/step-00000010*
train --resume --checkpoint-every 4 -q -o "$tmp/pace" >/dev/null
same "another pace" "$(cd "$tmp/pace" && echo step-*)" \
    "step-00000005.safetensors step-00000008.safetensors step-00000012.safetensors"

# ---- a byte order mark is no character of a text ----

awk 'BEGIN { for (i = 0; i < 300; i++) printf "the cat sat on the mat. " }' >"$tmp/edited"
printf '\357\273\277' | cat - "$tmp/edited" >"$tmp/mark"
for text in edited mark; do
    train text "$tmp/$text" $small --length 16 --steps 2 -q -o "$tmp/of_$text" >/dev/null || bad "text"
    "$program" tokens "$tmp/of_$text" "the mat" --json >"$tmp/$text.json"
done
same "its vocabulary" "$(cat "$tmp/mark.json")" "$(cat "$tmp/edited.json")"

# ---- an edited text ----

train text "$tmp/edited" $small --length 16 --steps 2 -o "$tmp/changed" >/dev/null || bad "text"
printf 'zebra' >>"$tmp/edited"
words=$(train --resume -q -o "$tmp/changed" 2>&1)
same "edited text, status" $? 3
holds "edited text" "$words" "$tmp/edited has changed since the training began"

# ---- damage ----

last=$(find "$tmp/whole" -name 'step-*' | sort | tail -n 1)
printf 'xxxx' | dd of="$last" bs=1 seek=20000 conv=notrunc 2>/dev/null
rm "$tmp/whole/model.safetensors"
words=$(train --resume --test 0 -q -o "$tmp/whole" 2>&1)
holds "damage, words" "$words" "damaged"
same "damage, bits" "$(sum "$tmp/whole/model.safetensors")" "$whole"
for f in "$tmp"/whole/step-*; do : >"$f"; done
train --resume -q -o "$tmp/whole" >/dev/null 2>&1
same "all damaged" $? 3

# ---- what is refused ----

words=$(train copy $small -o "$tmp/one" 2>&1)
same "used directory, status" $? 2
holds "used directory" "$words" "--resume continues"
train --resume -o "$tmp/none" >/dev/null 2>&1
same "nothing to resume" $? 7
holds "another recipe" "$("$program" train dates --resume -o "$tmp/one" 2>&1)" "of copy, not of dates"
words=$(train copy "$tmp/edited" $small --steps 1 -o "$tmp/unread" 2>&1)
same "a file that nobody reads, status" $? 2
holds "a file that nobody reads" "$words" "recipe copy takes no file, found '$tmp/edited'"
words=$(train cpoy 2>&1)
holds "misspelt recipe" "$words" "did you mean copy"
: >"$tmp/file"
train copy $small -o "$tmp/file" >/dev/null 2>&1
same "a file as directory" $? 7
printf 'no tab\n' >"$tmp/bad.tsv"
words=$(train --pairs "$tmp/bad.tsv" -o "$tmp/bad" 2>&1)
same "bad pairs, status" $? 3
holds "bad pairs" "$words" "line 1: no TAB"
printf 'a\tb\tc\n' >"$tmp/bad.tsv"
words=$(train --pairs "$tmp/bad.tsv" -o "$tmp/bad" 2>&1)
holds "a third column" "$words" "line 1: more than one TAB"
printf 'a\tb\n' >"$tmp/bad.tsv"
words=$(train --pairs "$tmp/bad.tsv" -o "$tmp/bad" 2>&1)
holds "one pair" "$words" "has 1 pair, expected at least"
words=$(train copy --heads 5 -o "$tmp/heads" 2>&1)
holds "wrong heads" "$words" "no multiple of heads 5"
words=$(train copy $small --variant "$(printf '%0256d' 0)" -o "$tmp/variant" 2>&1)
holds "a list of variants that is cut off" "$words" "--variant has 256 bytes, expected at most 255"
words=$(train copy $small --cross nonsense -o "$tmp/cross" 2>&1)
holds "wrong cross-attention" "$words" 'variant is "nonsense"'
words=$(train pronouns --cross mha -o "$tmp/cross" 2>&1)
holds "cross-attention of an encoder" "$words" "only an encoder-decoder has"
lacks "a refused training" "$(ls "$tmp")" cross

# A file that may not grow is a failed write: a sentence, and nothing half written stays.
words=$(ulimit -f 8 && train copy $small --steps 2 -o "$tmp/limit" 2>&1)
same "size limit, status" $? 7
holds "size limit" "$words" "cannot write '$tmp/limit/step-00000002.safetensors': File too large"
same "size limit, files" "$(ls -A "$tmp/limit")" log.jsonl

# ---- your own pairs and texts ----

awk 'BEGIN { for (i = 0; i < 200; i++) printf "%d\t%d\n", i, i }' >"$tmp/pairs.tsv"
train --pairs "$tmp/pairs.tsv" --steps 20 --batch 8 --layers 1 --model-dim 16 --heads 2 --test 10 -q \
    -o "$tmp/pairs" >/dev/null || bad "pairs"
same "generate from pairs" "$("$program" generate "$tmp/pairs" 17 | wc -l | tr -d ' ')" 1
awk 'BEGIN { for (i = 0; i < 300; i++) printf "the cat sat on the mat. " }' >"$tmp/text"
train text "$tmp/text" --steps 150 --batch 8 --layers 2 --model-dim 32 --heads 4 --length 32 --lr 3e-3 \
    --test 50 -q -o "$tmp/story" >/dev/null || bad "text"
holds "goes on with a text" "$("$program" generate "$tmp/story" "the cat s" --max-tokens 10)" "the cat sat on the"
same "the same choice twice" \
    "$("$program" generate "$tmp/story" the --temperature 1 --top-p 0.9 --seed 5)" \
    "$("$program" generate "$tmp/story" the --temperature 1 --top-p 0.9 --seed 5 -t 2)"

# ---- a model goes on learning: from a checkpoint of others, and from one of ours ----

golden=tests/golden/checkpoints
awk 'BEGIN { for (i = 0; i < 60; i++) printf "%s\t%s %c\n", i % 2 ? "yes" : "no",
    i % 2 ? "the cat" : "is good", 97 + i % 26 }' >"$tmp/lines.tsv"
train classes "$tmp/lines.tsv" --from $golden/bert --steps 60 --lr 3e-3 --length 16 --test 10 -q \
    -o "$tmp/classes" >/dev/null || bad "classes"
holds "what it learned" "$("$program" classify "$tmp/classes" "the cat z" | head -n 1)" "yes"
"$program" export "$tmp/classes" --out "$tmp/folder" >/dev/null || bad "export"
same "the folder" "$("$program" classify "$tmp/folder" "the cat z")" \
    "$("$program" classify "$tmp/classes" "the cat z")"

# A decoder with a classifier keeps it for labels that it knows, and gets one like it for others.
cp -r $golden/llama-classes "$tmp/llama"
head -n 61 $golden/bert/vocab.txt >"$tmp/llama/vocab.txt"
for labels in "yes no" "good bad"; do
    sed "s/^yes/${labels% *}/; s/^no/${labels#* }/" "$tmp/lines.tsv" >"$tmp/named.tsv"
    rm -rf "$tmp/decoder" "$tmp/folder"
    train classes "$tmp/named.tsv" --from "$tmp/llama" --steps 60 --lr 3e-3 --length 16 --test 10 -q \
        -o "$tmp/decoder" >/dev/null || bad "classes of a decoder"
    "$program" classify "$tmp/decoder" "the cat z" >"$tmp/out"
    holds "what a decoder learned" "$(head -n 1 "$tmp/out")" "${labels% *}"
    "$program" export "$tmp/decoder" --out "$tmp/folder" >/dev/null || bad "export of a decoder"
    same "its folder" "$("$program" classify "$tmp/folder" "the cat z")" "$(cat "$tmp/out")"
    holds "its class in transformers" "$(cat "$tmp/folder/config.json")" "LlamaForSequenceClassification"
done
train classes "$tmp/lines.tsv" --steps 2 --layers 1 --model-dim 16 --heads 2 --ff-dim 16 --length 16 \
    --test 2 -q -o "$tmp/own" >/dev/null || bad "classes from nothing"
train classes "$tmp/lines.tsv" --from "$tmp/own" --steps 2 --length 16 --test 2 -q -o "$tmp/on" >/dev/null ||
    bad "a classifier of ours does not learn on"
train classes "$tmp/lines.tsv" --from $golden/bert --steps 1 --test 2 -q -o "$tmp/short" >/dev/null ||
    bad "texts are not cut to what the model takes"
train text "$tmp/text" --from "$tmp/story" --steps 5 --length 32 --test 0 -q -o "$tmp/more" >/dev/null ||
    bad "from one of ours"
holds "goes on with it" "$("$program" generate "$tmp/more" "the cat s" --max-tokens 10)" "the cat sat on the"
holds "its options" "$(head -n 1 "$tmp/more/log.jsonl")" '"tuned":true'
# Heads of a plan are gone before training goes on, and from what is generated.
heads_off=$(printf '{"site":"decoder.0.self","head":%s,"edit":"zero"},' 0 1)
printf '{"schema":"polyhead.plan/1","heads":[%s]}' "${heads_off%,}" >"$tmp/plan.json"
train text "$tmp/text" --from "$tmp/story" --plan "$tmp/plan.json" --steps 2 --length 32 --test 0 -q \
    -o "$tmp/planned" >/dev/null || bad "train --plan failed"
before=$(wc -c <"$tmp/more/model.safetensors") after=$(wc -c <"$tmp/planned/model.safetensors")
same "train --plan: fewer parameters" "$((after < before))" 1
whole=$("$program" generate "$tmp/story" "the" --max-tokens 12 --json)
same "generate without a plan is the same again" "$("$program" generate "$tmp/story" "the" --max-tokens 12 --json)" "$whole"
"$program" generate "$tmp/story" "the" --max-tokens 12 --json --plan "$tmp/plan.json" >"$tmp/out" 2>&1
same "generate --plan: status" "$?" 0
sed 's/zero/mean/' "$tmp/plan.json" >"$tmp/mean.json"
"$program" generate "$tmp/story" "the" --plan "$tmp/mean.json" >"$tmp/out" 2>&1
same "generate --plan: a mean needs one text" "$?" 3
holds "generate --plan: why" "$(cat "$tmp/out")" "its mean over the words of one text"
# Gates: of 1 they change nothing, of 0 they are heads that are off.
gated() { printf '{"schema":"polyhead.plan/1","heads":[%s]}' "$(printf '{"site":"decoder.0.self","head":%s,"edit":"gate","gate":'"$1"'},' 0 1 | sed 's/,$//')" >"$tmp/gated.json"; }
off=$("$program" generate "$tmp/story" "the" --max-tokens 12 --json --plan "$tmp/plan.json")
gated 0
same "generate --plan: gates of 0" "$("$program" generate "$tmp/story" "the" --max-tokens 12 --json --plan "$tmp/gated.json")" "$off"
gated 0.5
"$program" generate "$tmp/story" "the" --max-tokens 12 --plan "$tmp/gated.json" >/dev/null 2>&1
same "generate --plan: gates of one half" "$?" 0
train text "$tmp/text" --from "$tmp/story" --plan "$tmp/gated.json" --steps 2 --length 32 --test 0 -q \
    -o "$tmp/gated" >/dev/null || bad "train --plan with gates failed"
train text "$tmp/text" --plan "$tmp/plan.json" -o "$tmp/never" >"$tmp/out" 2>&1
holds "train --plan needs a model" "$(cat "$tmp/out")" "it needs --from"

train text "$tmp/text" --from "$tmp/story" --layers 3 -o "$tmp/never" >"$tmp/out" 2>&1
same "the model stays as it is: status" $? 2
holds "the model stays as it is" "$(cat "$tmp/out")" "--from takes the model as it is"

# ---- the model in the program ----

words=$("$program" generate pronouns "The animal didn't cross the street because it was too wide.")
holds "it is the street" "$words" "it             -> street"
words=$("$program" generate pronouns "那只动物没有穿过街道，因为它太累了。" --json)
holds "it is the animal" "$words" '"relation": "reference"'

# ---- curves ----

"$program" plot "$tmp/one" "$tmp/story" -o "$tmp/page.html" >/dev/null || bad "plot"
same "curves" "$(grep -c polyline "$tmp/page.html")" 4
"$program" plot "$tmp/none" >/dev/null 2>&1
same "no run" $? 7

finish
