#!/bin/sh
# test_compare.sh - `polyhead compare`: the list of variants, the table, the page, what it counts.

set -u
CDPATH='' cd -- "$(dirname -- "$0")/.." || exit 1
. tests/shell_bed.inc
one_thread

small="--steps 20 --batch 8 --model-dim 16 --heads 2 --ff-dim 16 --layers 1 --test 20"

# ---- the list ----

run compare copy --variants 'mha,gqa:1/talking,moh:shared=1\,top=1,mha/merged,moh:shared=0,top=1' \
    $small --seeds 1 -o "$tmp/list"
same "status" "$status" 0
holds "a comma with a backslash" "$out" "moh:shared=1,top=1 "
holds "a comma before an option" "$out" "moh:shared=0,top=1 "
same "a row for each" "$(printf '%s\n' "$out" | wc -l | tr -d ' ')" 6
run compare copy --variants mha,, $small -o "$tmp/none"
same "an empty name: status" "$status" 2

# A path that a checkpoint has no space for is refused, not cut.
printf 'The animal was too tired. %.0s' 1 2 3 4 5 6 7 8 9 >"$tmp/text"
run compare text --file "$tmp$(printf '/.%.0s' $(seq 600))/text" $small --seeds 1 -o "$tmp/path"
same "a long path: status" "$status" 2
holds "a long path: sentence" "$err" "the path of the file has "

# Names that differ only late, or only in signs that folders do not have.
run compare copy --variants "dcmha:rank=1,side=q,pre=1,post=1,gelu=tanh+gated:element+entmax:alpha=1.5,\
dcmha:rank=1,side=q,pre=1,post=1,gelu=tanh+gated:element+entmax:alpha=1.7" $small --seeds 1 -o "$tmp/long"
same "long names: status" "$status" 0
same "long names: a folder each" "$(find "$tmp/long" -name log.jsonl | wc -l | tr -d ' ')" 2

# ---- another option swept ----

run compare copy --heads 1,2,4 --steps 10 --batch 8 --model-dim 16 --ff-dim 16 --layers 1 --test 10 --seeds 1 -o "$tmp/heads"
same "--heads: status" "$status" 0
for heads in 1 2 4; do holds "--heads $heads" "$out" "heads=$heads "; done
holds "--heads: drawn" "$out" "####"
lacks "one seed has no deviation" "$out" "+-"
page=$(cat "$tmp/heads/compare.html")
holds "the page has the table" "$page" "<tr><th>heads=4<td>4<td>"
same "a grid of heads for each value" "$(printf '%s' "$page" | grep -c '<figcaption>heads=')" 3
same "a cell for each head" "$(printf '%s' "$page" | grep -o 'title="decoder 1-' | wc -l | tr -d ' ')" 7
same "--heads: a folder each" "$(find "$tmp/heads" -name log.jsonl | wc -l | tr -d ' ')" 3
run compare copy --sweep untied=yes,no --variants mha,mqa --match $small --seeds 1 --json -o "$tmp/sweep"
json "--sweep --json"
same "--sweep: variants times values" "$(grep -c '"variant": "m[hq]a untied=' "$tmp/out")" 4
set -- $(sed -n 's/.*"parameters": \([0-9]*\),/\1/p' "$tmp/out")
difference=$(($1 - $2))
same "--sweep --match: about as many parameters" "$((${difference#-} * 50 < $1))" 1
run compare copy --sweep no-bias=yes,no $small --seeds 1 --json -o "$tmp/bias"
set -- $(sed -n 's/.*"parameters": \([0-9]*\),/\1/p' "$tmp/out")
same "--no-bias has fewer parameters" "$(($1 < $2))" 1
refuse() { # sentence, options
    sentence=$1
    shift
    run compare copy "$@"
    same "status of: $*" "$status" 2
    holds "sentence of: $*" "$err" "$sentence"
}
refuse "--sweep is 'heads', expected NAME=A,B,..." --sweep heads
refuse "--none is no option of training or of the model" --sweep none=1
refuse "--positions does not take 'up'" --sweep positions=up
refuse "--layers does not take '1.5'" --sweep layers=1.5
refuse "--untied does not take '1', expected yes or no" --sweep untied=1
refuse "--heads and --sweep: one option is swept at a time" --heads 1,2 --sweep layers=1,2

# ---- the table and the page say the same ----

run compare copy --variants mha,mqa $small --seeds 3 --json -o "$tmp/page"
json "compare --json"
page=$(cat "$tmp/page/compare.html")
means=$(awk '/"loss": \{/ { getline; sub(/.*: /, ""); printf "%.4f\n", $0 }' "$tmp/out")
same "two means" "$(printf '%s\n' "$means" | wc -l | tr -d ' ')" 2
for mean in $means; do
    holds "the page has the mean of the table" "$page" "<td>$mean ("
done
same "a range for each curve" "$(printf '%s' "$page" | grep -o '<polygon' | wc -l | tr -d ' ')" 6
same "a curve for each variant in three charts" "$(printf '%s' "$page" | grep -o '<polyline' | wc -l | tr -d ' ')" 6

# ---- parameters: only those that are used ----

parameters() { sed -n 's/.*"parameters": \([0-9]*\),/\1/p' "$tmp/out" | tr '\n' ' '; }
run compare copy --variants dcmha:rank=2,dcmha:rank=2,side=q,dcmha:rank=2,side=k $small --seeds 1 \
    --json -o "$tmp/sides"
set -- $(parameters)
same "one side has fewer parameters than both" "$(($1 > $2 && $2 == $3))" 1
run compare copy --variants dcmha:rank=2,side=q,dcmha:rank=2 --match $small --seeds 1 --json -o "$tmp/match"
set -- $(parameters)
difference=$(($1 - $2))
same "--match counts them too" "$((${difference#-} * 20 < $1))" 1

finish
