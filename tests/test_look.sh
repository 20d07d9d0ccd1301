#!/bin/sh
# test_look.sh - polyhead look and polyhead heads from outside: the embedded model, hostile
# texts, maps of other programs, numbers, files, refusals. POLYHEAD is the program (default
# build/polyhead). One line for each case that fails, then "N passed, N failed".

set -u
CDPATH='' cd -- "$(dirname -- "$0")/.." || exit 1

unset POLYHEAD_ISA NO_COLOR LC_CTYPE LANG
export TERM=xterm-256color
LC_ALL=C.UTF-8
export LC_ALL

. tests/shell_bed.inc
one_thread
escape=$(printf '\033')

refused() { # STATUS SENTENCE ARGUMENTS...
    wanted=$1 sentence=$2
    shift 2
    run "$@"
    same "status of: $*" "$status" "$wanted"
    holds "stderr of: $*" "$err" "polyhead: $sentence"
    same "one line: $*" "$(wc -l <"$tmp/err" | tr -d ' ')" 1
    same "stdout of: $*" "$out" ""
}
lines() { wc -l <"$tmp/out" | tr -d ' '; }
# Nothing but printable characters and line ends reaches the terminal.
printable() { # NAME
    same "$1: status" "$status" 0
    if [ ! -s "$tmp/out" ] || LC_ALL=C tr -d '\n' <"$tmp/out" | LC_ALL=C grep -q '[[:cntrl:]]'; then
        bad "$1: nothing, or control characters, on the terminal"
    else
        good
    fi
}

# ---- the embedded model ----------------------------------------------------------------------

run look
same "look: status" "$status" 0
same "look: nothing on stderr" "$err" ""
holds "look: the sentence" "$out" "The animal didn't cross the street because it was too tired."
holds "look: who is tired" "$out" "it -> animal"
holds "look: the grid" "$out" "layer   1"
holds "look: relations" "$out" "street -> cross, object"
holds "look: the pointer" "$out" "links 1-1"
holds "look: the pointer's role" "$out" "=  the answer"
holds "look: what next" "$out" "Try next"
next=$(printf '%s\n' "$out" | sed -n 's/.*look --layer \([0-9]*\) --head \([0-9]*\) .*/\1-\2/p')
holds "look: the head to try next has a role" "$out" "encoder $next reference links"
lacks "look: no colour in a pipe" "$out" "$escape"
cp "$tmp/out" "$tmp/first"
run look --threads 2
if cmp -s "$tmp/out" "$tmp/first"; then good; else bad "look: another number of threads, another picture"; fi
run look "The animal didn't cross the street because it was too wide."
holds "look: what is wide" "$out" "it -> street"
run look "那只动物没有穿过马路，因为它太累了。"
same "Chinese: status" "$status" 0
holds "Chinese: who is tired" "$out" "它 -> 动物"
run look --color=always
holds "colour: 256 of them" "$out" "${escape}[38;5;"
NO_COLOR=1 "$program" look >"$tmp/out" 2>&1
lacks "NO_COLOR" "$(cat "$tmp/out")" "$escape"
run look --ascii
same "--ascii" "$(LC_ALL=C grep -c '[^ -~]' "$tmp/out")" 0
narrow "look --ascii"
cp "$tmp/out" "$tmp/ascii"
LC_ALL=C "$program" look >"$tmp/out" 2>&1
if cmp -s "$tmp/out" "$tmp/ascii"; then good; else bad "a locale without UTF-8 differs from --ascii"; fi
run look --stack links --head 1
holds "one head: its card" "$out" "confidence"
holds "one head: definitions" "$out" "share of the weight on the token before"
holds "one head: thresholds as the rules have them" "$out" ">= 0.10"
run look --layer 1 --head 1 --ascii
holds "two stacks have a head 1-1" "$out" "links 1-1"
run look "The dog was tired." --plain
same "plain: a line for every row of every head" "$(lines)" 85
same "standard input: the end of its line is no word" \
    "$(echo "The dog was tired." | "$program" look - --plain 2>&1)" "$out"
out=$(echo "The dog was tired." | "$program" look - 2>&1)
lacks "standard input: no escape" "$out" '\n'

# words that are not in the vocabulary: counted, named, marked, and nothing said about them
run look "The cat saw the qwertz." --ascii
holds "unknown words are counted and named" "$err" "1 of 6 words is not in the model's vocabulary"
holds "unknown words by name" "$err" "it: qwertz"
holds "unknown words are marked" "$out" "qwertz?"
lacks "no answer about an unknown word" "$out" "qwertz ->"
lacks "no answer with an unknown word" "$out" "-> qwertz"
run look "qwertz qwert qwertz saw a dog."
same "unknown words are named once" "${err##*them: }" "qwertz, qwert"
run look "$(printf '%0300d' 0 | tr 0 q) saw a dog."
same "an unknown word too long to name" "${err##*it: }" "..."
run look "The cat saw the qwertz." --json
json "look --json with an unknown word"
holds "unknown words by index" "$(tr -d ' \n' <"$tmp/out")" '"unknown":[4]'
run look qwertz
holds "no answer at all is said" "$out" "no answer: too few of these words are in the vocabulary"
run heads "The cat saw the qwertz."
holds "heads: unknown words" "$err" "qwertz"
same "a curly apostrophe is an apostrophe" "$("$program" look "The cat didn’t cross the road." --plain 2>&1 | cut -f 6)" \
    "$("$program" look "The cat didn't cross the road." --plain | cut -f 6)"
run look "$(yes word | head -n 100)"
holds "a text that is too long: what to do" "$err" "give its sentences one by one"

run heads
same "heads: status" "$status" 0
holds "heads: links" "$out" "links found"
holds "heads: the offset to beat" "$out" "best offset"
holds "heads: rules" "$out" "link >= 0.10"
narrow "heads"
run heads --json
json "heads --json"
holds "heads --json: definitions" "$out" '"prev": "share of the weight on the token before"'
run heads --csv
same "heads --csv: a title and a line for each of 17 heads" "$(lines)" 18
same "heads --csv: no head twice" "$(cut -d, -f1-3 "$tmp/out" | sort -u | wc -l | tr -d ' ')" 18
same "heads --csv: as many fields everywhere" "$(awk -F, '{ print NF }' "$tmp/out" | sort -u | wc -l | tr -d ' ')" 1

printf 'the dog was tired .\n\n  \nthe cat saw the bird .\n' >"$tmp/texts"
run heads "$tmp/texts" --json
json "heads FILE --json"
holds "heads FILE: two texts, eleven words" "$out" '"rows": 11'
run heads models/pronouns.safetensors "$tmp/texts" --csv
same "heads MODEL FILE: status" "$status" 0
cp "$tmp/out" "$tmp/model"
run heads models "$tmp/texts" --csv
if cmp -s "$tmp/out" "$tmp/model"; then good; else bad "a folder does not stand for its newest model"; fi
holds "it says which file it reads" "$err" "'models' has no model.safetensors: models/pronouns.safetensors is read"
mkdir "$tmp/run" && cp models/pronouns.safetensors "$tmp/run/step-00000001.safetensors"
head -c 1000 models/pronouns.safetensors >"$tmp/run/model.safetensors"
refused 3 "$tmp/run/model.safetensors: header length" heads "$tmp/run" "$tmp/texts"
refused 3 "$tmp/run/model.safetensors: header length" look --model "$tmp/run" "the dog"
refused 2 "a model is named twice" heads models/pronouns.safetensors text --model models
refused 7 "cannot read '$tmp/none.safetensors'" heads "$tmp/none.safetensors"
refused 7 "cannot read '$tmp/none'" heads "$tmp/none"
refused 7 "cannot read 'none.txt'" heads none.txt
refused 7 "cannot read 'runs/none'" heads models runs/none
run heads "The dog was tired." --contributions
same "contributions: status" "$status" 0
holds "contributions: shares" "$out" "share of what the attention of a layer writes"
holds "contributions: drawn" "$out" "####"
lacks "contributions: no table of a pointer alone" "$out" "links"
if have python3; then
    run heads "The dog was tired." --contributions --json
    printf '%s' "$out" >"$tmp/contributions.json"
    same "contributions: each layer sums to 1" "$(python3 - "$tmp/contributions.json" <<'END'
import json, sys
layers = [l for s in json.load(open(sys.argv[1]))["stacks"] for l in s["layers"]]
sums = [sum(l["shares"]) for l in layers if l["shares"]]
bad = [l for l in layers if l["divergence_within"] is not None and not 0 <= l["divergence_within"] <= 0.6932]
print("good" if sums and all(abs(s - 1) < 1e-5 for s in sums) and not bad else (sums, bad))
END
)" good
fi
run heads "The dog was tired." --circuit 1-2
same "circuit: status" "$status" 0
holds "circuit: which head" "$out" "encoder 1-2"
holds "circuit: pairs" "$out" "looks at"
holds "circuit: what it writes" "$out" "OV circuit"
run heads "The dog was tired." --circuit 1-2 --json
json "circuit --json"
holds "circuit --json: which head" "$out" '"head": "1-2"'
refused 2 "--data is for the live page: it needs --serve" look --data "$tmp/none"
refused 2 "option --circuit: '9-9' is no head, expected 1-1 to 2-8" heads "Tired dog." --circuit 9-9
refused 2 "option --stack: there is no 'none'" heads "Tired dog." --circuit 1-1 --stack none
refused 2 "--stack needs --circuit" heads "Tired dog." --stack encoder
refused 2 "--contributions needs a model and goes with --json only" heads "Tired dog." --contributions --csv
run heads "Tired." --csv
same "a word with a full stop is a text" "$status" 0
run look --html "$tmp/two.html" --compare "The dog was tired."
same "compare: status" "$status" 0
refused 2 "--compare is for the page" look --compare "The dog was tired."

run look --html "$tmp/words.html"
if have python3; then
    missing=$(python3 - "$tmp/words.html" <<'END'
import json, re, sys
page, words = open(sys.argv[1], encoding="utf-8").read(), open("web/words.js", encoding="utf-8").read()
report = json.loads(re.search(r'id="report"[^>]*>(.*?)</script>', page, re.S).group(1))["reports"][0]
for table, things in (("HELP_ZH", report["metrics"]), ("LABELS_ZH", report["roles"])):
    known = re.search(rf"const {table} = \{{(.*?)\n\}};", words, re.S).group(1)
    if table == "LABELS_ZH":  # roles that are relations have the rule of links
        known += re.search(r"const RELATIONS_ZH = \{(.*?)\n\};", words, re.S).group(1)
    print(*(f"{table}.{t['key']}" for t in things if not re.search(rf"\b{t['key']}: ", known)), end="")
END
    )
    same "every number and label is explained in Chinese" "$?$missing" 0
else
    skip "words in Chinese: no python3"
fi

# ---- tokens joined to words ---------------------------------------------------------------------

yes "the cat sat on the mat" | head -n 40 >"$tmp/text.txt"
run train text "$tmp/text.txt" -o "$tmp/letters" --steps 1 --batch 2 --length 16 --layers 1 \
    --model-dim 16 --heads 2 --test 2
same "a model of letters" "$status" 0
run look --model "$tmp/letters" --words "the cat" --csv
same "words: status" "$status" 0
same "words: three of them" "$(grep -c ^decoder,0,0, "$tmp/out")" 6
holds "words: a row" "$out" "decoder,0,0,2,0,cat,the,"
run heads "$tmp/letters" "the cat sat" --words
holds "words: heads" "$out" "1-1"
refused 4 "the model reads whole words: it has no tokens to join" look --words --serve
refused 4 "the model reads whole words: it has no tokens to join" look --words

# ---- treebanks: the embedded model knows which word a word belongs to ---------------------------

word() { # NUMBER FORM HEAD RELATION [REMARK]
    printf '%s\t%s\t_\t_\t_\t_\t%s\t%s\t_\t%s\n' "$1" "$2" "$3" "$4" "${5:-_}"
}
{
    word 1 The 2 det; word 2 dog 4 nsubj; word 3 "didn't" 4 aux; word 4 cross 0 root
    word 5 the 6 det; word 6 street 4 obj SpaceAfter=No; word 7 . 4 punct; echo
    word 1 那 3 det SpaceAfter=No; word 2 只 3 clf SpaceAfter=No; word 3 动物 5 nsubj SpaceAfter=No
    word 4 没有 5 aux SpaceAfter=No; word 5 穿过 0 root SpaceAfter=No; word 6 马路 5 obj SpaceAfter=No
    word 7 。 5 punct
} >"$tmp/bank.conllu"
run heads --conllu "$tmp/bank.conllu"
same "treebank: status" "$status" 0
holds "treebank: all words" "$out" "all                14"
holds "treebank: how many" "$out" "2 sentences, 17 heads"
# The verb stands two words after the subject in both.
holds "treebank: subjects" "$(grep '^nsubj' "$tmp/out")" "100.0 %   100.0 % (+2)"
for file in tests/golden/checkpoints/bert tests/golden/checkpoints/bert.gguf; do
    run heads $file --conllu "$tmp/bank.conllu"
    same "a treebank with $file, status" $status 0
done
run heads --conllu "$tmp/bank.conllu" --json
json "heads --conllu --json"
holds "treebank: counts of every head" "$out" '"from_head": ['
same "treebank: seven relations" "$(grep -c '"relation":' "$tmp/out")" 7
{ word 1 The 2 det; word 2 dog 9 nsubj; } >"$tmp/bad.conllu"
refused 3 "$tmp/bad.conllu, line 2: the head is 9, but the sentence has 2 words" \
    heads --conllu "$tmp/bad.conllu"
refused 2 "--conllu brings its own sentences" heads --conllu "$tmp/bank.conllu" "A text."

# ---- clusters ----------------------------------------------------------------------------------

run heads --clusters --svg "$tmp/map.svg" "The animal was tired."
same "clusters: status" "$status" 0
holds "clusters: both stacks" "$out" "16 heads, "
holds "clusters: the pointer" "$out" "1 head"
same "clusters: a point for each head of the figure" "$(grep -c '<circle' "$tmp/map.svg")" 16
run heads --clusters --json "The animal was tired."
json "heads --clusters --json"
same "clusters: a point for each head" "$(grep -c '"x":' "$tmp/out")" 17
refused 2 "--svg needs --clusters" heads --svg "$tmp/map.svg"
refused 2 "--clusters goes with --json and --svg only" heads --clusters --csv

# ---- the pictures of the README: tools/pictures makes them anew ---------------------------------

run look --stack encoder --layer 2 --svg "$tmp/look.svg"
holds "figure: where it is" "$out" "The figure: $tmp/look.svg"
run look --svg "$tmp/all.svg" # a letter is 6 units wide
wide=$(sed -n 's/.*viewBox="0 0 \([0-9]*\) .*/\1/p' "$tmp/all.svg")
right=$(sed -n 's/&[gl]t;/>/g; s/.*<text x="\([0-9]*\)".*text-anchor="start"[^>]*>\(.*\)<.text>.*/\1 \2/p' "$tmp/all.svg" |
    awk '{ at = $1 + 6 * (length($0) - length($1) - 1); if (at > most) most = at } END { print most + 0 }')
same "figure: rules of roles are not cut off" "$((right > 200 && right <= wide))" 1
refused 2 "--csv prints to standard output: write --csv > $tmp/out.csv" look --csv "$tmp/out.csv"
if cmp -s "$tmp/look.svg" docs/look.svg; then good; else bad "docs/look.svg is stale: tools/pictures"; fi
digest=$("$program" look --csv | sha256sum | cut -c1-64)
if LC_ALL=C grep -aq "$digest" docs/page.png; then good; else bad "docs/page.png is stale: tools/pictures"; fi
picture() { sed -n '/^embedded model · 12 tokens$/,/^  weight 0 /p' "$1"; }
picture "$tmp/first" >"$tmp/printed"
picture README.md >"$tmp/shown"
if [ -s "$tmp/shown" ] && cmp -s "$tmp/printed" "$tmp/shown"; then good; else bad "README.md shows another picture than ./run"; fi

# ---- plans and frequencies --------------------------------------------------------------------

plan() { # HEADS...: a plan that switches them off
    printf '{"schema":"polyhead.plan/1","heads":['
    sign=
    for head; do
        printf '%s{"site":"encoder.%s.self","head":%s,"edit":"zero"}' "$sign" "${head%-*}" "${head#*-}"
        sign=,
    done
    printf ']}'
}
plan >"$tmp/none.json"
run look --plan "$tmp/none.json"
holds "an empty plan moves nothing" "$out" "by 0.0000 nats"
holds "an empty plan changes no answer" "$out" "No answer is another one"
plan 0-0 0-2 0-3 0-4 0-5 0-6 0-7 1-0 1-2 1-3 1-4 1-5 1-6 1-7 >"$tmp/most.json"
run look --plan "$tmp/most.json"
holds "most heads off: another answer" "$out" "it -> animal 100 %  becomes  it -> street"
run heads --csv
cp "$tmp/out" "$tmp/whole"
run heads --csv --plan "$tmp/none.json"
if cmp -s "$tmp/out" "$tmp/whole"; then good; else bad "an empty plan changes the numbers of heads"; fi
run heads --csv --plan "$tmp/most.json"
if cmp -s "$tmp/out" "$tmp/whole"; then bad "a plan changes no number of any head"; else good; fi
plan 9-0 >"$tmp/other.json"
refused 3 "$tmp/other.json: the model has no head 0 in 'encoder.9.self'" look --plan "$tmp/other.json"
printf '{"schema":"polyhead.plan/1","heads":[{"site":"encoder.1.self","head":-1,"edit":"zero"}]}' >"$tmp/other.json"
refused 3 "$tmp/other.json: a head of a plan needs \"site\", \"edit\" and a \"head\" from 0" look --plan "$tmp/other.json"
refused 7 "cannot read '$tmp/nothing.json'" heads --plan "$tmp/nothing.json"
for count in x -1 +1 ' 1' '' 1x '1\t2' 99999999999999999999; do
    # shellcheck disable=SC2059
    printf "dog\t$count\n" >"$tmp/counts"
    refused 3 "$tmp/counts, line 1: behind the tab there is no count" heads --frequencies "$tmp/counts"
done
printf '\n\t5\n' >"$tmp/counts"
refused 3 "$tmp/counts, line 2: before the tab there is no token" heads --frequencies "$tmp/counts"
printf 'dog\t5\ncat\n' >"$tmp/counts"
refused 3 "$tmp/counts, line 2: there is no count, expected all lines to have one or none" \
    heads --frequencies "$tmp/counts"
printf 'dog\ncat\t5\n' >"$tmp/counts"
refused 3 "$tmp/counts, line 2: there is a count, expected all lines to have one or none" \
    heads --frequencies "$tmp/counts"
printf 'dog\ncat\ndog\n' >"$tmp/counts"
refused 3 "$tmp/counts: the token \"dog\" is there twice" heads --frequencies "$tmp/counts"
: >"$tmp/counts"
refused 3 "$tmp/counts: holds no token" heads --frequencies "$tmp/counts"
refused 7 "cannot read '$tmp/nothing'" heads --frequencies "$tmp/nothing"

# ---- hostile texts ---------------------------------------------------------------------------

run look "<script>alert(1)</script> \"quotes' & </b>"
printable "angle brackets"
run look "the ${escape}[31mred${escape}[0m dog was tired ."
printable "escape codes"
run look "the $(printf '\342\200\256')god$(printf '\342\200\254') was tired ."
printable "bidi"
lacks "bidi: no override" "$out" "$(printf '\342\200\256')"
run look "bad $(printf '\377\376') bytes"
printable "invalid UTF-8"
holds "invalid UTF-8: replaced" "$out" "$(printf 'bad \357\277\275\357\277\275 bytes')"
refused 3 "the text is empty" look ""
refused 3 "the text is empty" look "   "
head -c 1000000 /dev/zero | tr '\0' 'x' >"$tmp/long"
"$program" look - --ascii <"$tmp/long" >"$tmp/out" 2>"$tmp/err"
same "a word of a million letters: status" "$?" 0
narrow "a word of a million letters"
yes 'the dog was tired' | head -c 1048576 >"$tmp/long"
"$program" look - <"$tmp/long" >"$tmp/out" 2>"$tmp/err"
same "a megabyte of words: refused" "$?" 3
holds "a megabyte of words: says why" "$(cat "$tmp/err")" "expected at most"
yes 'the dog was tired' | head -c 1048577 >"$tmp/long"
"$program" look - <"$tmp/long" >"$tmp/out" 2>"$tmp/err"
same "more than a megabyte: refused" "$?" 3
printf 'the\0dog' | "$program" look - >"$tmp/out" 2>"$tmp/err"
same "a NUL: refused" "$?" 3

# ---- maps of other programs ------------------------------------------------------------------

# Weights (1, 1, 3, 3): the previous token, the first on itself.
header='{"attn":{"dtype":"F32","shape":[1,1,3,3],"data_offsets":[0,36]}}'
length=$(printf '%s' "$header" | wc -c)
one='\000\000\200\077' zero='\000\000\000\000'
{
    # shellcheck disable=SC2059
    printf "\\$(printf '%03o' "$length")\000\000\000\000\000\000\000"
    printf '%s' "$header"
    # shellcheck disable=SC2059
    printf "$one$zero$zero$one$zero$zero$zero$one$zero"
} >"$tmp/maps.safetensors"
printf '[CLS]\n\342\226\201dog\nran' >"$tmp/words"
printf '["[CLS]", "<b>", "a\\u202eb"]' >"$tmp/words.json"

run look --weights "$tmp/maps.safetensors" --tokens "$tmp/words"
same "maps: status" "$status" 0
holds "maps: title" "$out" "maps.safetensors · 3 tokens · 1 layer × 1 head"
holds "maps: words" "$out" "[CLS]"
run look --weights "$tmp/maps.safetensors" --tokens "$tmp/words" --plain
same "plain" "$(tr '\t' '|' <"$tmp/out")" "1-1|1|[CLS]|1 0 0
1-1|2|dog|1 0 0
1-1|3|ran|0 1 0"
run look --weights "$tmp/maps.safetensors" --tokens "$tmp/words.json" --csv
same "csv" "$(sed -n 1,3p "$tmp/out")" "stack,layer,head,row,key,row_word,key_word,weight
attn,0,0,0,0,[CLS],[CLS],1
attn,0,0,1,0,<b>,[CLS],1"
lacks "csv: no override" "$out" "$(printf '\342\200\256')"
run look --weights "$tmp/maps.safetensors" --tokens "$tmp/words.json" --json
json "look --json"
lacks "json: no override" "$out" "$(printf '\342\200\256')"
holds "json: the override as an escape" "$out" 'a\u202eb'
run look --weights "$tmp/maps.safetensors" --tokens "$tmp/words" --svg "$tmp/a.svg" --html "$tmp/a.html"
same "files: status" "$status" 0
holds "files: svg" "$(head -c 100 "$tmp/a.svg")" "<svg xmlns"
holds "files: the page is named" "$out" "$tmp/a.html"
if have python3; then
    if python3 -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' "$tmp/a.svg" 2>"$tmp/why"; then good; else bad "svg: $(tail -n 1 "$tmp/why")"; fi
else
    skip "svg through an XML parser: no python3"
fi

# Weights (1, 1, 6, 6), all on the last token, which is rarer than 600 others.
header='{"attn":{"dtype":"F32","shape":[1,1,6,6],"data_offsets":[0,144]}}'
{
    # shellcheck disable=SC2059
    printf "\\$(printf '%03o' "$(printf '%s' "$header" | wc -c)")\000\000\000\000\000\000\000"
    printf '%s' "$header"
    for _ in 1 2 3 4 5 6; do
        # shellcheck disable=SC2059
        printf "$zero$zero$zero$zero$zero$one"
    done
} >"$tmp/rare.safetensors"
printf 'the\nold\ndog\nsaw\na\nzebra\n' >"$tmp/rare.words"
awk 'BEGIN { for (n = 1; n <= 600; n++) print "word" n; print "the\nold\ndog\nsaw\na\nzebra" }' >"$tmp/order"
run heads --weights "$tmp/rare.safetensors" --tokens "$tmp/rare.words" --frequencies "$tmp/order"
holds "rare tokens: the label" "$out" " rare"
awk 'BEGIN { print "zebra\t1"; for (n = 1; n <= 600; n++) print "word" n "\t" 1000 - n; print "the\t99\nold\t9\ndog\t8\nsaw\t7\na\t50" }' >"$tmp/counts"
run heads --weights "$tmp/rare.safetensors" --tokens "$tmp/rare.words" --frequencies "$tmp/counts"
holds "rare tokens by count: the label" "$out" " rare"
head -n 400 "$tmp/order" | cat - "$tmp/rare.words" >"$tmp/common"
run heads --weights "$tmp/rare.safetensors" --tokens "$tmp/rare.words" --frequencies "$tmp/common"
lacks "a token among the 500 most frequent is not rare" "$out" " rare"

refused 2 "--weights brings its own maps: no text with it" look "a text" --weights "$tmp/maps.safetensors"
refused 2 "--tokens and --row-tokens need --weights" look --tokens "$tmp/words"
refused 2 "--plain, --csv and --json exclude each other" look --csv --json
refused 2 "--serve prints no numbers" look --serve --json
refused 2 "--port needs --serve" look --port 8080
refused 2 "--target is for an encoder-decoder, embedded model is none" look --target x
refused 2 "--layer is 9, expected 1 to 2" look --layer 9
refused 2 "no stack 'encodr'; there are: encoder, links" look --stack encodr
refused 2 "--layer is 2, expected 1 to 1" look --stack links --layer 2
refused 2 "option --head: 0 is outside 1 to 100000" look --head 0
refused 7 "cannot read '$tmp/none.safetensors'" look --weights "$tmp/none.safetensors"
refused 3 "$tmp/words: " look --weights "$tmp/words"
printf 'one\ntwo\n' >"$tmp/few"
refused 3 "the maps 'attn' have 3 keys, but there are 2 words" look --weights "$tmp/maps.safetensors" --tokens "$tmp/few"
refused 7 "cannot write '$tmp/no/page.html': its directory" look --html "$tmp/no/page.html"
# A file that may not grow is a failed write: nothing half written stays.
mkdir "$tmp/half"
err=$(ulimit -f 8 && "$program" look --html "$tmp/half/page.html" 2>&1)
same "size limit: status" "$?" 7
holds "size limit: sentence" "$err" "cannot write '$tmp/half/page.html': File too large"
same "size limit: nothing half written" "$(ls -A "$tmp/half")" ""

# ---- live ------------------------------------------------------------------------------------

cat >"$tmp/ask.py" <<'END'
import json, sys, urllib.request
address, token = sys.argv[1].split("/#token=")
text = "The animal didn't cross the street because it was too tired."
def ask(edits, where="run", text=text):
    body = json.dumps({"text": text, "edits": edits}).encode()
    request = urllib.request.Request(f"{address}/{where}", body, {
        "Content-Type": "application/json", "X-Polyhead-Token": token})
    return urllib.request.urlopen(request, timeout=20).read().replace(b"\\u003e", b">")
plain = ask([])
off = ask([{"kind": "zero", "stack": 0, "layer": 1, "head": 2}])
assert b"it -> animal" in plain, "no answer"
assert off.count(b"it -> ") == 2, "no answer before and after"
assert off.count(b'"divergence":') == 1 and b'"divergence":' not in plain, "no divergence, or one without a change"
assert b'"edits":[{"kind":"zero","stack":0,"layer":0,"head":0},' in plain, "the plan is not there to begin with"
assert len(off) > len(plain), "nothing about the change"
hidden = ask([{"kind": "mask", "axis": 0, "word": 1}])
assert "\u25a1".encode() in hidden, "the word is not hidden"
ask([{"kind": "gate", "gate": 0.5, "stack": 0, "layer": 1, "head": 2}])
assert b"polyhead-plan-" in ask([{"kind": "zero", "stack": 0, "layer": 0, "head": 0}], "save")
try:
    ask([], text="")
    sys.exit("an empty text was accepted")
except urllib.error.HTTPError as answer:
    assert b"empty" in answer.read(), "no sentence"
END
# Without standard output the address is not printed, but GET / needs no token.
cat >"$tmp/get.py" <<'END'
import sys, time, urllib.request
for _ in range(100):
    try:
        page = urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/", timeout=20)
        sys.exit(page.status != 200)
    except urllib.error.URLError:
        time.sleep(0.1)
sys.exit("no connection")
END
serves_closed() { # NAME PORT; the server is a child
    if python3 "$tmp/get.py" "$2" 2>"$tmp/why"; then good; else bad "$1: $(tail -n 1 "$tmp/why")"; fi
    kill -INT $server
    wait $server
    same "$1: ends when told" "$?" 0
}
if have python3; then
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    "$program" look --serve --port "$port" >&- 2>"$tmp/serve.err" &
    server=$!
    serves_closed "live: standard output closed" "$port"
    "$program" look --serve --port "$port" >"$tmp/serve.out" 2>&- &
    server=$!
    serves_closed "live: standard error closed" "$port"
    checkpoints=tests/golden/checkpoints
    "$program" look --serve --words --model $checkpoints/t5 "of a sentence" --port "$port" >"$tmp/serve.out" 2>"$tmp/serve.err" &
    server=$!
    serves_closed "live by words" "$port"
    "$program" look --serve --model $checkpoints/vit tests/golden/pictures/rgb8.png --port "$port" >"$tmp/serve.out" 2>"$tmp/serve.err" &
    server=$!
    serves_closed "live on a picture" "$port"
    rm -f "$tmp/serve.out" # or the address of the server before is read
    (cd "$tmp" && exec "$program" look --serve --plan most.json >serve.out 2>serve.err) &
    server=$!
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        grep -q token "$tmp/serve.out" 2>/dev/null && break
        sleep 0.5
    done
    address=$(grep -o 'http://[^ ]*' "$tmp/serve.out")
    if python3 "$tmp/ask.py" "$address" 2>"$tmp/why"; then good; else bad "live: $(tail -n 1 "$tmp/why")"; fi
    same "live: a plan" "$(grep -c '"edit": "zero"' "$tmp/polyhead-plan-1.json")" 1
    kill -INT $server
    wait $server
    same "live: ends when told" "$?" 0
    run look --plan "$tmp/polyhead-plan-1.json" --html "$tmp/plan.html"
    same "a saved plan: status" "$status" 0
    holds "a saved plan: what it does" "$out" "The plan moves the answers by"
    same "a saved plan: the page compares two reports" "$(grep -o '"axes":' "$tmp/plan.html" | wc -l | tr -d ' ')" 2
    run heads --plan "$tmp/polyhead-plan-1.json"
    same "heads --plan: status" "$status" 0
else
    skip "live: no python3"
fi

# A line on the terminal says for how long something takes; messages and results replace it.
if command -v script >/dev/null && script -qec true /dev/null >/dev/null 2>&1; then
    slow="(sleep 3; echo The animal was tired.) | $program look - --plain --layer 1 --head 1"
    out=$(script -qec "sh -c '$slow'" /dev/null </dev/null 2>/dev/null)
    holds "a wait on the terminal" "$out" "reading and measuring: 2 s"
    holds "a wait on the terminal: wiped" "$out" "$(printf '\r\033[K')"
    out=$(sh -c "$slow" 2>&1)
    lacks "no wait without a terminal" "$out" "reading and measuring"
else
    skip "a wait on the terminal: no script command"
fi

finish
