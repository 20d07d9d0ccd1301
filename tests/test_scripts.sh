#!/bin/sh
# test_scripts.sh - the scripts around the program, tried on a toy project in a temporary
# folder: ./run (builds when it must, silent and quick when not, from anywhere, many at
# once), the runner of test programs, and the checks of source rules.

set -u
CDPATH='' cd -- "$(dirname -- "$0")/.." || exit 1

. tests/shell_bed.inc
toy="$tmp/a toy" # with a blank, as people have

# ---- the toy: prints its arguments, ends with the status named by the second ----------------

mkdir -p "$toy/include" "$toy/src/base" "$toy/cli/framework" "$toy/cli/bench" "$toy/tests" \
    "$toy/examples" "$toy/bench"
cp -r Makefile run test tools .ci "$toy/"
{ echo '/* toy */'; grep 'define PH_VERSION' include/polyhead.h; } >"$toy/include/polyhead.h"
printf '/* toy */\nint ph_toy(void);\n' >"$toy/src/base/toy.h"
printf '/* toy */\n#include "base/toy.h"\nint ph_toy(void)\n{\n    return 1;\n}\n' \
    >"$toy/src/base/toy.c"
cat >"$toy/cli/framework/main.c" <<'END'
/* toy */
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) printf("[%s]", argv[i]);
    return argc > 2 ? atoi(argv[2]) : 0;
}
END

# ---- ./run ----------------------------------------------------------------------------------

bare() { env -i PATH=/usr/bin:/bin HOME=/nonexistent "$@"; }

# Ten at once on a fresh clone: one builds, all run.
for i in 0 1 2 3 4 5 6 7 8 9; do
    bare "$toy/run" "n$i" >"$tmp/out$i" 2>"$tmp/err$i" &
done
wait
same "ten at once, output" "$(cat "$tmp"/out? | tr -d '\n')" "[n0][n1][n2][n3][n4][n5][n6][n7][n8][n9]"
same "ten at once, builds" "$(cat "$tmp"/err? | grep -c building)" 1

same "without arguments" "$(cd "$tmp" && bare "$toy/run" 2>&1)" "[look][--html][polyhead-look.html]"
same "arguments arrive whole" "$("$toy/run" 'a b' 0 '' '*' 2>&1)" "[a b][0][][*]"
"$toy/run" x 42 >/dev/null 2>&1
same "status" $? 42
ln -s "a toy/run" "$tmp/link"
ln -s link "$tmp/link2"
same "through links, from elsewhere" "$(cd / && "$tmp/link2" y 2>&1)" "[y]"
same "relative" "$(cd "$toy/src" && ../run z 2>&1)" "[z]"

# Once built, nothing but the program runs: a make in front of the real one is not called.
mkdir "$tmp/bin"
printf '#!/bin/sh\n: >"%s/made"\n' "$tmp" >"$tmp/bin/make"
chmod +x "$tmp/bin/make"
same "once built, runs" "$(PATH="$tmp/bin:$PATH" "$toy/run" w 2>&1)" "[w]"
same "once built, no make" "$(ls "$tmp/made" 2>/dev/null)" ""

sleep 0.01
touch "$toy/src/base/toy.h"
PATH="$tmp/bin:$PATH" "$toy/run" >/dev/null 2>&1
same "a newer header calls make" "$(ls "$tmp/made")" "$tmp/made"
touch "$toy/src/base/toy.h"
holds "a newer header builds" "$("$toy/run" 2>&1 >/dev/null)" building
same "and only once" "$("$toy/run" 2>&1 >/dev/null)" ""
echo 'int broken' >>"$toy/cli/framework/main.c"
err=$("$toy/run" 2>&1 >"$tmp/out")
same "a broken source, status" $? 1
holds "a broken source, message" "$err" "the build failed"
same "a broken source, stdout" "$(cat "$tmp/out")" ""
sed -i '$d' "$toy/cli/framework/main.c"
same "mended" "$("$toy/run" m 2>/dev/null)" "[m]"

# A clone that may only be read: root stops being root for this.
stranger=
[ "$(id -u)" != 0 ] || stranger="setpriv --reuid 65534 --regid 65534 --clear-groups"
if $stranger true 2>/dev/null; then
    chmod -R a+rX,a-w "$tmp"
    same "read-only, built" "$($stranger "$toy/run" r 2>&1)" "[r]"
    chmod -R u+w "$tmp"
    touch "$toy/src/base/toy.h"
    chmod -R a-w "$toy"
    same "read-only, older than a source" "$($stranger "$toy/run" r 2>/dev/null)" "[r]"
    chmod -R u+w "$toy"
else
    skip "read-only clone: cannot stop being root"
fi

# ---- tools/deps ------------------------------------------------------------------------------

same "nothing missing, nothing said" "$(bare "$toy/tools/deps" build 2>&1)" ""
mkdir "$tmp/empty" "$tmp/bare"
for tool in sh dirname readlink find head mkdir flock getconf id uname; do
    ln -s "$(command -v $tool)" "$tmp/bare/$tool"
done
ln -s "$(command -v sh)" "$tmp/empty/sh"
err=$(env -i PATH="$tmp/empty" POLYHEAD_NO_INSTALL=1 CC=no-such-compiler "$toy/tools/deps" build 2>&1)
same "missing, status" $? 1
holds "missing, said" "$err" "missing and needed: gcc"
rm -rf "$toy/build"
err=$(env -i PATH="$tmp/bare" CC=no-such-compiler "$toy/run" --no-install x 2>&1)
same "run --no-install, status" $? 1
holds "run --no-install names what is missing" "$err" "missing and needed: gcc"
same "run --no-install, all there" "$(bare "$toy/run" --no-install x 2>/dev/null)" "[x]"

# ---- tools/runtests ---------------------------------------------------------------------------

script() { # NAME LINE...
    { echo '#!/bin/sh'; printf '%s\n' "$2"; } >"$tmp/$1"
    chmod +x "$tmp/$1"
}
script fine 'echo "3 passed, 0 failed"'
script skips 'echo "3 passed, 0 failed, 2 skipped"'
script fails 'echo reason; echo "1 passed, 2 failed"; exit 1'
script lies 'echo "3 passed, 0 failed"; exit 3'
script mute 'echo hello'
script dies 'kill -9 $$'
script aborts 'kill -6 $$'
script hangs 'exec sleep 60'
for name in fine skips fails lies mute dies aborts hangs; do echo "$name $tmp/$name"; done >"$tmp/jobs"
echo "+plain $tmp/mute" >>"$tmp/jobs"
out=$(TIMEOUT=2 tools/runtests toy "$tmp/results" <"$tmp/jobs")
same "runtests, status" $? 1
same "runtests, counts" "$(cut -d' ' -f2-5 "$tmp/results" | sort | tr '\n' ';')" \
    "aborts 0 1 0;dies 0 1 0;fails 1 2 0;fine 3 0 0;hangs 0 1 0;lies 3 1 0;mute 0 1 0;plain 1 0 0;skips 3 0 2;"
holds "runtests shows why" "$out" reason
holds "runtests names a signal" "$out" "signal 6"
holds "runtests ends what hangs" "$out" "timed out"

# ---- tools/includes, tools/style ---------------------------------------------------------------

same "includes, clean" "$("$toy/tools/includes" && echo yes)" yes
same "style, clean" "$(rm -rf "$toy/build"; "$toy/tools/style" && echo yes)" yes

mkdir -p "$toy/src/attn" "$toy/src/io" "$toy/src/kernels"
printf '/* x */\n' | tee "$toy/cli/bench/b.h" "$toy/src/attn/a.h" "$toy/src/kernels/k.h" >"$toy/src/io/i.h"
printf '/* x */\n#include "attn/a.h"\n#include "toy.h"\n' >"$toy/src/base/up.c"
printf '/* x */\n#include "kernels/k.h"\n#include "base/toy.h"\n' >"$toy/src/io/side.c"
printf '/* x */\n#include "polyhead.h"\n#include "base/toy.h"\n' >"$toy/cli/framework/inner.c"
printf '/* x */\n#include "bench/b.h"\n' >"$toy/cli/framework/higher.c"
printf '/* x */\n' >"$toy/cli/bench/toy.c"
same "includes, breaches" "$("$toy/tools/includes" | grep -o '^[^ ]*:[0-9]*:' | tr '\n' ' ')" \
    "cli/framework/higher.c:2: cli/framework/inner.c:3: src/base/toy.c:1: src/base/up.c:2: src/base/up.c:3: src/io/side.c:2: "

{
    echo 'int no_comment;'
    printf 'int tab;\t/* x */\n'
    awk 'BEGIN { while (n++ < 91) printf "x"; print "" }'
    echo '#pragma GCC optimize("fast-math")'
    echo 'int f(void)'
    echo '{'
    awk 'BEGIN { while (n++ < 600) print "    ;" }'
    echo '}'
} >"$toy/cli/framework/ugly.c"
out=$("$toy/tools/style" | grep ugly)
for word in "ugly.c:1: the first" "ugly.c:2: a tab" "ugly.c:3: 91 col" "ugly.c:4: a flag" \
    "ugly.c:6: a function of 600" "at most 600"; do
    holds "style" "$out" "$word"
done
printf '/* x */\ntypedef struct thing {\n    int a;\n} thing;\n' |
    tee "$toy/src/io/one.c" >"$toy/src/attn/two.c"
holds "style, names" "$("$toy/tools/style")" "src/io/one.c:2: a type thing exists in src/attn/two.c too"
echo 'CFLAGS += -ffast-math' >>"$toy/Makefile"
holds "style, flags" "$("$toy/tools/style")" "Makefile:$(wc -l <"$toy/Makefile"): a flag"

finish
