#!/bin/sh
# test_generate.sh - `polyhead generate`: answers of models, a text at a time and line by line.

set -u
CDPATH='' cd -- "$(dirname -- "$0")/.." || exit 1
. tests/shell_bed.inc
one_thread

generate() { "$program" generate "$@"; }
lines() { wc -l | tr -d ' '; }

# ---- an encoder-decoder that knows four answers by heart; source "a" is held out for tests ----

awk 'BEGIN { split("ab ba abab bb a", from); split("123 21 4 1111 2", to)
    for (i = 0; i < 200; i++) printf "%s\t%s\n", from[i % 5 + 1], to[i % 5 + 1] }' >"$tmp/pairs.tsv"
"$program" train --pairs "$tmp/pairs.tsv" --steps 150 --batch 8 --layers 1 --model-dim 32 --heads 2 \
    --lr 5e-3 --dropout 0 --test 0 -q -o "$tmp/pairs" >/dev/null || bad "train pairs"
for search in "" "--beams 1" "--beams 3" "--beams 16"; do
    same "answer $search" "$(generate "$tmp/pairs" ab $search)" 123
    same "another answer $search" "$(generate "$tmp/pairs" bb $search)" 1111
    same "answer at the length limit $search" "$(generate "$tmp/pairs" ab --max-tokens 2 $search)" 12
done
run generate "$tmp/pairs" ab --beams 3 --temperature 1
same "beams and sampling, status" $status 2
holds "beams and sampling" "$err" "expected one of them"

# ---- every line of stdin has its own answer ----

long=$(printf '%0200d' 0 | tr 0 a)
printf 'ab\n\n%s\nb\000b\nba\nabab' "$long" | generate "$tmp/pairs" >"$tmp/out" 2>"$tmp/err"
same "lines, status" $? 3
same "lines" "$(cat "$tmp/out")" "$(printf '123\n\n\n\n21\n4')"
holds "a line that is too long" "$(cat "$tmp/err")" "line 3: the text has 200 tokens, expected 1 to"
holds "a line with a zero byte" "$(cat "$tmp/err")" "line 4: a byte is 0, expected text"
printf 'ab\n\nb\000b\nba\n' | generate "$tmp/pairs" --json >"$tmp/out" 2>"$tmp/err"
same "lines in JSON" "$(cat "$tmp/out")" \
    '{"schema":"polyhead.generate/1","text":"ab","generated":"123"}
{"schema":"polyhead.generate/1","text":"","generated":""}
{"schema":"polyhead.generate/1","text":null,"generated":null}
{"schema":"polyhead.generate/1","text":"ba","generated":"21"}'

# ---- equal lines get samples of their own ----

hot="--temperature 20 --seed 4"
yes ab | head -n 20 | generate "$tmp/pairs" $hot >"$tmp/samples"
same "a sample for every line" "$(lines <"$tmp/samples")" 20
[ "$(sort -u "$tmp/samples" | lines)" -gt 10 ] && good || bad "equal lines have equal samples"
same "the same samples again" "$(yes ab | head -n 20 | generate "$tmp/pairs" $hot -t 2)" \
    "$(cat "$tmp/samples")"
same "the first line is TEXT" "$(generate "$tmp/pairs" ab $hot)" "$(head -n 1 "$tmp/samples")"

# ---- many prompts, stop texts, types of caches ----

printf 'ab\nba\n\nbb\nabab\nab\n' >"$tmp/prompts"
for way in "" "--batch 1" "--batch 2" "--beams 2" "--kv-dtype bf16" "--threads 2"; do
    same "lines of a file $way" "$(generate "$tmp/pairs" --prompts "$tmp/prompts" $way)" \
        "$(printf '123\n21\n\n1111\n4\n123')"
done
same "lines of a file and of stdin" "$(generate "$tmp/pairs" --prompts "$tmp/prompts" $hot)" \
    "$(generate "$tmp/pairs" $hot <"$tmp/prompts")"

printf '\357\273\277ab\nba\n' >"$tmp/mark"
same "a byte order mark" "$(generate "$tmp/pairs" --prompts "$tmp/mark")" "$(printf '123\n21')"
same "a byte order mark in pieces" "$({ printf '\357\273' && sleep 0.1 && printf '\277ab\nba\n'; } |
    generate "$tmp/pairs")" "$(printf '123\n21')"

for way in - "--prompts -"; do
    same "generate $way" "$(printf 'ab\nba\n' | generate "$tmp/pairs" $way)" "$(printf '123\n21')"
done

# Answers come while lines do, and are not lost with those that do not come any more.
mkfifo "$tmp/fifo" && : >"$tmp/early"
"$program" generate "$tmp/pairs" <"$tmp/fifo" >"$tmp/early" &
early=$! tries=0
exec 3>"$tmp/fifo"
printf 'ab\nba\n' >&3
until [ "$(lines <"$tmp/early")" = 2 ] || [ $tries = 500 ]; do
    sleep 0.02
    tries=$((tries + 1))
done
same "answers before the end of the lines" "$(cat "$tmp/early")" "$(printf '123\n21')"
exec 3>&-
wait $early
i=0
while [ $i -lt 9000 ]; do # more than are held at a time
    printf 'ab\n\nba\nbb\n'
    i=$((i + 4))
done >"$tmp/many"
printf '123\n\n21\n1111\n' >"$tmp/four"
for batch in 0 100; do
    same "many lines, $batch at a time" "$(generate "$tmp/pairs" --prompts "$tmp/many" --batch $batch | sort | uniq -c | tr -s ' \n' ' ')" \
        " 2250 2250 1111 2250 123 2250 21 "
done
same "many lines, in order" "$(generate "$tmp/pairs" --prompts "$tmp/many" | tail -n 4)" "$(cat "$tmp/four")"
run generate "$tmp/pairs" --prompts "$tmp/prompts" --time
holds "how long all lines took" "$err" "generated in "
same "a line says so" "$(printf '%s\n' "$err" | lines)" 1

# A tokenizer that puts a mark before every text has tokens for a blank line too.
cp -r tests/golden/checkpoints/llama "$tmp/llama"
{
    printf '{"added_tokens":[{"id":0,"content":"<s>","single_word":false,"lstrip":false,'
    printf '"rstrip":false,"normalized":false,"special":true}],"post_processor":{"type":'
    printf '"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},'
    printf '{"Sequence":{"id":"A","type_id":0}}],"pair":[{"Sequence":{"id":"A","type_id":0}},'
    printf '{"Sequence":{"id":"B","type_id":0}}],"special_tokens":{"<s>":{"id":"<s>",'
    printf '"ids":[0],"tokens":["<s>"]}}},"model":{"type":"BPE","merges":[],"vocab":{'
    printf '"a":1,"b":2," ":3,'
    i=4
    while [ $i -lt 97 ]; do
        printf '"word%d":%d,' $i $i
        i=$((i + 1))
    done
    printf '"<s>":0}}}'
} >"$tmp/llama/tokenizer.json"
printf 'ab\n\n  \nba\n' >"$tmp/marked"
run generate "$tmp/llama" --prompts "$tmp/marked" --max-tokens 4 --json
same "blank lines behind a mark, status" $status 0
same "blank lines have an empty answer" "$(grep -c '"generated":""' "$tmp/out")" 2
same "an answer for each line" "$(grep -c '"generated"' "$tmp/out")" 4
same "blank lines as they are" "$(grep -c '"text":"  "' "$tmp/out")" 1
cp "$tmp/out" "$tmp/unix"
for end in '\r\n' '\r'; do # as other systems end lines
    printf "ab$end$end  ${end}ba$end" >"$tmp/others"
    run generate "$tmp/llama" --prompts "$tmp/others" --max-tokens 4 --json
    same "lines that end with $end" "$out" "$(cat "$tmp/unix")"
    same "lines of stdin that end with $end" \
        "$(generate "$tmp/llama" --max-tokens 4 --json <"$tmp/others")" "$out"
done
same "an end of a line in two pieces" "$({ printf 'ab\r'; sleep 0.2; printf '\nba\r\n'; } |
    generate "$tmp/llama" --max-tokens 4 --json | grep -c '"text"')" 2

# An empty message of the system is a message.
echo "<s>{% for m in messages %}{{ 'b' if m.role == 'system' }}{{ m.content }}{% endfor %}" \
    >"$tmp/llama/chat_template.jinja"
generated() { generate "$tmp/llama" "$@" --max-tokens 4 --json | grep generated; }
for system in "" a; do
    same "a message of the system '$system'" "$(generated b --chat --system "$system")" "$(generated "b${system}b")"
done
run generate "$tmp/llama" b --chat --system=
same "an empty message behind =, status" $status 0

# The last weight of a file is NaN: there is no likeliest token.
cp -r "$tmp/llama" "$tmp/nan"
weights=$tmp/nan/model.safetensors
printf '\0\0\300\177' | dd of="$weights" bs=1 seek=$(($(wc -c <"$weights") - 4)) conv=notrunc 2>/dev/null
for way in "" --json "--temperature 1"; do
    run generate "$tmp/nan" ab $way
    same "a weight that is NaN $way, status" $status 3
    same "a weight that is NaN $way, output" "$out" ""
    holds "a weight that is NaN $way" "$err" "the logits became NaN or Inf: decoder.norm.gain has a NaN"
done
printf 'ab\nba\n' | generate "$tmp/nan" --json >"$tmp/out" 2>"$tmp/err"
same "lines with a weight that is NaN, status" $? 3
same "lines with a weight that is NaN" "$(grep -c '"generated":null' "$tmp/out")" 2
holds "lines with a weight that is NaN, each" "$(cat "$tmp/err")" "line 2: the logits became NaN or Inf"

run generate "$tmp/pairs" ab --prompts "$tmp/prompts"
same "a text and a file, status" $status 2
run generate "$tmp/pairs" --prompts "$tmp/none"
same "no file, status" $status 7
holds "no file" "$err" "cannot open"
run generate "The cat sat."
same "a text alone, status" $status 2
holds "a text alone" "$err" "generate takes MODEL and TEXT, and there is no model"
run generate tests/golden/checkpoints/bert "The cat sat."
same "an encoder of others, status" $status 4
holds "an encoder of others" "$err" "generates no text"
holds "what it is for" "$err" "'polyhead fill' is for this one"
run generate "$tmp/pairs" "a b"
holds "an unknown blank shows" "$err" "about it: ' '"
same "stops" "$(generate "$tmp/pairs" ab --stop 9 --stop 3)" 12
same "stops in lines" "$(generate "$tmp/pairs" --stop 1 <"$tmp/prompts" | tr '\n' ,)" ,2,,,4,,
run generate "$tmp/pairs" ab --stop ""
same "an empty stop text, status" $status 2
run generate "$tmp/pairs" ab --kv-dtype q8_0
same "heads that are no blocks, status" $status 3
holds "heads that are no blocks" "$err" "32"

# A text is as long as --max-tokens says, or else the checkpoint: "ab" has three tokens.
cp -r "$tmp/llama" "$tmp/long"
settings() { echo "{\"eos_token_id\": -1, $1}" >"$tmp/long/generation_config.json"; }
settings '"do_sample": false'
for count in 3 5; do
    generate "$tmp/long" ab --max-tokens $count >"$tmp/of$count"
done
[ "$(cat "$tmp/of3")" != "$(cat "$tmp/of5")" ] && good || bad "texts of 3 and 5 tokens are the same"
for said in '"max_new_tokens": 3' '"max_length": 6' '"max_new_tokens": 3, "max_length": 5' \
    '"max_new_tokens": 4, "forced_eos_token_id": 2' '"max_length": 7, "forced_eos_token_id": 2'; do
    settings "$said"
    same "$said" "$(generate "$tmp/long" ab)" "$(cat "$tmp/of3")"
    same "$said and --max-tokens" "$(generate "$tmp/long" ab --max-tokens 5)" "$(cat "$tmp/of5")"
done
settings '"max_new_tokens": 3'
run prune "$tmp/long" --remove 1:1 --out "$tmp/shorter"
same "a file of ours says it too" "$(generate "$tmp/shorter" ab)" "$(generate "$tmp/shorter" ab --max-tokens 3)"
run export "$tmp/shorter" --out "$tmp/shortest"
same "an exported folder says it too" "$(grep -c '"max_new_tokens": *3' "$tmp/shortest/generation_config.json")" 1
settings '"max_length": 3'
run generate "$tmp/long" ab
same "a prompt that is too long already, status" $status 3
holds "a prompt that is too long already" "$err" "the text has 3 tokens, and generation_config.json ends it at 3 (max_length)"
settings '"max_new_tokens": 0'
run generate "$tmp/long" ab
same "no tokens at all, status" $status 3
holds "no tokens at all" "$err" "generation_config.json: max_new_tokens is 0, expected a whole number from 1"

# what a checkpoint says of greedy texts is obeyed, or named
cp -r "$tmp/llama" "$tmp/said"
run generate "$tmp/said" "ab a" --max-tokens 30
free=$out
same "a checkpoint that says nothing, stderr" "$err" ""
printf '{"no_repeat_ngram_size": 1, "temperature": 0.6, "do_sample": true, "num_beams": 4}' \
    >"$tmp/said/generation_config.json"
run generate "$tmp/said" "ab a" --max-tokens 30
holds "a setting that counts for nothing is named" "$err" "the checkpoint also sets num_beams, which"
[ "$out" != "$free" ] && good || bad "no_repeat_ngram_size changes nothing"
same "greedy whatever the file says" "$(generate "$tmp/said" "ab a" --max-tokens 30 --seed 7 2>&-)" "$out"

# a program that writes a line and waits gets its answer before the next line
mkfifo "$tmp/in" "$tmp/answers"
generate "$tmp/pairs" <"$tmp/in" >"$tmp/answers" &
child=$!
exec 8>"$tmp/in" 9<"$tmp/answers"
for pair in ab:123 bb:1111; do
    echo "${pair%:*}" >&8
    read -r answer <&9
    same "an answer while more may come" "$answer" "${pair#*:}"
done
exec 8>&- 9<&-
wait $child

# ---- an encoder ----

run generate pronouns "The cat slept." --beams 2
same "an encoder does not search, status" $status 2
holds "an encoder does not search" "$err" "the model is an encoder"
printf 'The cat slept.\n\nIt ate.\n' | generate pronouns >"$tmp/out"
same "blocks of lines" "$(awk -v RS= 'END { print NR }' "$tmp/out")" 2
same "an empty block" "$(grep -c '^$' "$tmp/out")" 3
same "an empty list" "$(printf '\nIt ate.\n' | generate pronouns --json | grep -c schema)" 2

# Chinese characters are two columns wide and three bytes long: arrows stand in one column.
run generate pronouns "那只动物累了。"
holds "one character, 14 columns" "$out" "那             -> "
holds "two characters, 14 columns" "$out" "动物           -> "
run generate pronouns "The cat saw the qwertz."
holds "an unknown word is named" "$err" "1 of 6 words is not in the model's vocabulary"
holds "an unknown word gets no answer" "$out" "qwertz         ?  not in the vocabulary"
holds "nor do words that seem to belong to it" "$out" "the            ?"
run generate pronouns "The cat saw the qwertz." --json
holds "an unknown word in JSON" "$(tr -d ' \n' <"$tmp/out")" '"qwertz","known":false,"belongs_to":null'

run generate "$tmp/none" ab
same "no model" $status 7

finish
