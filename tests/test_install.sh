#!/bin/sh
# test_install.sh - installs into a temporary folder and uses what lies there as a stranger
# would: C and C++, shared and static, pkg-config and CMake, and checks what is exported.

set -u
CDPATH='' cd -- "$(dirname -- "$0")/.." || exit 1
CC=${CC:-cc}
build=${BUILD:-build}

. tests/shell_bed.inc
prefix=$tmp/prefix

check() { # NAME COMMAND...: the command must succeed; its output is shown if it does not
    name=$1
    shift
    if "$@" >"$tmp/log" 2>&1; then
        good
    else
        bad "$name: $*"
        sed 's/^/    /' "$tmp/log"
    fi
}

# ---- the tree --------------------------------------------------------------------------

check "install" make -s install BUILD="$build" PREFIX="$prefix"
version=$(sed -n 's/^Version: //p' "$prefix/lib/pkgconfig/polyhead.pc")

check "version in polyhead.pc" test -n "$version"
abi=${version%.*} # before 1.0 the minor version is part of the libraries' names
for file in bin/polyhead include/polyhead.h include/polyhead_model.h lib/libpolyhead.a \
    lib/libpolyhead.so "lib/libpolyhead.so.$abi" "lib/libpolyhead.so.$version" \
    lib/libpolyhead_model.a lib/libpolyhead_model.so "lib/libpolyhead_model.so.$abi" \
    "lib/libpolyhead_model.so.$version" lib/pkgconfig/polyhead.pc \
    lib/pkgconfig/polyhead_model.pc lib/cmake/polyhead/polyheadConfig.cmake \
    share/man/man1/polyhead.1 share/bash-completion/completions/polyhead \
    share/zsh/site-functions/_polyhead share/fish/vendor_completions.d/polyhead.fish; do
    check "$file" test -s "$prefix/$file"
done

# Each shell that is here reads the words written for it.
syntax() { # SHELL FILE
    if have "$1"; then
        check "$1 completion" "$1" -n "$prefix/share/$2"
    else
        skip "$1 completion: no $1"
    fi
}
syntax bash bash-completion/completions/polyhead
syntax zsh zsh/site-functions/_polyhead
syntax fish fish/vendor_completions.d/polyhead.fish

staged() {
    make -s install BUILD="$build" DESTDIR="$tmp/stage" PREFIX=/usr LIBDIR=/usr/lib/here &&
        test -s "$tmp/stage/usr/lib/here/libpolyhead.a" &&
        test -s "$tmp/stage/usr/bin/polyhead" &&
        grep -q '^libdir=/usr/lib/here$' "$tmp/stage/usr/lib/here/pkgconfig/polyhead.pc" &&
        ! grep -rqF "$tmp" "$tmp/stage/usr/lib/here/pkgconfig" "$tmp/stage/usr/lib/here/cmake"
}
check "DESTDIR and LIBDIR" staged

# ---- what the libraries show ------------------------------------------------------------

lower="$prefix/include/polyhead.h $prefix/include/polyhead_io.h $prefix/include/polyhead_layer.h"
upper=$(for h in "$prefix"/include/*.h; do case " $lower " in *" $h "*) ;; *) echo "$h" ;; esac; done)

declared() { # HEADER...: functions
    cat "$@" | grep -o '^PH_API [^;(]*(' | sed 's/($//; s/.*[ *]//' | sort -u
}

# Exactly the functions of the library's headers; what the one on top calls inside has a
# version of its own, which no program asks for.
exports() { # LIBRARY HEADER...
    nm -D --defined-only "$prefix/lib/$1.so" | awk '$2 != "A" { print $3 }' >"$tmp/symbols"
    shift
    ! grep -v '^ph_' "$tmp/symbols" && test -s "$tmp/symbols" || return 1
    grep -v '@@*POLYHEAD_PRIVATE_' "$tmp/symbols" | sed 's/@.*//' | sort -u >"$tmp/exported"
    declared "$@" >"$tmp/declared"
    diff "$tmp/declared" "$tmp/exported"
}
# shellcheck disable=SC2086
{
    check "libpolyhead exports what its headers declare" exports libpolyhead $lower
    check "libpolyhead_model exports what its headers declare" exports libpolyhead_model $upper
}

no_model() { # nothing of the upper library, exported or not
    # shellcheck disable=SC2086
    declared $upper >"$tmp/of_models"
    nm "$prefix/lib/libpolyhead.a" 2>/dev/null | awk '{ print $NF }' | sort -u >"$tmp/all"
    test -s "$tmp/of_models" && test -z "$(comm -12 "$tmp/of_models" "$tmp/all")" &&
        ! grep -E '^ph_(model|web|train|recipe|page)_' "$tmp/all"
}
check "libpolyhead has no model in it" no_model

static_names() { # in the static libraries too: every global name carries the prefix
    nm -g --defined-only "$prefix/lib/$1.a" 2>/dev/null | awk 'NF == 3 { print $3 }' >"$tmp/names"
    ! grep -v '^ph_' "$tmp/names" && test -s "$tmp/names"
}

has_soname() { readelf -d "$prefix/lib/$1.so" | grep -q "SONAME.*\[$1\.so\.$abi\]"; }

few_needs() {
    readelf -d "$prefix/lib/$1.so" | grep NEEDED >"$tmp/needed" &&
        ! grep -vE "\[(libc|libm|libpthread|ld-linux[^]]*|$2)\.so[.0-9]*\]" "$tmp/needed"
}

no_wx() {
    readelf -lW "$prefix/lib/$1.so" >"$tmp/headers" && grep -q GNU_STACK "$tmp/headers" &&
        ! grep -E 'GNU_STACK.*E |TEXTREL' "$tmp/headers"
}
for lib in libpolyhead libpolyhead_model; do
    check "$lib.a defines only ph_*" static_names $lib
    check "$lib, soname" has_soname $lib
    check "$lib, no executable stack" no_wx $lib
done
check "libpolyhead needs only libc, libm, pthreads" few_needs libpolyhead libc
check "libpolyhead_model needs libpolyhead besides" few_needs libpolyhead_model libpolyhead

# ---- using it with pkg-config ------------------------------------------------------------

PKG_CONFIG_PATH=$prefix/lib/pkgconfig
LD_LIBRARY_PATH=$prefix/lib
export PKG_CONFIG_PATH LD_LIBRARY_PATH

if have pkg-config; then
    cflags=$(pkg-config --cflags polyhead)
    libs=$(pkg-config --libs polyhead)
    slibs=$(pkg-config --static --libs polyhead)
    model_libs=$(pkg-config --libs polyhead_model)
    model_slibs=$(pkg-config --static --libs polyhead_model)
else
    skip "pkg-config is not available: its words are written by hand"
    cflags="-I$prefix/include"
    libs="-L$prefix/lib -lpolyhead"
    slibs="$libs -lm -pthread"
    model_libs="-L$prefix/lib -lpolyhead_model -lpolyhead"
    model_slibs="$model_libs -lm -pthread"
fi

# shellcheck disable=SC2086
{
    check "C, shared" $CC -std=c11 -Wall -Wextra -Werror -pedantic $cflags tests/install/app.c \
        -o "$tmp/app" $libs -lm
    check "C, shared, runs" "$tmp/app"
    check "C, shared, version" test "$("$tmp/app" 2>&1)" = "$version"
    check "C, static" $CC -std=c11 $cflags tests/install/app.c -o "$tmp/app_static" \
        -Wl,-Bstatic $libs -Wl,-Bdynamic $slibs
    check "C, static, runs" env -u LD_LIBRARY_PATH "$tmp/app_static"
    check "C, wholly static" $CC -static -std=c11 $cflags tests/install/app.c \
        -o "$tmp/app_all" $slibs
    check "C, wholly static, runs" "$tmp/app_all"
    check "C, models, shared" $CC -std=c11 -Wall -Wextra -Werror -pedantic $cflags \
        tests/install/app_model.c -o "$tmp/model" $model_libs
    check "C, models, shared, runs" "$tmp/model"
    check "C, models, static" $CC -static -std=c11 $cflags tests/install/app_model.c \
        -o "$tmp/model_static" $model_slibs
    check "C, models, static, runs" "$tmp/model_static"
}

# Each public header alone, in C and in C++, and all together.
for header in "$prefix"/include/*.h; do
    name=$(basename "$header")
    echo "#include <$name>" >>"$tmp/public_headers.h"
    echo "#include <$name>" >"$tmp/alone.c"
    check "$name alone" $CC -std=c11 -Wall -Wextra -Werror -pedantic -I"$prefix/include" \
        -fsyntax-only "$tmp/alone.c"
done

if have g++; then
    # shellcheck disable=SC2086
    check "C++" g++ -std=c++11 -Wall -Wextra -Werror $cflags -I"$tmp" tests/install/app.cpp \
        -o "$tmp/app_cpp" $libs
    check "C++, runs" "$tmp/app_cpp"
    # shellcheck disable=SC2086
    check "C++, models" g++ -x c++ -std=c++11 -Wall -Wextra -Werror $cflags \
        tests/install/app_model.c -o "$tmp/model_cpp" $model_libs
    check "C++, models, runs" "$tmp/model_cpp"
else
    skip "g++ is not available"
fi

# ---- compiled with headers of another version ------------------------------------------

other_headers() { # PART VALUE: a copy whose PH_VERSION_PART is VALUE, and what uses it
    rm -rf "$tmp/other" && cp -r "$prefix/include" "$tmp/other" &&
        sed "s/^\(#define PH_VERSION_$1\) .*/\1 $2/" "$prefix/include/polyhead.h" \
            >"$tmp/other/polyhead.h"
}
build_other() { # SOURCE PROGRAM
    # shellcheck disable=SC2086
    $CC -std=c11 -Wall -Wextra -Werror -I"$tmp/other" "$1" -o "$2" $libs -lm
}
refused_for() { # WORDS: the program of other headers ends with this sentence
    ! "$tmp/app_other" >"$tmp/said" 2>&1 && grep -F "$1" "$tmp/said"
}

other_minor() {
    other_headers MINOR 99 && build_other tests/install/app.c "$tmp/app_other" &&
        refused_for "the program was compiled with headers of version 0.99.0, expected those of $version"
}
check "headers of another minor version" other_minor

other_patch() {
    other_headers PATCH 99 && build_other tests/install/app.c "$tmp/app_other" &&
        "$tmp/app_other"
}
check "headers of another patch version" other_patch

# A later patch version has a field more in ph_attn, which ph_layer_desc embeds: a program
# that leaves it 0 runs, one that uses it is refused.
newer_field() {
    other_headers PATCH 99 &&
        awk '/^typedef struct ph_attn/ { inside = 1 }
             inside && /uint64_t reserved\[16\];/ {
                 print "    uint64_t new_field, reserved[15];"
                 inside = 0
                 next
             }
             { print }' "$tmp/other/polyhead.h" >"$tmp/newer.h" &&
        grep -q new_field "$tmp/newer.h" && mv "$tmp/newer.h" "$tmp/other/polyhead.h" &&
        build_other tests/install/app.c "$tmp/app_other" && "$tmp/app_other" &&
        sed 's/\.qk_dim = 2}/.qk_dim = 2, .new_field = 1}/' tests/install/app.c >"$tmp/newer.c" &&
        build_other "$tmp/newer.c" "$tmp/app_other" &&
        refused_for "ph_attn.reserved is not 0, expected 0"
}
check "a field of a later patch version" newer_field

# ---- using it with CMake ------------------------------------------------------------------

if have cmake && have g++; then
    mkdir -p "$tmp/cmake"
    cp "$tmp/public_headers.h" "$tmp/cmake/"
    check "CMake configures" env -u LD_LIBRARY_PATH cmake -S tests/install -B "$tmp/cmake" \
        -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$CC"
    check "CMake builds" cmake --build "$tmp/cmake"
    for app in app_c app_static app_cpp model_c model_static; do
        check "CMake, $app runs" env -u LD_LIBRARY_PATH "$tmp/cmake/$app"
    done
    wrong_version() {
        mkdir -p "$tmp/wrong" &&
            sed 's/polyhead 0.1 REQUIRED/polyhead 0.99 REQUIRED/' tests/install/CMakeLists.txt \
                >"$tmp/wrong/CMakeLists.txt" &&
            ! cmake -S "$tmp/wrong" -B "$tmp/wrong/b" -DCMAKE_PREFIX_PATH="$prefix"
    }
    check "CMake refuses another minor version" wrong_version
else
    skip "cmake or g++ is not available"
fi

# ---- the program, and away with it -----------------------------------------------------------

check "installed program runs" "$prefix/bin/polyhead" --version
check "uninstall" make -s uninstall BUILD="$build" PREFIX="$prefix"
nothing_left() { test -z "$(find "$prefix" ! -type d)"; }
check "nothing is left" nothing_left

finish
