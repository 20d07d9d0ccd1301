#!/bin/sh
# test_cli.sh - the program from outside: help, exit codes, suggestions, streams, colour,
# JSON, the manual page, completions, and the numbers of explain. POLYHEAD is the program
# (default build/polyhead). One line for each case that fails, then "N passed, N failed".

set -u
CDPATH='' cd -- "$(dirname -- "$0")/.." || exit 1

unset POLYHEAD_ISA POLYHEAD_THREADS NO_COLOR
export TERM=xterm
LC_ALL=C
export LC_ALL

. tests/shell_bed.inc
escape=$(printf '\033')

# The command line after the sentence is refused with it, in one line, nothing on stdout.
refused() { # STATUS SENTENCE ARGUMENTS...
    wanted=$1 sentence=$2
    shift 2
    run "$@"
    same "status of: $*" "$status" "$wanted"
    same "stderr of: $*" "$err" "polyhead: $sentence"
    same "stdout of: $*" "$out" ""
}

[ -x "$program" ] || {
    echo "  FAIL  there is no $program"
    echo "0 passed, 1 failed"
    exit 1
}

# ---- help ----------------------------------------------------------------------------------

run
same "no argument: status" "$status" 0
holds "no argument: first example" "$out" "polyhead look"
holds "no argument: second example" "$out" "polyhead run in.safetensors"
same "no argument: stderr" "$err" ""

for words in --help -h help; do
    run $words
    same "$words: status" "$status" 0
    for command in look heads explain run bench doctor variants tokens help; do
        holds "$words names $command" "$out" "
  $command "
    done
    lacks "$words hides man" "$out" "
  man "
done
for command in look heads explain run bench doctor variants tokens help; do
    run "$command" --help
    same "$command --help: status" "$status" 0
    holds "$command --help: usage" "$out" "polyhead $command "
    narrow "$command --help"
    cp "$tmp/out" "$tmp/long"
    run help "$command"
    if cmp -s "$tmp/out" "$tmp/long"; then good; else bad "help $command differs from $command --help"; fi
done
for topic in exit-codes environment shapes; do
    run help $topic
    same "help $topic: status" "$status" 0
    holds "help $topic: title" "$out" "$topic: "
done
refused 2 "no help on exti-codes: did you mean exit-codes?" help exti-codes
run help --json
json "help --json"
holds "help --json: an option" "$out" '"name": "causal"'

run --version
same "--version: status" "$status" 0
case $out in
"polyhead "[0-9]*.[0-9]*.[0-9]*) good ;;
*) bad "--version: '$out'" ;;
esac

# ---- mistakes ------------------------------------------------------------------------------

refused 2 "unknown command rnu: did you mean run?" rnu
refused 2 "unknown command zzzzzzz: 'polyhead --help' lists them" zzzzzzz
refused 2 "unknown option --cuasal: did you mean --causal?" run --cuasal
refused 2 "--variant is of one training, expected --variants" compare copy --variant talking
refused 2 "unknown option --hepl: did you mean --help?" --hepl
refused 2 "unknown option --qqqqqqqq: 'polyhead explain --help' lists them" explain --qqqqqqqq
refused 2 "unknown option -x: 'polyhead --help' lists them" -x
refused 2 "option --threads: 'many' is not a whole number" explain --threads many
refused 2 "option --threads: '2x' is not a whole number" explain --threads=2x
refused 2 "option --threads: '' is not a whole number" explain --threads=
refused 2 "option --threads: ' 2' is not a whole number" explain --threads " 2"
refused 2 "option --threads: -1 is outside 0 to 1024" explain --threads -1
refused 2 "option -t: 99999999999999999999 is outside 0 to 1024" explain -t99999999999999999999
refused 2 "option --seconds: '1,5' is not a finite number" bench --seconds 1,5
refused 2 "option --seconds: 'nan' is not a finite number" bench --seconds nan
refused 2 "option --seconds: '0x10' is not a finite number" bench --seconds 0x10
refused 2 "option --isa: 'avx51' is none of best, ref, avx2, avx512, amx, amx-f32, neon: did you mean avx512?" doctor --isa avx51
refused 2 "option --shape: '1,2,3' is not of the form B,T,D,H[,K]" explain --shape 1,2,3
refused 2 "option --shape: 0 is outside 1 to 16777216" explain --shape 1,0,3,4
refused 2 "option --shape: model_dim 10 is no multiple of 4 heads" explain --shape 1,2,10,4
refused 2 "option --shape: 3 key heads do not divide 4 heads" explain --shape 1,2,8,4,3
refused 2 "option --shape needs a value: B,T,D,H[,K]" explain --shape
refused 2 "option --decode needs --shape B,T,D,H" explain --decode
refused 2 "option --json takes no value" explain --json=yes
refused 2 "explain takes no argument, found 'please'" explain please
refused 2 "variants takes one NAME, found 'b' too" variants a b
refused 2 "no shape decod: did you mean decode?" bench decod
refused 2 "--device cuda goes without --variants and --list" bench --device cuda --list
refused 2 "completions needs SHELL: see 'polyhead completions --help'" completions
refused 2 "look takes one TEXT, found 'cat' too: put the text in quotes" look The cat sat
refused 2 "look takes one TEXT, and 'tests/golden/checkpoints/gpt2' is a model: it is given by --model, or -m" \
    look tests/golden/checkpoints/gpt2 "The cat sat"
refused 2 "generate takes one MODEL and one TEXT, found 'cat' too: put the text in quotes" generate pronouns The cat
for name in nowhere owner/nowhere; do
    refused 7 "cannot read '$name': No such file or directory; models are read from disk, nothing is downloaded" \
        generate $name x
    refused 7 "cannot read '$name': No such file or directory; models are read from disk, nothing is downloaded" \
        tokens $name x
done
lacks "a path" "$("$program" generate ./nowhere x 2>&1)" "downloaded"
run look tests/golden/checkpoints/gpt2
holds "a folder as a text" "$err" "names a folder and is read as a text: a model is given by --model"
run look --model tests/golden/checkpoints/bert-sentence README.md
holds "a file as a text" "$err" "'README.md' names a file and is read as a text: - reads standard input"
refused 2 "no completions for tcsh: there are bash, zsh and fish" completions tcsh
case $(uname -m) in
x86_64) foreign=neon ;;
*) foreign=avx2 ;;
esac
run doctor --isa $foreign
same "an instruction set of another architecture: status" "$status" 2
holds "an instruction set of another architecture" "$err" "isa is \"$foreign\", expected one of ref"
POLYHEAD_ISA=$foreign
export POLYHEAD_ISA
run run none.safetensors -o "$tmp/none"
same "POLYHEAD_ISA of another architecture: status" "$status" 2
holds "POLYHEAD_ISA of another architecture" "$err" "isa is \"$foreign\" in POLYHEAD_ISA, expected one of ref"
unset POLYHEAD_ISA
POLYHEAD_THREADS=abc
export POLYHEAD_THREADS
refused 2 "environment variable POLYHEAD_THREADS: 'abc' is not a whole number" explain
unset POLYHEAD_THREADS
run explain "--a${escape}[31mred"
lacks "no escape code of the user's comes back" "$err" "$escape"
turn=$(printf '\342\200\256') # U+202E: writes backwards
run explain "--a${turn}b"
lacks "no turn of direction either" "$err" "$turn"
run variants mah
same "unknown variant: status" "$status" 4
holds "unknown variant: suggestion" "$err" "no variant mah: did you mean mha? There are: mha"

# Ways to write an option.
for line in "--threads=1" "--threads 1" "-t 1" "-t1" "--json --threads=1" "--no_color"; do
    run doctor $line
    same "doctor $line: status" "$status" 0
done
run variants -- mha
same "-- ends the options: status" "$status" 0
refused 2 "option --filter needs a value: TEXT" bench --filter --list

# ---- streams and colour ----------------------------------------------------------------------

for words in "" "--help" "explain" "variants" "doctor" "bench --list" "help exit-codes"; do
    run $words
    lacks "no colour into a pipe: $words" "$out" "$escape"
    same "nothing on stderr: $words" "$err" ""
done
run --color always variants
holds "--color always before the command" "$out" "$escape"
run variants --color=always
holds "--color=always after it" "$out" "$escape"
run variants --color=always --no-color
lacks "--no-color" "$out" "$escape"

if have script && script -qec true /dev/null >/dev/null 2>&1; then
    on_terminal() { script -qec "$*" /dev/null </dev/null 2>/dev/null; }
    holds "colour on a terminal" "$(on_terminal "$program" variants)" "$escape"
    lacks "NO_COLOR" "$(NO_COLOR=1 on_terminal "$program" variants)" "$escape"
    holds "empty NO_COLOR" "$(NO_COLOR='' on_terminal "$program" variants)" "$escape"
    lacks "TERM=dumb" "$(TERM=dumb on_terminal "$program" variants)" "$escape"
    holds "progress on a terminal" \
        "$(on_terminal "$program" bench short-20 -t 1 --seconds 0.05)" "%"
else
    skip "colour on a terminal: no script command"
fi

# A reader that has gone away ends the program silently, by signal 13 as usual.
abandoned() { # what the program says and its status, its reader gone before it writes
    { sleep 0.2; "$program" explain 2>&3; echo $? >&3; } 3>"$tmp/err" | true
    cat "$tmp/err"
}
same "SIGPIPE" "$(abandoned)" 141
same "SIGPIPE ignored by the parent" "$(trap '' PIPE && abandoned)" 141
if [ -c /dev/full ]; then
    "$program" explain >/dev/full 2>"$tmp/err"
    same "full disk: status" "$?" 7
    holds "full disk: sentence" "$(cat "$tmp/err")" \
        "polyhead: cannot write to standard output: No space left on device"
fi

for words in explain --help "tokens tests/golden/checkpoints/bert-sentence dog"; do
    "$program" $words >&- 2>"$tmp/err"
    same "$words, output closed: status" "$?" 7
    holds "$words, output closed: sentence" "$(cat "$tmp/err")" \
        "polyhead: cannot write to standard output: Bad file descriptor"
done

# ---- explain -----------------------------------------------------------------------------------

run explain
same "explain: status" "$status" 0
holds "Q1, row 1" "$out" "[  0.00   1.45 ]"
holds "Q1, row 2" "$out" "[ -0.95  -0.45 ]"
holds "Q2, row 1" "$out" "[  2.05  -0.50 ]"
holds "Q2, row 2" "$out" "[ -0.27   0.94 ]"
holds "the article is wrong" "$out" "The article prints other numbers for Q1 and Q2"
holds "both forms agree" "$out" "Both forms give the same output: the same bits."
holds "weights" "$out" "[ 0.3746  0.6254 ]   [ 0.0356  0.9644 ]"
holds "output" "$out" "[  0.8743  -1.1677   0.2004  -1.5894 ]"
holds "the reference case" "$out" "(32, 8, 20, 20)"
narrow "explain"
same "explain has no blanks at line ends" "$(grep -c ' $' "$tmp/out")" 0
cp "$tmp/out" "$tmp/explain"
for isa in ref best; do
    run explain --isa $isa --threads 3
    if cmp -s "$tmp/out" "$tmp/explain"; then good; else bad "explain --isa $isa differs"; fi
done
run explain --json
json "explain --json"

holds "residual and LayerNorm" "$(cat "$tmp/explain")" "Y = LayerNorm( X + output )"
holds "the block diagram" "$(cat "$tmp/explain")" "[LayerNorm]"
holds "one head costs what eight do" "$(cat "$tmp/explain")" "parameters              1.05 M              1.05 M      the same"
holds "attention, n^2 d" "$(cat "$tmp/explain")" "self-attention   n^2 d    205 K        1                   1"
holds "recurrence, n d^2" "$(cat "$tmp/explain")" "recurrence       n d^2    5.24 M       20                  20"
run explain --lang zh
holds "explain --lang zh: Chinese fills its lines" "$out" "取自一篇广为流传的文章，文中没有"
holds "explain --lang zh: titles stand above their matrices" "$out" "文中的 Q1（错）    文中的 Q2（错）"
holds "explain --lang zh: the formula" "$out" "其中 Q_i = X W_i^Q"
same "explain in Chinese: status" "$status" 0
holds "explain in Chinese" "$out" "多头注意力，一步一步"
holds "the same numbers in Chinese" "$out" "[  0.8743  -1.1677   0.2004  -1.5894 ]"
run explain --shape 4,16,64,4 --batch 4 --decode --lang zh
holds "explain --shape --lang zh: title" "$out" "多头注意力的代价: 一个新词元对 16 个键"
holds "explain --shape --lang zh: steps" "$out" "输出投影 "
lacks "explain --shape --lang zh: nothing in English" "$out" "memory"

# The reader's own numbers, against plain loops.
cat >"$tmp/own" <<'END'
# three tokens
1 0 0.5 -1
0, 2, 1, 0
-1 1 0 0.25
W_Q
1 0 0 0
0 1 0 0
0 0 2 0
0 0 0 1
END
run explain --x "$tmp/own" --heads 2
same "explain --x: status" "$status" 0
holds "explain --x: what is made up is said" "$out" "Matrices that the file does not hold are made up."
if have python3; then
    run explain --x "$tmp/own" --heads 2 --json
    printf '%s' "$out" >"$tmp/own.json"
    same "explain --x: output and LayerNorm" "$(python3 - "$tmp/own.json" <<'END'
import json, math, sys
e = json.load(open(sys.argv[1]))
mul = lambda a, b: [[sum(x * y for x, y in zip(r, c)) for c in zip(*b)] for r in a]
concat = [[] for _ in e["X"]]
for head in e["heads"]:
    q, k, v = (mul(e["X"], head[w]) for w in ("W_Q", "W_K", "W_V"))
    for i, row in enumerate(q):
        p = [math.exp(sum(a * b for a, b in zip(row, key)) / math.sqrt(2)) for key in k]
        concat[i] += mul([[x / sum(p) for x in p]], v)[0]
out = mul(concat, e["W_O"])
worst = max(abs(a - b) for r, s in zip(out, e["output"]) for a, b in zip(r, s))
for x, o, y in zip(e["X"], out, e["layer_norm"]):
    s = [a + b for a, b in zip(x, o)]
    mean = sum(s) / 4
    sd = math.sqrt(sum((a - mean) ** 2 for a in s) / 4 + 1e-5)
    worst = max(worst, *(abs((a - mean) / sd - b) for a, b in zip(s, y)))
print("close" if worst < 1e-5 and e["heads"][1]["W_Q"][2] == [2, 0] else worst)
END
)" close
fi
refused 2 "option --heads: 4 columns of X are no multiple of 3" explain --x "$tmp/own" --heads 3
refused 2 "option --heads needs --x FILE" explain --heads 2
refused 2 "option --x is for the example: leave out --shape" explain --x "$tmp/own" --shape 1,2,4,2
refused 7 "cannot read '$tmp/none': No such file or directory" explain --x "$tmp/none"
refused 3 "/dev/zero, line 1: a byte is 0, expected text" explain --x /dev/zero
bad_x() { # sentence, contents
    printf '%b' "$2" >"$tmp/bad_x"
    refused 3 "$tmp/bad_x$1" explain --x "$tmp/bad_x"
}
bad_x ", line 2: as many numbers as in the row before were expected" '1 2\n3\n'
bad_x ", line 1: expected numbers from -1e6 to 1e6" '1 -x\n'
bad_x ", line 2: expected numbers, or one of the names X, W_Q, W_K, W_V, W_O" '1 2\nW_Z\n'
bad_x ": W_Q is 1 x 2, expected 2 x 2 as X has 2 columns" '1 2\nW_Q\n1 2\n'
bad_x ", line 1: more than 8 columns: the example must stay readable" '1 2 3 4 5 6 7 8 9\n'
bad_x ", line 9: more than 8 rows: the example must stay readable" '1\n2\n3\n4\n5\n6\n7\n8\n9\n'
bad_x " holds no X" '# nothing\n'

run explain --shape 32,20,512,8
same "explain --shape: status" "$status" 0
holds "explain --shape: the tree" "$out" "+-scores         (32, 8, 20, 20)"
holds "explain --shape: FLOPs of a projection" "$out" "336 M"
holds "explain --shape: bound" "$out" "compute"
narrow "explain --shape"
run explain --shape 1,4096,4096,32,8 --decode --batch 32
same "explain --decode --batch: status" "$status" 0
holds "explain --decode --batch: conclusion" "$out" \
    "Batching helps the projections and not the attention itself"
narrow "explain --decode"
run explain --shape 2,64,256,4,2 --causal --dtype bf16 --batch 8 --json
json "explain --shape --json"

# ---- doctor, variants, bench -----------------------------------------------------------------

run doctor
same "doctor: status" "$status" 0
holds "doctor: same bits" "$out" "same bits"
lacks "doctor: different bits" "$out" "DIFFERENT"
run doctor --json
json "doctor --json"
holds "doctor --json: healthy" "$out" '"healthy": true'
POLYHEAD_ISA=ref
export POLYHEAD_ISA
run doctor
holds "doctor: why ref" "$out" "ref: lowered by POLYHEAD_ISA"
unset POLYHEAD_ISA
run doctor --threads 3 --isa ref
holds "doctor: why 3" "$out" "3: as --threads asks"
holds "doctor: why ref by option" "$out" "ref: as --isa asks"

run bench --list --json
json "bench --list --json"
holds "bench --list --json: a shape" "$out" '"name": "short-20"'
run run "$(printf 'no\033[31mfile')" -o out
holds "no control characters in an error" "$err" "cannot read 'no?[31mfile'"

run variants
holds "variants: mha" "$out" "mha "
run variants mha
same "variants mha: status" "$status" 0
for kind in diff collab; do
    run variants $kind+gated:head --shape 2,20,64,8
    layer=${out#*parameters}
    run variants gated:head+$kind --shape 2,20,64,8
    same "variants --shape: $kind behind a gate" "${out#*parameters}" "$layer"
done
run variants --json
json "variants --json"

run bench --list
holds "bench --list" "$out" "decode-gqa-bf16"
run bench --list --filter causal
lacks "bench --filter" "$out" "short-20"
run bench short-20 odd-59 --threads 1,2 --seconds 0.1
same "bench: status" "$status" 0
same "bench: a line for each" "$(grep -c '^short-20 \|^odd-59 ' "$tmp/out")" 4
same "bench: stderr" "$err" ""
narrow "bench"
run bench short --json --threads 1 --seconds 0.1
json "bench --json"
run bench short-20 --json --threads 1 --seconds 0.05 --isa ref
holds "bench --isa: the peak is that of the kernels" "$out" '"probe_isa": "plain"'

# ---- tokens --------------------------------------------------------------------------------

tokenizers=tests/golden_tokens
run tokens $tokenizers/bert_uncased.json "the [MASK] of" --pair "in"
same "tokens: status" "$status" 0
holds "tokens: a special token of the text" "$out" "4-10          '[MASK]'"
holds "tokens: the second text" "$out" "0-2 B         'in'"
holds "tokens: their number" "$out" "7 tokens"
run tokens $tokenizers/gpt2.json "a<|endoftext|>" --special-as-text --json
json "tokens --json"
lacks "tokens --special-as-text" "$out" '"special": true'
mkdir "$tmp/folder"
cp $tokenizers/t5.json "$tmp/folder/tokenizer.json"
run tokens "$tmp/folder" "the" --bare
holds "tokens of a folder" "$out" "1 tokens"
refused 7 "'$tmp' holds no tokenizer.json, vocab.txt, tokenizer.bin, merges.txt or source.spm" tokens "$tmp" x
# what --model takes elsewhere: a file of llama2.c, a training, a file of ours
run train copy --steps 1 --batch 2 --model-dim 16 --heads 2 --ff-dim 16 --layers 1 --test 2 -q -o "$tmp/trained"
for model in "$tmp/trained" "$tmp/trained/model.safetensors"; do
    run tokens "$model" "abc"
    same "tokens of $model: status" "$status" 0
    holds "tokens of $model" "$out" "6  2-3           'c'"
done
run tokens "$tmp/trained" "abc" --json --max-tokens 2
json "tokens of a training, --json"
holds "tokens of a training: what they are" "$out" '"model": "chars"'
same "tokens of a training: two" "$(printf '%s\n' "$out" | grep -c '"id"')" 2
run tokens pronouns "The cat"
holds "tokens of the model in the program" "$out" "4-7           'cat'"
for option in --bare --special-as-text "--pair a"; do
    refused 2 "--pair, --bare and --special-as-text go with published tokenizers: the model has a vocabulary of its own" \
        tokens "$tmp/trained" abc $option
done
run prune tests/golden/checkpoints/bert --remove 1:1 --out "$tmp/pruned"
run tokens tests/golden/checkpoints/bert "the cat" --pair sat --json
of_folder=$out
run tokens "$tmp/pruned" "the cat" --pair sat --json
same "tokens of a model with the tokenizer of a folder" "$out" "$of_folder"
mkdir "$tmp/llama2c"
{ # version 0: seven numbers, then 3 x 8 floats for 259 tokens and one layer of dim 8
    printf '\10\0\0\0\10\0\0\0\1\0\0\0\1\0\0\0\1\0\0\0\3\1\0\0\4\0\0\0'
    head -c $((4 * (259 * 8 + 8 + 4 * 64 + 8 + 3 * 64 + 8 + 2 * 4 * 4))) /dev/zero
} >"$tmp/llama2c/model.bin"
run tokens "$tmp/llama2c/model.bin" "a"
holds "a llama2.c file alone" "$err" "tokenizer.bin"
i=0
{
    printf '\7\0\0\0'
    while [ $i -lt 259 ]; do
        printf '\0\0\0\0\1\0\0\0x'
        i=$((i + 1))
    done
} >"$tmp/llama2c/tokenizer.bin"
run tokens "$tmp/llama2c/model.bin" "a"
holds "tokens of a llama2.c file" "$out" "0-1"
refused 7 "cannot read '$tmp/nowhere': No such file or directory" tokens "$tmp/nowhere" x
refused 3 "the text is not valid UTF-8 at byte 1" tokens $tokenizers/t5.json "$(printf 'a\377')"
printf '{"model":{"type":"Magic"}}' >"$tmp/words.json"
refused 4 "'$tmp/words.json': the model 'Magic' is not supported" tokens "$tmp/words.json" x

# ---- what is generated from the tables ---------------------------------------------------------

run man
same "man: status" "$status" 0
cp "$tmp/out" "$tmp/polyhead.1"
if have mandoc; then
    same "man page: lint" "$(mandoc -T lint -W warning "$tmp/polyhead.1" 2>&1)" ""
fi
if have man && have groff; then
    MANWIDTH=80 man --warnings -E ascii -l "$tmp/polyhead.1" >"$tmp/page" 2>"$tmp/err"
    same "man page: warnings" "$(cat "$tmp/err")" ""
    holds "man page: an option" "$(col -b <"$tmp/page" 2>/dev/null || cat "$tmp/page")" "--causal"
elif ! have mandoc; then
    skip "man page: neither man nor mandoc"
fi
for shell in bash zsh fish; do
    run completions $shell
    same "completions $shell: status" "$status" 0
    cp "$tmp/out" "$tmp/completion.$shell"
    if ! have $shell; then
        skip "completions $shell: no $shell"
    elif $shell -n "$tmp/completion.$shell" 2>"$tmp/err"; then
        good
    else
        bad "completions $shell: $(head -n 1 "$tmp/err")"
    fi
done
complete_bash() { # WORDS...: what bash offers for the last of them
    bash -c '. "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _polyhead; echo "${COMPREPLY[*]}"' \
        "$tmp/completion.bash" "$@"
}
if have bash; then
    same "bash: a command" "$(complete_bash polyhead do)" "doctor"
    same "bash: an option" "$(complete_bash polyhead explain --dec)" "--decode"
    same "bash: a choice" "$(complete_bash polyhead explain --dtype b)" "bf16"
    same "bash: a choice after =" "$(complete_bash polyhead explain --dtype = b)" "bf16"
    same "bash: a variant" "$(complete_bash polyhead variants mh)" "mha"
fi
if have fish; then
    offers=$(cd "$tmp" && HOME=$tmp fish -c \
        'source completion.fish; complete -C "polyhead explain --dtype b"' 2>/dev/null)
    holds "fish: a choice" "$offers" "bf16"
fi

finish
