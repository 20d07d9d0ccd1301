# Makefile - builds Polyhead. GNU make, a C11 compiler, nothing else.
#
#   make                the program, both libraries, examples and benchmarks into build/
#   make check          everything ./test does
#   make check-san      all tests under address, undefined and thread sanitizers, valgrind
#   make fuzz           libFuzzer programs (clang) into build-fuzz/tests/
#   make neon           kernel checks for aarch64, run under qemu
#   make install        PREFIX (/usr/local), LIBDIR, DESTDIR; make uninstall takes it away
#
# Variables: CC, CFLAGS (default -O3 -g), LDFLAGS, BUILD (default build), WERROR=1, V=1,
# SAN=address,undefined (use another BUILD with it), CROSS=aarch64-linux-gnu-, CUDA=0 or 1
# (GPU kernels never, or without nvcc not at all; by default where nvcc is), NVCC.
#
# Sources are found by pattern: a new file in src/*/, cli/*/, tests/, examples/ or bench/
# needs no line here. Each source says itself which system interfaces it needs
# (_GNU_SOURCE and the like); the compiler runs as plain C11 without -m flags, kernels
# switch their instruction set on by pragma. Nothing here may change the meaning of
# floating-point arithmetic.

BUILD  ?= build
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
CFLAGS ?= $(if $(SAN),-O1,-O3) -g

ifdef CROSS
CC := $(CROSS)gcc
AR := $(CROSS)ar
endif

# ---- version, from the public header ---------------------------------------------------

version_part = $(shell sed -n 's/^\#define PH_VERSION_$(1) \([0-9]*\)$$/\1/p' include/polyhead.h)
MAJOR   := $(call version_part,MAJOR)
MINOR   := $(MAJOR).$(call version_part,MINOR)
VERSION := $(MINOR).$(call version_part,PATCH)
# What the names of the shared libraries end with: before 1.0 minor versions do not fit.
ABI     := $(if $(filter 0,$(MAJOR)),$(MINOR),$(MAJOR))

# ---- flags ------------------------------------------------------------------------------

WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith \
        -Wold-style-definition -Wwrite-strings -Wundef -Wimplicit-fallthrough -Wvla \
        -Wformat=2 -Wno-format-nonliteral
C := -std=c11 -ffp-contract=off -fvisibility=hidden -fno-common -pthread $(WARN) \
     '-ffile-prefix-map=$(CURDIR)=.'
LIBS := -lm -pthread -ldl

ifdef SAN
# fuzzer is wanted at link time only; compiling takes fuzzer-no-link.
C += -fno-omit-frame-pointer -fno-sanitize-recover=all \
     -fsanitize=$(subst fuzzer,fuzzer-no-link,$(SAN))
LINK_SAN := -fsanitize=$(SAN)
# Kernels take half of the time of such a build. Of these two the address sanitizer finds what
# object-size finds, and pointers that wrap around as soon as they are used.
$(BUILD)/obj/src/kernels/%.o: C += -fno-sanitize=object-size,pointer-overflow
else ifdef STATIC
LINK_ALL := -static
else
# Hardening. The kernels go without, even where a compiler has it by default: their inner
# loops call nothing and hold no text. Fortified functions want an optimising compiler.
HARDEN   := -fstack-protector-strong \
            $(if $(filter -O1 -O2 -O3 -Os,$(CFLAGS)),-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
LINK_ALL := -Wl,-z,relro,-z,now,-z,noexecstack -Wl,--as-needed
LINK_EXE := -pie
LINK_SO  := -Wl,-z,defs
endif
$(BUILD)/obj/src/kernels/%.o: HARDEN := -U_FORTIFY_SOURCE -fno-stack-protector
# In which register a variable lies is debugging information that takes the compiler 40 %
# of its time there; lines and functions stay.
$(BUILD)/obj/src/kernels/%.o: C += -fno-var-tracking
# Loops the compiler is to turn into vectors: it need not care for errno and for exception
# flags, which nobody reads. Neither changes a result.
$(BUILD)/obj/src/model/spans%.o: C += -fno-math-errno -fno-trapping-math
ifneq ($(filter -Ofast -ffast-math -funsafe-math-optimizations,$(CFLAGS) $(CPPFLAGS) $(CC)),)
$(error flags that change floating-point arithmetic break the promise of same bits)
endif

# GPU kernels: compiled where nvcc is found, else the library has none and says so.
ifndef CROSS
NVCC ?= $(if $(filter 0,$(CUDA)),,$(shell command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null))
else
NVCC :=
endif
ifeq ($(CUDA)$(NVCC),1)
$(error CUDA=1, but there is no nvcc)
endif
# No contraction here either: fused multiply-adds are written out.
NVCC_FLAGS := -std=c++17 -O3 -gencode=arch=compute_90a,code=sm_90a --compress-mode=size \
              -fmad=false -Xptxas -v -Werror all-warnings

# ---- what there is -----------------------------------------------------------------------

# libpolyhead: attention, layers, variants, safetensors. libpolyhead_model on top: the rest.
LIB_DIRS  := base kernels io attn variants cuda layer
LIB_SRC   := $(wildcard src/*.c $(LIB_DIRS:%=src/%/*.c))
MODEL_SRC := $(filter-out $(LIB_SRC),$(wildcard src/*/*.c))
HEADERS   := $(wildcard include/*.h)
LIB_H     := include/polyhead.h include/polyhead_io.h include/polyhead_layer.h
WEB       := $(wildcard web/*)
MODELS    := $(wildcard models/*.safetensors)
TABLES    := $(wildcard src/text/unicode.bin)
KERNELS   := $(if $(NVCC),$(patsubst src/cuda/%.cu,build/kernels/%.fatbin,$(wildcard src/cuda/*.cu)))
CLI_SRC   := $(wildcard cli/*/*.c)
TEST_SRC  := $(wildcard tests/test_*.c)
FUZZ_SRC  := $(wildcard tests/fuzz_*.c)
HELP_SRC  := $(filter-out $(TEST_SRC) $(FUZZ_SRC) tests/replay.c,$(wildcard tests/*.c tests/oracle/*.c))
ALL_SRC   := $(LIB_SRC) $(MODEL_SRC) $(CLI_SRC) $(wildcard tests/*.c tests/oracle/*.c examples/*.c bench/*.c)

objects    = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
programs   = $(patsubst %.c,$(BUILD)/%,$(1))

LIB_OBJ   := $(call objects,$(LIB_SRC)) $(if $(wildcard src/cuda/*.cu),$(BUILD)/obj/cuda.o)
MODEL_OBJ := $(call objects,$(MODEL_SRC)) $(if $(WEB),$(BUILD)/obj/web.o) \
             $(if $(MODELS),$(BUILD)/obj/models.o) $(if $(TABLES),$(BUILD)/obj/tables.o)
LIB_A     := $(BUILD)/libpolyhead.a
MODEL_A   := $(BUILD)/libpolyhead_model.a
LIB_SO    := $(BUILD)/libpolyhead.so.$(VERSION)
MODEL_SO  := $(BUILD)/libpolyhead_model.so.$(VERSION)
LIBRARIES := $(LIB_A) $(MODEL_A) $(LIB_SO) $(MODEL_SO)
HELP_A    := $(if $(HELP_SRC),$(BUILD)/obj/tests/libhelpers.a)
PROGRAM   := $(BUILD)/polyhead
EXAMPLES  := $(call programs,$(wildcard examples/*.c))
BENCHES   := $(call programs,$(wildcard bench/*.c))
TESTS     := $(call programs,$(TEST_SRC))
REPLAYS   := $(call programs,$(FUZZ_SRC))
# Checks of the micro-kernels link base and kernels only: a build for aarch64 compiles no more.
KERNEL_TESTS := $(call programs,$(wildcard tests/test_kernel*.c tests/test_gemm*.c))
KERNEL_OBJ   := $(call objects,$(wildcard src/base/*.c src/kernels/*.c tests/kernel_*.c) \
                tests/guard.c tests/gemm_bench.c tests/stored_copy.c)
KERNEL_A     := $(BUILD)/obj/tests/libkernels.a

# ---- targets -----------------------------------------------------------------------------

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SUFFIXES:
.SECONDARY:
.PHONY: all program examples bench test-programs fuzz-programs neon-programs check \
        check-san fuzz fuzz-run neon install uninstall clean format FORCE

all: program $(LIB_SO) $(MODEL_SO) examples bench
program: $(PROGRAM)
examples: $(EXAMPLES)
bench: $(BENCHES)
test-programs: $(TESTS) $(REPLAYS)
fuzz-programs: $(REPLAYS)
neon-programs: $(KERNEL_TESTS)

# One short line per file; V=1 shows the commands, make -s nothing.
ifndef V
.SILENT:
say = $(if $(findstring s,$(firstword -$(MAKEFLAGS))),:,printf '  %-5s %s\n' $(1) $@)
else
say = @:
endif

# Rewritten, and everything rebuilt, only when the compiler or its flags change.
FLAGS_NOW := $(CC) $(C) $(HARDEN) $(CPPFLAGS) $(CFLAGS) $(INSIDE)
$(BUILD)/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(FLAGS_NOW)' | cmp -s - $@ || echo '$(FLAGS_NOW)' >$@

# Who sees which headers: the library its own, the program its own and the few of src/
# that tools/includes names, tests everything, all others public ones.
INCLUDE = -Iinclude
$(BUILD)/obj/cli/%.o: INCLUDE = -Iinclude -Icli -Isrc
$(BUILD)/obj/src/%.o: INCLUDE = -Iinclude -Isrc
$(BUILD)/obj/tests/%.o: INCLUDE = -Iinclude -Isrc -Itests -Icli

# Where there is a CUDA toolkit our declarations of the driver are compared with it.
$(BUILD)/obj/tests/test_cuda.o: CPPFLAGS += $(addprefix -isystem ,$(wildcard /usr/local/cuda/include))

# The libraries' objects serve the static and the shared ones. What libpolyhead_model calls
# inside libpolyhead has default visibility there; calls within the library stay direct.
PIC = -fPIE
INSIDE := -fPIC -fvisibility=default -fno-semantic-interposition
$(BUILD)/obj/src/%.o: PIC = -fPIC
$(call objects,$(filter-out src/kernels/%,$(LIB_SRC)) $(wildcard src/kernels/gemm*.c)): PIC = $(INSIDE)

$(BUILD)/obj/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(CC) $(C) $(HARDEN) $(if $(WERROR),-Werror) $(INCLUDE) $(CPPFLAGS) $(CFLAGS) $(PIC) -MMD -MP -c $< -o $@

-include $(patsubst %.o,%.d,$(call objects,$(ALL_SRC)))

# The page's sources become arrays: the program needs no file beside it.
$(BUILD)/obj/web.c: $(WEB) tools/embed
	@mkdir -p $(@D)
	$(call say,EMBED)
	tools/embed web view/web.h $(WEB) >$@

$(BUILD)/obj/web.o: $(BUILD)/obj/web.c src/view/web.h $(BUILD)/flags
	$(call say,CC)
	$(CC) $(C) $(HARDEN) -Iinclude -Isrc $(CPPFLAGS) $(CFLAGS) -fPIC -c $< -o $@

# So does the trained model.
$(BUILD)/obj/models.c: $(MODELS) tools/embed
	@mkdir -p $(@D)
	$(call say,EMBED)
	tools/embed model model/embedded.h $(MODELS) >$@

$(BUILD)/obj/models.o: $(BUILD)/obj/models.c src/model/embedded.h $(BUILD)/flags
	$(call say,CC)
	$(CC) $(C) $(HARDEN) -Iinclude -Isrc $(CPPFLAGS) $(CFLAGS) -fPIC -c $< -o $@

# So do the tables of characters.
$(BUILD)/obj/tables.c: $(TABLES) tools/embed
	@mkdir -p $(@D)
	$(call say,EMBED)
	tools/embed text text/tables.h $(TABLES) >$@

$(BUILD)/obj/tables.o: $(BUILD)/obj/tables.c src/text/tables.h $(BUILD)/flags
	$(call say,CC)
	$(CC) $(C) $(HARDEN) -Iinclude -Isrc $(CPPFLAGS) $(CFLAGS) -fPIC -c $< -o $@

# GPU kernels, too; one folder for all builds, which differ in the host's compiler only.
# A kernel that spills registers or needs a stack is refused.
build/kernels/%.fatbin: src/cuda/%.cu build/kernels/flags
	@mkdir -p $(@D)
	$(call say,NVCC)
	$(NVCC) $(NVCC_FLAGS) -Iinclude -Isrc -MMD -MP -MF $(@:.fatbin=.d) -fatbin $< -o $@ \
	    >$@.log 2>&1 || { cat $@.log; exit 1; }
	tools/kernel-log $@.log

-include $(KERNELS:.fatbin=.d)

CUDA_FLAGS_NOW := $(NVCC) $(NVCC_FLAGS)
build/kernels/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(CUDA_FLAGS_NOW)' | cmp -s - $@ || echo '$(CUDA_FLAGS_NOW)' >$@

# Rewritten when CUDA or NVCC changes what there is to embed.
$(BUILD)/kernel-list: FORCE
	@mkdir -p $(@D)
	@echo '$(KERNELS)' | cmp -s - $@ || echo '$(KERNELS)' >$@

$(BUILD)/obj/cuda.c: $(KERNELS) tools/embed $(BUILD)/kernel-list
	@mkdir -p $(@D)
	$(call say,EMBED)
	tools/embed --list ph_cuda_image cuda cuda/images.h $(KERNELS) >$@

$(BUILD)/obj/cuda.o: $(BUILD)/obj/cuda.c src/cuda/images.h $(BUILD)/flags
	$(call say,CC)
	$(CC) $(C) $(HARDEN) -Iinclude -Isrc $(CPPFLAGS) $(CFLAGS) -fPIC -c $< -o $@

$(LIB_A): $(LIB_OBJ)
$(MODEL_A): $(MODEL_OBJ)
$(LIB_A) $(MODEL_A):
	$(call say,AR)
	rm -f $@
	$(AR) qcs $@ $^

# Which names a shared library exports: those of its headers, and what the library on top
# calls inside.
$(BUILD)/polyhead.map: $(LIB_H) $(MODEL_OBJ) tools/package/exports
	$(call say,MAP)
	tools/package/exports POLYHEAD $(ABI) $(VERSION) $(LIB_H) $(MODEL_OBJ) >$@

$(BUILD)/polyhead_model.map: $(HEADERS) tools/package/exports
	$(call say,MAP)
	tools/package/exports POLYHEAD_MODEL $(ABI) $(VERSION) $(filter-out $(LIB_H),$(HEADERS)) >$@

$(LIB_SO): $(LIB_OBJ) $(BUILD)/polyhead.map
$(MODEL_SO): $(MODEL_OBJ) $(LIB_SO) $(BUILD)/polyhead_model.map
$(LIB_SO) $(MODEL_SO): $(BUILD)/%.so.$(VERSION):
	$(call say,LINK)
	$(CC) -shared -Wl,-soname,$*.so.$(ABI) -Wl,--version-script=$(filter %.map,$^) \
	    -Wl,-Bsymbolic-functions $(LINK_ALL) $(LINK_SO) $(LINK_SAN) $(LDFLAGS) \
	    $(filter %.o %.so.$(VERSION),$^) $(LIBS) -o $@
	ln -sf $(@F) $(BUILD)/$*.so.$(ABI)
	ln -sf $*.so.$(ABI) $(BUILD)/$*.so

$(HELP_A): $(call objects,$(HELP_SRC))
$(KERNEL_A): $(KERNEL_OBJ)
$(HELP_A) $(KERNEL_A):
	$(call say,AR)
	rm -f $@
	$(AR) qcs $@ $^

define link
@mkdir -p $(@D)
$(call say,LINK)
$(CC) $(LINK_ALL) $(LINK_EXE) $(LINK_SAN) $(LDFLAGS) $(filter %.o %.a,$^) $(LIBS) -o $@
endef

$(PROGRAM): $(call objects,$(CLI_SRC)) $(MODEL_A) $(LIB_A)
	$(link)

$(EXAMPLES) $(BENCHES): $(BUILD)/%: $(BUILD)/obj/%.o $(MODEL_A) $(LIB_A)
	$(link)

$(KERNEL_TESTS): $(BUILD)/%: $(BUILD)/obj/%.o $(KERNEL_A)
	$(link)

$(filter-out $(KERNEL_TESTS),$(TESTS)): $(BUILD)/%: $(BUILD)/obj/%.o $(HELP_A) $(MODEL_A) $(LIB_A)
	$(link)

# A fuzz target has no main: libFuzzer brings one, or replay.c, which runs stored inputs.
REPLAY_MAIN := $(if $(findstring fuzzer,$(SAN)),,$(BUILD)/obj/tests/replay.o)
$(REPLAYS): $(BUILD)/%: $(BUILD)/obj/%.o $(REPLAY_MAIN) $(MODEL_A) $(LIB_A)
	$(link)

# ---- checks ------------------------------------------------------------------------------

check:
	./test

check-san:
	./test san

fuzz:
	$(MAKE) CC=clang BUILD=build-fuzz SAN=fuzzer,address,undefined fuzz-programs

# Each fuzz target for FUZZ_SECONDS; new inputs land in build-fuzz/corpus.
FUZZ_SECONDS ?= 60
fuzz-run: fuzz
	@set -e; for f in $(FUZZ_SRC:tests/fuzz_%.c=%); do \
	    mkdir -p build-fuzz/corpus/$$f; seeds=; \
	    if [ -d tests/corpus/$$f ]; then seeds=tests/corpus/$$f; fi; \
	    build-fuzz/tests/fuzz_$$f -max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=4096 \
	        build-fuzz/corpus/$$f $$seeds; \
	done

neon:
	./test neon

# ---- install -----------------------------------------------------------------------------

PAGES   := polyhead.1 polyhead.bash _polyhead polyhead.fish
PC      := polyhead.pc polyhead_model.pc polyheadConfig.cmake polyheadConfigVersion.cmake
D       := $(DESTDIR)
CMAKE   := $(LIBDIR)/cmake/polyhead

# The program writes its own manual page and completions.
$(BUILD)/share/polyhead.1:    WORDS = man
$(BUILD)/share/polyhead.bash: WORDS = completions bash
$(BUILD)/share/_polyhead:     WORDS = completions zsh
$(BUILD)/share/polyhead.fish: WORDS = completions fish
$(PAGES:%=$(BUILD)/share/%): $(PROGRAM)
	@mkdir -p $(@D)
	$(call say,DOC)
	$(PROGRAM) $(WORDS) >$@

# Always made anew: they depend on the variables of this very call.
$(PC:%=$(BUILD)/share/%): $(BUILD)/share/%: tools/package/%.in FORCE
	@mkdir -p $(@D)
	sed -e 's|@PREFIX@|$(PREFIX)|g' -e 's|@LIBDIR@|$(LIBDIR)|g' \
	    -e 's|@VERSION@|$(VERSION)|g' -e 's|@ABI@|$(ABI)|g' $< >$@

install: $(PROGRAM) $(LIBRARIES) $(PAGES:%=$(BUILD)/share/%) $(PC:%=$(BUILD)/share/%)
	install -d $D$(PREFIX)/bin $D$(PREFIX)/include $D$(LIBDIR)/pkgconfig $D$(CMAKE) \
	    $D$(PREFIX)/share/man/man1 $D$(PREFIX)/share/bash-completion/completions \
	    $D$(PREFIX)/share/zsh/site-functions $D$(PREFIX)/share/fish/vendor_completions.d
	install -m 755 $(PROGRAM) $D$(PREFIX)/bin/polyhead
	install -m 644 $(HEADERS) $D$(PREFIX)/include
	install -m 644 $(LIB_A) $(MODEL_A) $D$(LIBDIR)
	install -m 755 $(LIB_SO) $(MODEL_SO) $D$(LIBDIR)
	for lib in libpolyhead libpolyhead_model; do \
	    ln -sf $$lib.so.$(VERSION) $D$(LIBDIR)/$$lib.so.$(ABI); \
	    ln -sf $$lib.so.$(ABI) $D$(LIBDIR)/$$lib.so; \
	done
	install -m 644 $(BUILD)/share/polyhead.pc $(BUILD)/share/polyhead_model.pc $D$(LIBDIR)/pkgconfig
	install -m 644 $(BUILD)/share/polyheadConfig.cmake $(BUILD)/share/polyheadConfigVersion.cmake $D$(CMAKE)
	install -m 644 $(BUILD)/share/polyhead.1 $D$(PREFIX)/share/man/man1/polyhead.1
	install -m 644 $(BUILD)/share/polyhead.bash $D$(PREFIX)/share/bash-completion/completions/polyhead
	install -m 644 $(BUILD)/share/_polyhead $D$(PREFIX)/share/zsh/site-functions/_polyhead
	install -m 644 $(BUILD)/share/polyhead.fish $D$(PREFIX)/share/fish/vendor_completions.d/polyhead.fish
# The loader finds a new library in its cache only.
	@if [ -z "$D" ] && [ "$$(id -u)" = 0 ]; then ldconfig 2>/dev/null || :; fi

uninstall:
	rm -f $D$(PREFIX)/bin/polyhead $(HEADERS:include/%=$D$(PREFIX)/include/%)
	rm -f $D$(LIBDIR)/libpolyhead.a $D$(LIBDIR)/libpolyhead.so* \
	    $D$(LIBDIR)/libpolyhead_model.a $D$(LIBDIR)/libpolyhead_model.so*
	rm -f $D$(LIBDIR)/pkgconfig/polyhead.pc $D$(LIBDIR)/pkgconfig/polyhead_model.pc $D$(PREFIX)/share/man/man1/polyhead.1
	rm -f $D$(PREFIX)/share/bash-completion/completions/polyhead \
	    $D$(PREFIX)/share/zsh/site-functions/_polyhead \
	    $D$(PREFIX)/share/fish/vendor_completions.d/polyhead.fish
	rm -rf $D$(CMAKE)

clean:
	rm -rf build build-*

format:
	clang-format -i $(ALL_SRC) $(wildcard include/*.h src/*/*.h cli/*/*.h tests/*.h)
