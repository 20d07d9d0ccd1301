#!/bin/sh
# test_encoders.sh - `polyhead embed`, `fill` and `classify` on tiny published encoders.

set -u
CDPATH='' cd -- "$(dirname -- "$0")/.." || exit 1
. tests/shell_bed.inc

models=tests/golden/checkpoints
sentence=$models/bert-sentence

# ---- vectors ----

run embed "$sentence" "the cat sat on the mat." dog
same "embed, status" $status 0
same "a line for each text" "$(wc -l <"$tmp/out" | tr -d ' ')" 2
same "a number for each dimension" "$(head -n 1 "$tmp/out" | wc -w | tr -d ' ')" 32
cp "$tmp/out" "$tmp/both"
same "a text alone" "$("$program" embed "$sentence" dog)" "$(tail -n 1 "$tmp/both")"
printf 'the cat sat on the mat.\r\ndog\n' >"$tmp/texts"
same "lines of a file" "$("$program" embed "$sentence" --file "$tmp/texts")" "$(cat "$tmp/both")"
same "lines of standard input" "$("$program" embed "$sentence" <"$tmp/texts")" "$(cat "$tmp/both")"
same "the text -" "$("$program" embed "$sentence" - <"$tmp/texts")" "$(cat "$tmp/both")"
same "tokens of -" "$(printf 'dog\n' | "$program" tokens "$sentence" -)" "$("$program" tokens "$sentence" dog)"
printf '\357\273\277' | cat - "$tmp/texts" >"$tmp/mark"
same "lines behind a byte order mark" "$("$program" embed "$sentence" --file "$tmp/mark")" "$(cat "$tmp/both")"
same "heads of lines behind one" "$("$program" heads "$sentence" "$tmp/mark")" \
    "$("$program" heads "$sentence" "$tmp/texts")"
printf 'the cat sat on the mat.\r\n\r\n  \ndog\n\ndog' >"$tmp/blank"
empty=$("$program" embed "$sentence" "")
same "a row for each line, blank ones too" "$("$program" embed "$sentence" --file "$tmp/blank")" \
    "$(head -n 1 "$tmp/both")
$empty
$empty
$(tail -n 1 "$tmp/both")
$empty
$(tail -n 1 "$tmp/both")"
letters="a b c d e f g h i j k l m n o p q r s t u v w x y z"
run embed "$sentence" dog "$letters" "$letters" cat
same "texts that are truncated, status" $status 0
holds "how many are truncated" "$err" "2 of 4 texts have more than 20 tokens and were truncated"
same "one line says so" "$(printf '%s\n' "$err" | wc -l | tr -d ' ')" 1
run embed "$sentence" dog
same "nothing is truncated" "$err" ""
mkdir "$tmp/deep"
cp $models/albert-sentence/* "$tmp/deep"
sed 's/"num_hidden_layers": 4/"num_hidden_layers": 64/' $models/albert-sentence/config.json >"$tmp/deep/config.json"
run embed "$tmp/deep" dog
same "more layers than tensors, where they share them, status" "$status" 0
run embed "$sentence" dog --json
json "embed --json"
holds "its dimension" "$out" '"dim": 32'
same "a vector is one line" "$(sed -n 's/.*"vector": \[\(.*\)\]/\1/p' "$tmp/out" | tr ',' ' ' | wc -w | tr -d ' ')" 32
run embed "$sentence" --file "$tmp/texts" --npy "$tmp/vectors.npy"
same "nothing is printed beside --npy" "$out" ""
same "bytes of the file" "$(wc -c <"$tmp/vectors.npy" | tr -d ' ')" $((128 + 2 * 32 * 4))
if have python3 && python3 -c 'import numpy' 2>/dev/null; then
    same "vectors for NumPy" "$(python3 -c 'import numpy, sys
a = numpy.load(sys.argv[1]); print(a.shape, a.dtype, " ".join("%.9g" % x for x in a[1]))' "$tmp/vectors.npy")" \
        "(2, 32) float32 $(tail -n 1 "$tmp/both")"
fi

printf 'the cat\r\n\nthe \377 mat\ndog\n' >"$tmp/bytes"
run embed "$sentence" --file "$tmp/bytes"
same "bytes that are no text, status" $status 3
holds "their file and line" "$err" "'$tmp/bytes', line 3: the text is not valid UTF-8 at byte 4"
run heads "$sentence" "$tmp/bytes"
holds "heads, their file and line" "$err" "'$tmp/bytes', line 3: the text is not valid UTF-8 at byte 4"
run embed "$sentence" dog "$(printf '\377')"
holds "one of two texts" "$err" "text 2: the text is not valid UTF-8 at byte 0"

run embed "$sentence" dog --file "$tmp/texts"
same "text and file, status" $status 2
run embed "$sentence" --file "$tmp/none"
same "no file, status" $status 7
printf 'a\000b\n' >"$tmp/zero"
run embed "$sentence" --file "$tmp/zero"
same "a zero byte, status" $status 3
run embed "$sentence"
holds "no text" "$err" "'-' holds no text"
run embed "$sentence" dog --npy "$tmp/none/vectors.npy"
same "cannot be written, status" $status 7
run embed $models/llama dog
same "a decoder, status" $status 4
holds "a decoder" "$err" "it has no pooling"
run embed $models/bert.gguf "the cat sat on the mat." dog
same "a GGUF file, status" $status 0
same "vectors of a GGUF file are those of the folder" "$out" \
    "$("$program" embed $models/bert "the cat sat on the mat." dog)"

# ---- exported folders ----

cp -r "$sentence" "$tmp/sentence"
echo "A card." >"$tmp/sentence/README.md"
run export "$tmp/sentence" --out "$tmp/exported"
same "export, status" $status 0
same "files of a folder, but for others" "$(cd "$tmp/exported" && find . -type f | sort)" \
    "$(cd "$tmp/sentence" && find . -type f ! -name README.md ! -name golden.safetensors | sort)"

# A file that no reader of this model opens makes the copy last.
cp -r "$sentence" "$tmp/long"
truncate -s 512M "$tmp/long/merges.txt"
for name in TERM HUP; do
    "$program" export "$tmp/long" --out "$tmp/stopped" 2>"$tmp/err" &
    pid=$!
    until [ -n "$(find "$tmp" -path '*stopped.polyhead-*' -name config.json)" ]; do
        kill -0 $pid 2>/dev/null || break
        sleep 0.02
    done
    kill -$name $pid
    { wait $pid; } 2>/dev/null
    status=$?
    [ $name = TERM ] && expected=143 || expected=129
    same "export and SIG$name, status" $status $expected
    same "export and SIG$name, nothing is said" "$(cat "$tmp/err")" ""
    same "export and SIG$name, nothing is left" "$(find "$tmp" -name 'stopped*')" ""
done
rm -r "$tmp/long"

run export pronouns --out "$tmp/pronouns"
same "export of the model in the program, status" $status 4
holds "export of the model in the program" "$err" "no published type has all that pronouns"

# ---- masked words ----

run fill $models/bert "the [MASK] sat on [MASK]." --top 3
same "fill, status" $status 0
same "three words for each of two masks" "$(grep -c '0\.' "$tmp/out")" 6
run fill $models/bert "the [MASK] sat" --json
json "fill --json"
same "where the mask stands" "$(grep -c '"start": 4' "$tmp/out")" 1
run fill $models/bert "the cat sat"
same "no mask, status" $status 3
holds "no mask" "$err" "the text has no [MASK]"
run fill "$sentence" "the [MASK] sat"
same "a model without masked words, status" $status 4

# A byte-level tokenizer writes the blank before a word as U+0120: shown is the word.
cp -r $models/roberta "$tmp/roberta"
{
    printf '{"added_tokens":[{"id":96,"content":"<mask>","single_word":false,"lstrip":false,'
    printf '"rstrip":false,"normalized":false,"special":true}],'
    printf '"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":true,"use_regex":true},'
    printf '"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","merges":[],"vocab":{'
    i=0
    while [ $i -lt 96 ]; do
        printf '"\\u0120word%d":%d,' $i $i
        i=$((i + 1))
    done
    printf '"<mask>":96}}}'
} >"$tmp/roberta/tokenizer.json"
run fill "$tmp/roberta" "<mask>"
same "fill with a byte-level tokenizer, status" $status 0
same "words without the mark of a blank" "$(grep -c '^word[0-9]* ' "$tmp/out")" 5
run fill "$tmp/roberta" "<mask>" --top 1 --json
json "fill with a byte-level tokenizer --json"
word=$(sed -n 's/.*"word": "\(.*\)".*/\1/p' "$tmp/out")
same "word and token" "$(sed -n 's/.*"token": "\(.*\)".*/\1/p' "$tmp/out")" "Ġ$word"

# ---- classes ----

run classify $models/bert-classes "the cat" dog
same "classify, status" $status 0
same "three classes for each of two texts" "$(grep -c -e '^bad ' -e '^fair ' -e '^good ' "$tmp/out")" 6
run classify $models/bert-classes "the cat" --pair dog --top 1 --json
json "classify --json"
same "one class" "$(grep -c '"probability"' "$tmp/out")" 1
printf 'the cat\n\ndog\n' >"$tmp/blank"
run classify $models/bert-classes --file "$tmp/blank" --top 1
same "classes of each line, blank ones too" "$(grep -c -e '^bad ' -e '^fair ' -e '^good ' "$tmp/out")" 3
run classify $models/bert-classes "$letters $letters" dog
holds "a text of classify is truncated" "$err" "1 of 2 texts has more than 40 tokens and was truncated"
run classify "$sentence" dog
same "no classifier, status" $status 4
holds "no classifier" "$err" "the model has no classifier"

# A class for every token; what BertForTokenClassification of transformers 5.23 gives.
cp -r $models/bert-classes "$tmp/tokens"
sed 's/BertForSequenceClassification/BertForTokenClassification/' \
    $models/bert-classes/config.json >"$tmp/tokens/config.json"
run classify "$tmp/tokens" "the cat sat."
same "classes of tokens, status" $status 0
same "classes of tokens" "$(awk '{ print $1, $2, $3 }' "$tmp/out" | tr '\n' ,)" \
    "the good 0.5828,cat good 0.6165,sat good 0.4639,. fair 0.5925,"
run classify "$tmp/tokens" "the cat" dog --top 1 --json
json "classes of tokens --json"
same "a class for each token" "$(grep -c '"probability"' "$tmp/out")" 3
run classify "$tmp/tokens" "the cat" --pair dog
same "classes of tokens with --pair, status" $status 2
run classify "$tmp/tokens" "$letters $letters"
same "too many tokens, status" $status 3
sed 's/"id2label"/"ignored"/; s/"label2id"/"ignored_too"/' "$tmp/tokens/config.json" >"$tmp/unnamed"
mv "$tmp/unnamed" "$tmp/tokens/config.json"
run classify "$tmp/tokens" "cat"
holds "classes without names" "$out" "class "

# Token types are those of the template, whichever command reads the text. Expected is what
# transformers 5.23 gives for token_type_ids 0 1 1 1 1 1.
typed() { # FOLDER TYPE: a tokenizer.json from vocab.txt that gives a text this type
    {
        printf '{"normalizer":{"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,'
        printf '"strip_accents":null,"lowercase":true},"pre_tokenizer":{"type":"BertPreTokenizer"},'
        printf '"post_processor":{"type":"TemplateProcessing","single":['
        printf '{"SpecialToken":{"id":"[CLS]","type_id":0}},{"Sequence":{"id":"A","type_id":%d}},' "$2"
        printf '{"SpecialToken":{"id":"[SEP]","type_id":%d}}],"pair":[' "$2"
        printf '{"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"B","type_id":1}}],"special_tokens":'
        printf '{"[CLS]":{"id":"[CLS]","ids":[2],"tokens":["[CLS]"]},'
        printf '"[SEP]":{"id":"[SEP]","ids":[3],"tokens":["[SEP]"]}}},"added_tokens":[{"id":4,'
        printf '"content":"[MASK]","single_word":false,"lstrip":false,"rstrip":false,'
        printf '"normalized":false,"special":true}],"model":{"type":"WordPiece",'
        printf '"unk_token":"[UNK]","continuing_subword_prefix":"##","max_input_chars_per_word":100,"vocab":{'
        awk '{ printf "%s\"%s\":%d", comma, $0, NR - 1; comma = "," } END { print "}}}" }' "$1/vocab.txt"
    } >"$1/tokenizer.json"
}
cp -r $models/bert "$tmp/typed"
typed "$tmp/typed" 1
typed "$tmp/tokens" 1
same "token types of classes of tokens" \
    "$("$program" classify "$tmp/tokens" "the cat sat." | awk '{ print $1, $4 }' | tr '\n' ,)" \
    "the 0.5804,cat 0.4417,sat 0.6493,. 0.6736,"
same "token types of masks" "$("$program" fill "$tmp/typed" "the [MASK] sat." --top 2 | tr -s ' ' | tr '\n' ,)" \
    "j1 0.9411,x 0.0408,"
typed "$tmp/tokens" 9
typed "$tmp/typed" 9
for command in "classify $tmp/tokens" "fill $tmp/typed" "heads $tmp/typed" "look --model $tmp/typed"; do
    run $command "the [MASK] sat."
    same "a token type that is not there, $command, status" $status 3
    holds "a token type that is not there, $command" "$err" "token type 9 is outside the table of"
done

# A blank of its own is a token too, although offsets without blanks leave nothing of it; <s>
# and </s> are none of the text. Expected is what transformers 5.23 gives.
cp -r $models/roberta-tokens "$tmp/blanks"
{
    printf '{"added_tokens":[{"id":5,"content":"<pad>","single_word":false,"lstrip":false,'
    printf '"rstrip":false,"normalized":false,"special":true}],'
    printf '"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,'
    printf '"use_regex":true},"post_processor":{"type":"RobertaProcessing","sep":["</s>",1],'
    printf '"cls":["<s>",0],"trim_offsets":true,"add_prefix_space":false},'
    printf '"decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true},'
    printf '"model":{"type":"BPE","merges":["\\u0120 b"],'
    printf '"vocab":{"<s>":0,"</s>":1,"\\u0120":2,"a":3,"b":4,"<pad>":5,"\\u0120b":6'
    awk 'BEGIN { for (i = 7; i < 97; i++) printf ",\"word%d\":%d", i, i; print "}}}" }'
} >"$tmp/blanks/tokenizer.json"
run classify "$tmp/blanks" "a  b"
same "a token of a blank alone" "$(awk '{ print $1, $2, $3 }' "$tmp/out" | tr '\n' ,)" \
    "a LABEL_0 0.6063,Ġ LABEL_0 0.7903,b LABEL_0 0.6359,"
run classify "$tmp/blanks" "a  b" --top 1 --json
same "a token of a blank alone --json" "$(grep -c '"length": 0' "$tmp/out")" 1
run classify "$tmp/blanks" "a<pad><pad>b"
same "padding in a text, positions" "$(awk '{ print $1, $3 }' "$tmp/out" | tr '\n' ,)" \
    "a 0.8223,<pad> 0.8828,<pad> 0.8828,b 0.7150,"

# Several classes may be right: sigmoids of the same scores. The log-odds of two classes
# differ by the logarithm of the ratio of their softmax, but for 4 roundings to float.
cp -r $models/bert-classes "$tmp/labels"
sed 's/"model_type"/"problem_type": "multi_label_classification", &/' \
    $models/bert-classes/config.json >"$tmp/labels/config.json"
run classify "$tmp/labels" "the cat" --json
json "classify with several labels --json"
sed -n 's/.*"probability": //p' "$tmp/out" >"$tmp/sigmoids"
"$program" classify $models/bert-classes "the cat" --json | sed -n 's/.*"probability": //p' >"$tmp/softmax"
same "sigmoids of three classes" "$(paste "$tmp/sigmoids" "$tmp/softmax" | awk '
    { odds = log($1 / (1 - $1)) - log($2); slack = 4 * 2 ^ -24 / (1 - $1) }
    NR == 1 { first = odds; most = slack }
    { off = odds - first; good += off < slack + most && -off < slack + most }
    END { print NR, good }')" "3 3"
sed 's/"model_type"/"problem_type": null, &/' $models/bert-classes/config.json >"$tmp/labels/config.json"
same "no problem_type is a softmax" "$("$program" classify "$tmp/labels" "the cat")" \
    "$("$program" classify $models/bert-classes "the cat")"


# A regression gives its scores, and one class alone a sigmoid.
sed 's/"model_type"/"problem_type": "regression", &/' $models/bert-classes/config.json >"$tmp/labels/config.json"
run classify "$tmp/labels" "the cat" --json
same "scores of a regression" "$(grep -c '"score"' "$tmp/out") $(grep -c '"probability"' "$tmp/out")" "3 0"
same "scores and probabilities of three classes" "$(sed -n 's/.*"score": //p' "$tmp/out" | paste - "$tmp/softmax" | awk '
    { s[NR] = $1; p[NR] = $2 }
    END { for (i = 2; i <= NR; i++) { off = s[i] - s[1] - log(p[i] / p[1]); good += off < 1e-5 && -off < 1e-5 } print good }')" 2
printf 'LABEL_0\tthe cat\n' >"$tmp/labels.tsv"
run importance "$tmp/labels" --data "$tmp/labels.tsv"
holds "no importance of a regression" "$err" "regression"
run train classes "$tmp/labels.tsv" --from "$tmp/labels" -o "$tmp/labels.run" --steps 1
holds "no training of a regression" "$err" "regression (problem_type), which has no loss here"

# A text that is too long loses its start, in training too, and with a new classifier: the
# lines differ in their ends alone.
cp -r $models/bert "$tmp/left"
echo '{"truncation_side": "left"}' >"$tmp/left/tokenizer_config.json"
start="a b c d e f a b c d e f a b c d e f a b c d e f a b c d e f a b c d e f"
for i in g h i j k l m n o p q r s t u v w x y z; do
    printf 'yes\t%s %s a a\nno\t%s %s b b\n' "$start" $i "$start" $i
done >"$tmp/ends.tsv"
run train classes "$tmp/ends.tsv" --from "$tmp/left" -o "$tmp/left.run" --steps 40 --length 12 --lr 3e-3 --seed 1
holds "lines that differ in their ends are learned" "$out$err" "exact match 100.00 %"
long="$start $start $start"
same "the end of a long text counts" "$("$program" classify "$tmp/left.run" "$long a a" "$long b b" 2>"$tmp/err" | sort -u | grep -c yes)" 2
holds "they are truncated" "$(cat "$tmp/err")" truncated

pictures=tests/golden/pictures
run classify $models/vit $pictures/rgb8.png $pictures/rgb8.ppm
same "classify pictures, status" $status 0
same "three classes of each of two files of one picture" "$(grep '^LABEL' "$tmp/out" | sort | uniq -c | grep -c ' 2 ')" 3
run classify $models/vit $pictures/rgb8.png --json
json "classify a picture --json"
holds "the name of the file" "$out" '"file": "tests/golden/pictures/rgb8.png"'
cp -r $models/vit "$tmp/vit"
cp tests/golden_tokens/t5.json "$tmp/vit/tokenizer.json"
same "a tokenizer beside an encoder of pictures means nothing" \
    "$("$program" classify "$tmp/vit" $pictures/rgb8.png)" "$("$program" classify $models/vit $pictures/rgb8.png)"
run classify $models/vit $pictures/rgb8.png --pair dog
same "a picture and --pair, status" $status 2
for model in vit vit-plain; do
    run embed $models/$model $pictures/rgb8.png $pictures/rgb8.ppm
    same "embed pictures with $model, status" $status 0
    same "$model: a vector of 32 elements for each file" "$(awk '{print NF}' "$tmp/out" | sort | uniq -c | tr -s ' ')" " 2 32"
    same "$model: the same of two files of one picture" "$(sort -u "$tmp/out" | wc -l)" 1
done
run embed $models/vit $pictures/rgb8.png --json
json "embed a picture --json"
holds "the name of the file of a vector" "$out" '"file": "tests/golden/pictures/rgb8.png"'
run embed $models/vit dog
same "embed what is no picture, status" $status 7
run classify $models/vit $pictures/make.py
same "no picture, status" $status 3
holds "no picture" "$err" "is no picture, expected PNG, JPEG or PPM"
run classify $models/bert-classes $pictures/rgb8.png
same "for a model of texts a name of a file is a text" $status 0

# ---- a weight that is NaN ----

for way in "fill bert" "classify bert-classes" "embed bert-sentence" "look --model bert" "classify vit"; do
    command=${way% *} model=${way##* }
    rm -rf "$tmp/nan"
    cp -r $models/$model "$tmp/nan"
    weights=$tmp/nan/model.safetensors
    for end in 4 3000 30000; do # whatever stands there, some of it counts
        printf '\0\0\300\177' | dd of="$weights" bs=1 seek=$(($(wc -c <"$weights") - end)) conv=notrunc 2>/dev/null
    done
    text="the [MASK] sat"
    [ $model != vit ] || text=tests/golden/pictures/rgb8.png
    run $command "$tmp/nan" "$text" --json
    same "$way with a weight that is NaN, status" $status 3
    holds "$way with a weight that is NaN" "$err" " became NaN or Inf: "
    same "$way with a weight that is NaN, output" "$out" ""
done

# ---- heads ----

run look --model $models/bert "the [MASK] sat"
holds "a masked token in a look" "$out" "masked token"
run look --model "$tmp/roberta" "<mask>"
holds "what may stand there" "$out" "  word43 58 %   word76 32 %"
run look --model "$sentence" "the cat sat"
same "a look at an encoder of vectors, status" $status 0
run heads "$sentence" "the cat sat on the mat."
same "heads of an encoder of vectors, status" $status 0

run heads $models/vit $pictures/rgb8.png
holds "a column for hundreds of pixels" "$(head -n 1 "$tmp/out")" "pos     px"
run look --model $models/vit $pictures/rgb8.png --ascii
same "a look at a picture, status" $status 0
holds "its class" "$out" "LABEL_1 78 %"
same "a grid of 3 x 3 patches" "$(grep -A 3 -e 'largest 0' "$tmp/out" | head -n 4 | tail -n 3 | awk '{print length($1)}' | tr '\n' ' ')" "6 6 6 "
holds "what all layers draw from patches" "$out" "rollout  largest 0."
run look --model $models/deit $pictures/rgb8.png --json
json "a look at a picture --json"
rollout=$(sed -n '/"rollout"/,/]/p' "$tmp/out" | grep -c '[0-9]')
same "rollout of 2 class tokens and 9 patches" "$rollout" 11
holds "class tokens come first" "$out" '"[DIST]"'
holds "patches by row and column" "$out" '"r3c3"'
run look --model $models/vit $pictures/rgb8.png --html "$tmp/page.html"
same "a page of a picture, status" $status 0
run heads $models/vit $pictures/rgb8.png
same "heads on a picture, status" $status 0
holds "distance in pixels" "$out" "  px  labels"
run look --model $models/vit $pictures/rgb8.png --serve --words
same "a live page of a picture by words, status" $status 4
holds "a picture has no words" "$err" "the model reads pictures: it has no tokens to join to words"
run look --model $models/vit $pictures/make.py --serve
same "a live page of no picture, status" $status 3
echo '{"schema": "polyhead.plan/1", "heads": []}' >"$tmp/plan.json"
run prune $models/vit --plan "$tmp/plan.json" --out "$tmp/pruned"
same "a plan for pictures, status" $status 4
holds "a plan for pictures" "$err" "reads pictures, expected text: 'prune --remove LAYER:HEAD'"
run look --model $models/vit
same "no picture, status" $status 2
holds "no picture" "$err" "name a PNG, JPEG or PPM file"
run look --model $models/vit $pictures/make.py
same "no picture in the file, status" $status 3

finish
