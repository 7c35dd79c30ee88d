# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# make            build/tokensnoop
# make demo       install what it needs, trace a built-in server, print the report
# make check      install what it needs, run every test
#
# V=1 shows commands; SAN=address,undefined builds with sanitizers into build-san/.

VERSION := 0.1.0
CC ?= gcc
CLANG ?= clang
LLVM_STRIP ?= llvm-strip
BPFTOOL ?= bpftool
PREFIX ?= /usr/local
ARCH := $(shell uname -m | sed 's/aarch64/arm64/;s/x86_64/x86/')
VMLINUX_DIR := vmlinux/$(shell uname -m)

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
HARDEN := -fstack-protector-strong -D_FORTIFY_SOURCE=2 -fPIE
OPT ?= -O2 -g
LLHTTP_SRC := /usr/share/llhttp
LLHTTP_INC := /usr/share/include/llhttp
CPPFLAGS += -D_GNU_SOURCE -DTKS_VERSION='"$(VERSION)"' -Iinclude -Isrc/core -Isrc/report -isystem $(LLHTTP_INC)
CFLAGS += -std=gnu11 $(OPT) $(WARN) $(if $(SAN),,$(HARDEN)) $(SANFLAGS)
LDFLAGS += $(if $(SAN),,-pie -Wl,-z,relro,-z,now) $(SANFLAGS)

CORE_SRC := $(wildcard src/core/*.c)
REPORT_SRC := $(wildcard src/report/*.c)
CAPTURE_SRC := $(wildcard src/capture/*.c)
CMD_SRC := $(wildcard src/cmd/*.c)
UNIT_SRC := $(wildcard tests/unit/test_*.c)
UNIT_BIN := $(UNIT_SRC:tests/unit/%.c=$(B)/tests/%)
obj = $(patsubst %.c,$(B)/obj/%.o,$(1))
LLHTTP_OBJ := $(B)/obj/llhttp/llhttp.o $(B)/obj/llhttp/api.o $(B)/obj/llhttp/http.o

all: $(B)/tokensnoop

# --- libraries ---------------------------------------------------------------------------------
$(B)/libtkscore.a: $(call obj,$(CORE_SRC)) $(LLHTTP_OBJ)
$(B)/libtksreport.a: $(call obj,$(REPORT_SRC))
$(B)/libtkscapture.a: $(call obj,$(CAPTURE_SRC))
$(B)/%.a:
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcs $@ $^

$(B)/obj/%.o: %.c
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@

$(B)/obj/llhttp/%.o: $(LLHTTP_SRC)/%.c
	$(call say,CC,$(<F))
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) -O2 -g -fPIE $(SANFLAGS) -w -I$(LLHTTP_INC) -c $< -o $@

# --- BPF ---------------------------------------------------------------------------------------
BPF_SRC := bpf/tokensnoop.bpf.c
SKEL := $(B)/gen/tokensnoop.skel.h
$(B)/gen/tokensnoop.bpf.o: $(BPF_SRC) $(wildcard bpf/*.h bpf/*.bpf.c) include/tokensnoop/record.h
	$(call say,BPF,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CLANG) -O2 -g -target bpf -D__TARGET_ARCH_$(ARCH) -Wall -Werror -Wno-unused-function \
		-I$(VMLINUX_DIR) -Iinclude -Ibpf -c $< -o $@.tmp
	$(Q)$(LLVM_STRIP) -g $@.tmp && mv $@.tmp $@
$(SKEL): $(B)/gen/tokensnoop.bpf.o
	$(call say,SKEL,$@)
	$(Q)$(BPFTOOL) gen skeleton $< name tokensnoop_bpf > $@.tmp && mv $@.tmp $@
$(call obj,$(CAPTURE_SRC)): $(SKEL)
$(call obj,$(CAPTURE_SRC)) $(call obj,$(CMD_SRC)): CPPFLAGS += -I$(B)/gen -Isrc/capture

# --- the program -------------------------------------------------------------------------------
LIBS := -lbpf -lelf -lz -lpcap -lm
$(B)/tokensnoop: $(call obj,$(CMD_SRC)) $(B)/libtkscapture.a $(B)/libtksreport.a $(B)/libtkscore.a
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS)

# --- tests -------------------------------------------------------------------------------------
$(B)/tests/test_%: tests/unit/test_%.c $(B)/libtksreport.a $(B)/libtkscore.a
	$(call say,TEST,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) -Itests/unit -Isrc/cmd $(CFLAGS) -Wno-missing-prototypes -MMD -MP $(LDFLAGS) -o $@ $< \
		$(wildcard tests/unit/lib_*.c) $(B)/libtksreport.a $(B)/libtkscore.a -lcmocka -lpcap -lm

unit: $(UNIT_BIN)
	$(Q)set -e; for t in $(UNIT_BIN); do echo "== $$t"; $$t; done

clean:
	rm -rf build/obj build/tests build/gen build/san build/fuzz build/*.a build/tokensnoop

-include $(shell find $(B)/obj $(B)/tests -name '*.d' 2>/dev/null)
.PHONY: all unit clean
.DELETE_ON_ERROR:
