# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# make            build/tokensnoop
# make demo       install what it needs, trace a built-in server, print the report
# make check      install what it needs, run every test
# make install    into PREFIX (/usr/local) below DESTDIR
# make deb        a Debian package; make dist: the sources; make static: a program that needs no library
# make bench      install what it needs, measure what tracing costs
#
# V=1 shows commands; SAN=address,undefined builds with sanitizers into build-san/.

VERSION := 0.1.0
CC ?= gcc
CLANG ?= clang
LLVM_STRIP ?= llvm-strip
BPFTOOL ?= bpftool
PREFIX ?= /usr/local
# For another machine than this one: MACHINE, CC, AR and SYSROOT (make arm64 does it).
MACHINE ?= $(shell uname -m)
ARCH := $(patsubst aarch64,arm64,$(patsubst x86_64,x86,$(MACHINE)))
VMLINUX_DIR := vmlinux/$(MACHINE)
SYSROOT ?=

SAN ?=
ifneq ($(SAN),)
B := build/san
SANFLAGS := -fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer
else
B := build
SANFLAGS :=
endif

ifeq ($(V),1)
Q :=
say = @true
else
Q := @
say = @printf '  %-8s %s\n' $(1) $(2)
endif

WARN := -Wall -Wextra -Werror -Wshadow -Wvla -Wformat=2 -Wstrict-prototypes -Wmissing-prototypes -Wundef
HARDEN := -fstack-protector-strong -fstack-clash-protection -D_FORTIFY_SOURCE=2 -fPIE \
	$(if $(filter x86,$(ARCH)),-fcf-protection) $(if $(filter arm64,$(ARCH)),-mbranch-protection=standard)
OPT ?= -O2 -g
# Where it was built is nobody's business, and would make two builds differ.
HERE_IS := -ffile-prefix-map=$(CURDIR)=.
LLHTTP_SRC := /usr/share/llhttp
LLHTTP_INC := /usr/share/include/llhttp
CPPFLAGS += -D_GNU_SOURCE -DTKS_VERSION='"$(VERSION)"' -Iinclude -Isrc/core -Isrc/report -isystem $(LLHTTP_INC)
CPPFLAGS += $(if $(SYSROOT),-isystem $(SYSROOT)/usr/include -isystem $(SYSROOT)/usr/include/$(MACHINE)-linux-gnu)
CFLAGS += -std=gnu11 $(OPT) $(HERE_IS) $(WARN) $(if $(SAN),,$(HARDEN)) $(SANFLAGS)
LDFLAGS += $(if $(SYSROOT),-L$(SYSROOT)/usr/lib/$(MACHINE)-linux-gnu) $(if $(SAN),,-pie -Wl,-z,relro,-z,now,-z,noexecstack) $(SANFLAGS)

CORE_SRC := $(wildcard src/core/*.c)
REPORT_SRC := $(wildcard src/report/*.c)
CAPTURE_SRC := $(wildcard src/capture/*.c)
CMD_SRC := $(wildcard src/cmd/*.c)
UNIT_SRC := $(wildcard tests/unit/test_*.c)
UNIT_BIN := $(UNIT_SRC:tests/unit/%.c=$(B)/tests/%)
comma := ,
obj = $(patsubst %.c,$(B)/obj/%.o,$(1))
LLHTTP_OBJ := $(B)/obj/llhttp/llhttp.o $(B)/obj/llhttp/api.o $(B)/obj/llhttp/http.o

all: $(B)/tokensnoop

# --- libraries ---------------------------------------------------------------------------------
$(B)/libtkscore.a: $(call obj,$(CORE_SRC)) $(LLHTTP_OBJ)
$(B)/libtksreport.a: $(call obj,$(REPORT_SRC))
$(B)/libtkscapture.a: $(call obj,$(CAPTURE_SRC))
$(B)/%.a:
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(B)/obj/%.o: %.c
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@

$(B)/obj/llhttp/%.o: $(LLHTTP_SRC)/%.c
	$(call say,CC,$(<F))
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 $(OPT) $(HERE_IS) $(if $(SAN),-fPIE,$(HARDEN)) $(SANFLAGS) -w -I$(LLHTTP_INC) -c $< -o $@

# --- BPF ---------------------------------------------------------------------------------------
# Twice: without the calls of kernel functions that came with 6.10, too.
BPF_SRC := bpf/tokensnoop.bpf.c
SKEL := $(B)/gen/tokensnoop.skel.h $(B)/gen/nokfuncs.skel.h
$(B)/gen/nokfuncs.bpf.o: BPF_CPPFLAGS := -DTKS_NO_KFUNCS
$(B)/gen/%.bpf.o: $(BPF_SRC) $(wildcard bpf/*.h bpf/*.bpf.c) include/tokensnoop/record.h
	$(call say,BPF,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CLANG) -O2 -g $(HERE_IS) -target bpf -D__TARGET_ARCH_$(ARCH) -Wall -Werror -Wno-unused-function \
		$(BPF_CPPFLAGS) -I$(VMLINUX_DIR) -Iinclude -Ibpf -c $< -o $@.tmp
	$(Q)$(LLVM_STRIP) -g $@.tmp && mv $@.tmp $@
$(B)/gen/%.skel.h: $(B)/gen/%.bpf.o
	$(call say,SKEL,$@)
	$(Q)$(BPFTOOL) gen skeleton $< name $*_bpf > $@.tmp && mv $@.tmp $@
$(call obj,$(CAPTURE_SRC)): $(SKEL)
$(call obj,$(CAPTURE_SRC)) $(call obj,$(CMD_SRC)): CPPFLAGS += -I$(B)/gen -Isrc/capture

# --- the program -------------------------------------------------------------------------------
CORE_LIBS := -lnghttp2 -lbrotlidec -lzstd -lz -lpcap -lm
CAPTURE_LIBS := -lbpf -lelf -lcapstone -llzma -lz -lcap
LIBS := $(CAPTURE_LIBS) $(CORE_LIBS) -lseccomp
$(B)/tokensnoop: $(call obj,$(CMD_SRC)) $(B)/libtkscapture.a $(B)/libtksreport.a $(B)/libtkscore.a
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS)

# One file that needs no library: for hosts and containers without them. glibc, libseccomp and elfutils in it make it
# GPL-2.0-only. libpcap's archive has capture from D-Bus in it, whose library has no archive; reading files never gets there.
DBUS := bus_add_match bus_get bus_register connection_flush connection_open connection_pop_message \
	connection_read_write connection_send connection_set_max_received_size connection_unref error_free \
	error_is_set free message_demarshal message_is_signal message_marshal message_unref
static: $(B)/tokensnoop-static
$(B)/tokensnoop-static: $(call obj,$(CMD_SRC)) $(B)/libtkscapture.a $(B)/libtksreport.a $(B)/libtkscore.a
	$(call say,LINK,$@)
	$(Q)$(CC) $(filter-out -pie,$(LDFLAGS)) -static-pie $(patsubst %,-Wl$(comma)--defsym=dbus_%=abort,$(DBUS)) \
		-Wl,--no-warnings -o $@ $^ $(LIBS) -lbrotlicommon -lz

# All of it for aarch64, in build/arm64: objects, and static programs for tests/kernels.
arm64:
	$(Q)sh tests/lib/deps.sh test
	$(Q)sysroot=$$(sh tests/kernels/sysroot.sh) && $(MAKE) --no-print-directory MACHINE=aarch64 B=build/arm64 \
		CC=aarch64-linux-gnu-gcc AR=aarch64-linux-gnu-ar SYSROOT=$$sysroot \
		TEST_LDFLAGS="-static -L$$sysroot/usr/lib/aarch64-linux-gnu" static arm64-bins
arm64-bins: $(B)/tests/truth_server $(B)/tests/kclient $(B)/tests/zoo $(B)/tests/openssl_server

# --- tests -------------------------------------------------------------------------------------
$(B)/tests/test_%: tests/unit/test_%.c $(B)/libtksreport.a $(B)/libtkscore.a
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) -Itests/unit -Isrc/cmd $(CFLAGS) -Wno-missing-prototypes -MMD -MP \
		$(LDFLAGS) -o $@ $< $(UNIT_LIBS) $(B)/libtksreport.a $(B)/libtkscore.a \
		-lcmocka -ljansson $(CORE_LIBS)
$(B)/tests/test_spot: UNIT_LIBS := $(call obj,src/capture/spot.c) -lcapstone
$(B)/tests/test_spot: CPPFLAGS += -Isrc/capture
$(B)/tests/test_spot: $(call obj,src/capture/spot.c)

# That of the capture's reading of files has the capture too.
$(B)/tests/test_elfsym: tests/unit/test_elfsym.c $(B)/libtkscapture.a
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) -Isrc/capture $(CFLAGS) -MMD -MP $(LDFLAGS) -o $@ $< $(B)/libtkscapture.a \
		-lcmocka $(CAPTURE_LIBS)

TEST_PROGS := $(B)/tests/truth_server $(B)/tests/kclient
$(B)/tests/truth_server: tests/live/truth_server.c
$(B)/tests/kclient: tests/kernels/kclient.c
$(B)/tests/kclient: TEST_LIBS := -lssl -lcrypto
$(TEST_PROGS):
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) -std=gnu11 -O2 -g -Wall -Wextra -Werror $(TEST_LDFLAGS) -o $@ $< -lpthread $(TEST_LIBS)

# Of tests/live, for the guests of tests/kernels.
$(B)/tests/openssl_server: tests/live/servers/tls/openssl_server.c
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) -std=gnu11 -O2 -g -Wall -Wextra -Werror $(TEST_LDFLAGS) -o $@ $< -lssl -lcrypto -lpthread

$(B)/tests/zoo: tests/live/zoo.c $(B)/libtkscapture.a
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) -Isrc/capture $(CFLAGS) $(if $(TEST_LDFLAGS),$(TEST_LDFLAGS),$(LDFLAGS)) -o $@ $^ $(CAPTURE_LIBS)

$(B)/tests/h2_dump: tests/golden/h2_dump.c $(B)/libtkscore.a
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(CORE_LIBS)

$(B)/tests/oom: tests/golden/oom.c $(B)/libtksreport.a $(B)/libtkscore.a
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(CORE_LIBS)

$(B)/tests/empty_probe: tests/bench/empty_probe.c
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $^ -lbpf -lelf -lz

$(B)/tests/empty.bpf.o: tests/bench/empty.bpf.c
	$(call say,BPF,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CLANG) -O2 -g -target bpf -Wall -Werror -I$(VMLINUX_DIR) -c $< -o $@

unit-bins: $(UNIT_BIN)
test-bins: $(TEST_PROGS) $(B)/tests/zoo $(B)/tests/h2_dump
oom-bin: $(B)/tests/oom
bench-bins: $(B)/tests/empty_probe $(B)/tests/empty.bpf.o

# Fuzzers: the core and the reporters once more, with clang and coverage.
FUZZ_SRC := $(wildcard tests/fuzz/fuzz_*.c)
FUZZ_BIN := $(FUZZ_SRC:tests/fuzz/%.c=build/fuzz/%)
FUZZ_FLAGS := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
FUZZ_OBJ := $(patsubst %.c,build/fuzz/obj/%.o,$(CORE_SRC) $(REPORT_SRC)) \
	$(patsubst $(LLHTTP_SRC)/%.c,build/fuzz/obj/llhttp/%.o,$(wildcard $(LLHTTP_SRC)/*.c))
build/fuzz/obj/%.o: %.c
	$(call say,FUZZCC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CLANG) $(CPPFLAGS) -std=gnu11 -Wall -Wextra $(FUZZ_FLAGS) -fsanitize=fuzzer-no-link -MMD -MP -c $< -o $@
build/fuzz/obj/llhttp/%.o: $(LLHTTP_SRC)/%.c
	$(Q)mkdir -p $(@D)
	$(Q)$(CLANG) -w -I$(LLHTTP_INC) $(FUZZ_FLAGS) -fsanitize=fuzzer-no-link -c $< -o $@
# Of the capture what reads files: the rest is the kernel's.
FUZZ_ELF_OBJ := $(patsubst %,build/fuzz/obj/src/capture/%.o,elfsym elfdebug gofunc maps)
build/fuzz/fuzz_elfsym: tests/fuzz/fuzz_elfsym.c $(FUZZ_ELF_OBJ)
	$(call say,FUZZLD,$@)
	$(Q)$(CLANG) $(CPPFLAGS) -Isrc/capture -std=gnu11 $(FUZZ_FLAGS) -fsanitize=fuzzer -o $@ $^ \
		$(CAPTURE_LIBS)
build/fuzz/fuzz_%: tests/fuzz/fuzz_%.c $(FUZZ_OBJ)
	$(call say,FUZZLD,$@)
	$(Q)$(CLANG) $(CPPFLAGS) -Itests/fuzz -std=gnu11 $(FUZZ_FLAGS) -fsanitize=fuzzer -o $@ $^ $(CORE_LIBS)
fuzz-bins: $(FUZZ_BIN)

# make fuzz FUZZ_SECONDS=600: each target so long
FUZZ_SECONDS ?= 60
fuzz: fuzz-bins
	$(Q)set -e; for f in $(FUZZ_BIN); do \
		sh tests/fuzz/run_one.sh $$f $(FUZZ_SECONDS); \
	done

# --- the two commands, and their parts ---------------------------------------------------------
demo:
	$(Q)sh tests/lib/deps.sh build
	$(Q)$(MAKE) --no-print-directory all test-bins
	$(Q)sh tests/demo/demo.sh

JOBS ?= $(shell nproc)
check:
	$(Q)sh tests/lib/deps.sh test
	$(Q)$(MAKE) --no-print-directory -j$(JOBS) all unit-bins test-bins fuzz-bins
	$(Q)$(MAKE) --no-print-directory -j$(JOBS) SAN=address,undefined all unit-bins oom-bin
	$(Q)$(MAKE) --no-print-directory -j$(JOBS) arm64
	$(Q)sh tests/lib/manifest.sh >build/manifest
	$(Q)python3 tests/lib/runner.py --jobs $(JOBS) build/manifest

test:
	$(Q)$(MAKE) --no-print-directory -j$(JOBS) all unit-bins $(B)/tests/h2_dump
	$(Q)sh tests/lib/manifest.sh >build/manifest
	$(Q)python3 tests/lib/runner.py --jobs $(JOBS) --kind unit --kind golden build/manifest

# make bench BENCH='--json tls': what tests/bench/bench.py takes
BENCH ?=
bench:
	$(Q)sh tests/lib/deps.sh test
	$(Q)$(MAKE) --no-print-directory all bench-bins >&2
	$(Q)python3 tests/bench/bench.py $(BENCH)

# Unit tests and goldens: the lines that they reach, of what needs no kernel.
coverage:
	$(Q)sh tests/lib/deps.sh test
	$(Q)sh tests/analysis/coverage.sh

lint:
	$(Q)python3 tests/lib/lint.py build

format:
	$(Q)clang-format -i $(CORE_SRC) $(REPORT_SRC) $(CAPTURE_SRC) $(CMD_SRC) $(UNIT_SRC) \
		$(wildcard src/*/*.h include/tokensnoop/*.h bpf/*.h bpf/*.c tests/*/*.h tests/*/*.c)

# --- to other machines -------------------------------------------------------------------------
install: all
	install -D -m 0755 $(B)/tokensnoop $(DESTDIR)$(PREFIX)/bin/tokensnoop
	install -D -m 0644 -t $(DESTDIR)$(PREFIX)/share/man/man1 docs/man/*.1
	install -D -m 0644 -t $(DESTDIR)$(PREFIX)/share/doc/tokensnoop docs/*.md
	install -D -m 0644 deploy/completion/tokensnoop.bash \
		$(DESTDIR)$(PREFIX)/share/bash-completion/completions/tokensnoop

# The sources of the last commit; the same bytes on each machine.
DIST := tokensnoop-$(VERSION)
dist:
	$(Q)mkdir -p build/dist
	$(Q)git archive --format=tar --prefix=$(DIST)/ HEAD | gzip -9n >build/dist/$(DIST).tar.gz
	@echo build/dist/$(DIST).tar.gz

# The Debian package of them. DEB_DIR: where it is built.
DEB_DIR ?= build/deb
deb: dist
	$(Q)sh tests/lib/deps.sh package
	$(Q)rm -rf $(DEB_DIR) && mkdir -p $(DEB_DIR)
	$(Q)tar -xzf build/dist/$(DIST).tar.gz -C $(DEB_DIR)
	$(Q)cp -r $(DEB_DIR)/$(DIST)/deploy/debian $(DEB_DIR)/$(DIST)/debian
	$(Q)cd $(DEB_DIR)/$(DIST) && dpkg-buildpackage -us -uc -b -j$(JOBS)
	@ls $(DEB_DIR)/*.deb

clean:
	rm -rf build/obj build/tests build/gen build/san build/fuzz build/*.a build/tokensnoop

-include $(shell find build/obj build/tests build/san build/fuzz -name '*.d' 2>/dev/null)
.PHONY: all unit-bins test-bins oom-bin bench-bins fuzz-bins fuzz demo check bench test coverage lint \
	format install static arm64 arm64-bins dist deb clean
.DELETE_ON_ERROR:
.SECONDARY:
