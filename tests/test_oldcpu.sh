#!/bin/sh
# test_oldcpu.sh - nothing above the base instruction set leaks out of its kernels.
#
# Two views of it: the disassembled library (AVX only inside the objects that are chosen at
# run time, which export their table and nothing else), and the kernel checks on emulated
# CPUs from before AVX, with AVX but without AVX2, and with AVX2 but without AVX-512.
#
# Environment: BUILD (build). The last line reads "N passed, N failed" (", N skipped").

set -u
CDPATH='' cd -- "$(dirname -- "$0")/.." || exit 1
BUILD=${BUILD:-build}
kernels=$BUILD/tests/test_kernels
libraries="$BUILD/libpolyhead.a $BUILD/libpolyhead_model.a" # no blanks in BUILD
. tests/shell_bed.inc

case $(uname -m) in
x86_64) ;;
*)
    skip "oldcpu: this machine is not x86-64"
    finish
    ;;
esac

# ---- the objects -------------------------------------------------------------------------

# Members of the library that hold AVX instructions, whose names all start with v.
# shellcheck disable=SC2086
avx_members() {
    objdump -d --no-show-raw-insn $libraries | awk '
        /file format/ { member = $1; sub(/:$/, "", member) }
        /^ *[0-9a-f]+:\t(rep |lock |bnd )?v[a-z]/ { found[member] = 1 }
        END { for (m in found) print m }' | sort | tr '\n' ' '
}

# What those members define for others: a table each.
# shellcheck disable=SC2086
exported() { # MEMBER
    nm -g --defined-only $libraries 2>/dev/null | awk -v m="$1:" '
        $0 == m { inside = 1; next }
        /:$/ { inside = 0 }
        inside && NF == 3 && !/__odr_asan/ { print $3 } # the sanitizer adds those' | tr '\n' ' '
}

if ! have objdump || ! have nm; then
    skip "objects: no objdump or nm (binutils)"
elif [ ! -e "$BUILD/libpolyhead.a" ]; then
    skip "objects: no $BUILD/libpolyhead.a"
else
    same "members with AVX" "$(avx_members)" \
        "amx.o amx_bf16x3.o amx_few_rows.o amx_in_place.o amx_score_grad.o avx2.o avx512.o \
row_sums_avx2.o row_sums_avx512.o spans_avx2.o spans_avx512.o "
    same "symbols of avx2.o" "$(exported avx2.o)" "ph_kernels_avx2 "
    same "symbols of avx512.o" "$(exported avx512.o)" \
        "ph_kernels_amx ph_kernels_amx_f32 ph_kernels_avx512 "
    same "symbols of amx.o" "$(exported amx.o)" "ph_bf16_pairs_amx "
    same "symbols of amx_bf16x3.o" "$(exported amx_bf16x3.o)" \
        "ph_amx_multiply ph_amx_multiply_in_place ph_amx_split_bf16x3 "
    same "symbols of amx_few_rows.o" "$(exported amx_few_rows.o)" \
        "ph_amx_multiply_few_rows "
    same "symbols of amx_in_place.o" "$(exported amx_in_place.o)" "ph_amx_attend_in_place "
    same "symbols of amx_score_grad.o" "$(exported amx_score_grad.o)" "ph_amx_score_grad "
    for isa in avx2 avx512; do
        same "symbols of spans_$isa.o" "$(exported spans_$isa.o)" "ph_spans_$isa "
        same "symbols of row_sums_$isa.o" "$(exported row_sums_$isa.o)" "ph_row_sums_$isa "
    done
fi

# ---- old CPUs ------------------------------------------------------------------------------

qemu="qemu-x86_64"
have $qemu || qemu="qemu-x86_64-static"
if ! have $qemu; then
    skip "emulated: no qemu-x86_64 (qemu-user)"
    finish
elif [ ! -x "$kernels" ]; then
    skip "emulated: no $kernels"
    finish
elif grep -q __asan_init "$kernels" || grep -q __tsan_init "$kernels"; then
    skip "emulated: sanitizers do not run under emulation"
    finish
fi

on() { # CPU ARGUMENTS...
    cpu=$1
    shift
    $qemu -cpu "$cpu" "$kernels" "$@" 2>/dev/null
}

tables() { on "$1" --isas | tr '\n' ' '; }

check() { # CPU CASES...
    cpu=$1
    shift
    log=$(on "$cpu" "$@")
    status=$?
    case $log in
    *", 0 failed") ;;
    *) echo "$log" ;;
    esac
    same "kernels on $cpu" $status 0
}

# Cases that are quick under emulation; masked loads, for ends of rows, are not among those
# for Haswell, because some emulators touch the masked part too.
same "tables on Nehalem" "$(tables Nehalem)" "ref "
same "tables on SandyBridge" "$(tables SandyBridge)" "ref "
check Nehalem pick pack_panel store_row scores softmax gradient weights softcap hide \
    dropout from_halves dot axpy
check SandyBridge pick store_row softmax from_halves

case $(tables Haswell) in
"ref avx2 ")
    good
    check Haswell pick weights gradient from_halves row_lane_max dot axpy clip
    ;;
"ref ") skip "Haswell: this qemu cannot emulate AVX2" ;;
*) same "tables on Haswell" "$(tables Haswell)" "ref avx2 " ;;
esac

finish
