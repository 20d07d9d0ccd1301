#!/bin/sh
# test_refused.sh - checkpoints as they go wrong for people: files that were not fetched,
# links to nowhere, empty files, fields of another kind. A sentence names what it is.

set -u
CDPATH='' cd -- "$(dirname -- "$0")/.." || exit 1
. tests/shell_bed.inc
one_thread

models=tests/golden/checkpoints
pointer='version https://git-lfs.github.com/spec/v1
oid sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
size 538090408'

fresh() { # MODEL: a copy of it in $tmp/model
    rm -rf "$tmp/model"
    cp -r "$models/$1" "$tmp/model"
}

refuses() { # NAME SENTENCE ARGUMENT...: the program ends with this, and prints nothing else
    name=$1 says=$2
    shift 2
    run "$@"
    case $status in
    3 | 4 | 7) good ;;
    *) bad "$name: status $status" ;;
    esac
    holds "$name" "$err" "$says"
    same "$name, output" "$out" ""
}

# ---- files ----

for file in model.safetensors config.json vocab.txt; do
    fresh bert
    echo "$pointer" >"$tmp/model/$file"
    refuses "$file is a pointer" "$file' is a pointer of Git LFS, expected the file itself" \
        fill "$tmp/model" "the [MASK]"
done
echo "$pointer" >"$tmp/model.gguf"
refuses "a GGUF file is a pointer" "model.gguf' is a pointer of Git LFS" generate "$tmp/model.gguf" a
refuses "a tokenizer is a pointer" "model.gguf' is a pointer of Git LFS" tokens "$tmp/model.gguf" a

for file in config.json model.safetensors vocab.txt; do
    fresh bert
    ln -sf "$tmp/nowhere" "$tmp/model/$file"
    refuses "$file is a link to nowhere" "$file': No such file" fill "$tmp/model" "the [MASK]"
    ln -sf "$file" "$tmp/model/$file"
    refuses "$file is a link to itself" "$file': Too many levels" fill "$tmp/model" "the [MASK]"
done

fresh llama
LC_ALL=C sed 's/model.embed_tokens.weight/model.embed_tokenz.weight/' tests/golden/checkpoints/llama/model.safetensors \
    >"$tmp/model/model.safetensors"
refuses "a table that is missing" "tensor 'model.embed_tokens.weight' is missing" generate "$tmp/model" a

# ---- tokenizers ----

fresh bert
: >"$tmp/model/tokenizer.json"
refuses "an empty tokenizer.json" "tokenizer.json' is empty, expected a tokenizer" \
    fill "$tmp/model" "the [MASK]"
echo '["[UNK]", "[CLS]", "[SEP]"]' >"$tmp/model/tokenizer.json"
refuses "a tokenizer.json that is a list" "tokenizer.json' is not a tokenizer" fill "$tmp/model" "the [MASK]"
echo '<html>404</html>' >"$tmp/model/tokenizer.json"
refuses "a tokenizer.json that is a page" "tokenizer.json' is not valid JSON" fill "$tmp/model" "the [MASK]"
: >"$tmp/tokenizer.bin"
refuses "an empty tokenizer.bin" "tokenizer.bin' is empty, expected a tokenizer" tokens "$tmp/tokenizer.bin" a
echo '<html>404</html>' >"$tmp/tokenizer.bin"
refuses "a tokenizer.bin that is a page" "tokenizer.bin': token 0 does not fit" tokens "$tmp/tokenizer.bin" a

# ---- fields ----

fresh llama
sed 's/"model_type": "llama"/"model_type": ["llama"]/' "$models/llama/config.json" >"$tmp/model/config.json"
refuses "model_type of another kind" "model_type is a list, expected a name" generate "$tmp/model" a

finish
