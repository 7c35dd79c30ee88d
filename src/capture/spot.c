// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "spot.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <capstone/capstone.h>

enum {
	PROLOGUE_MAX = 64, /* bytes in which the spot must be */
	CODE_MAX = 4096, /* bytes that are searched for jumps behind the entry */
	BELOW_MAX = 65536,
};

/* Since 5.0: arch/x86/kernel/uprobes.c, branch_setup_xol_ops() and push_setup_xol_ops(). Forms with
 * prefixes are left out where older kernels don't know them. */
static bool emulated(const cs_insn *insn, bool calls)
{
	const uint8_t *b = insn->bytes;

	switch (b[0]) {
	case 0x41: /* push r8 to r15 */
		return insn->size == 2 && b[1] >= 0x50 && b[1] <= 0x57;
	case 0x0f: /* a conditional jump */
		return insn->size == 6 && b[1] >= 0x80 && b[1] <= 0x8f;
	case 0xe8:
		return calls && insn->size == 5;
	case 0xe9:
		return insn->size == 5;
	case 0xeb:
		return insn->size == 2;
	case 0x90:
		return insn->size == 1;
	default:
		return (b[0] >= 0x50 && b[0] <= 0x57 && insn->size == 1) ||
		       (b[0] >= 0x70 && b[0] <= 0x7f && insn->size == 2);
	}
}

static bool is_argument_or_stack(uint16_t reg)
{
	switch (reg) {
	case X86_REG_RDI:
	case X86_REG_EDI:
	case X86_REG_DI:
	case X86_REG_DIL:
	case X86_REG_RSI:
	case X86_REG_ESI:
	case X86_REG_SI:
	case X86_REG_SIL:
	case X86_REG_RDX:
	case X86_REG_EDX:
	case X86_REG_DX:
	case X86_REG_DL:
	case X86_REG_DH:
	case X86_REG_RSP:
	case X86_REG_ESP:
	case X86_REG_SP:
	case X86_REG_SPL:
		return true;
	default:
		return false;
	}
}

/* The bytes that it makes room for on the stack; 0: it is no such instruction. */
static uint32_t room_made(const cs_insn *insn)
{
	const cs_x86 *x = &insn->detail->x86;

	if (insn->id != X86_INS_SUB || x->op_count != 2 || x->operands[0].type != X86_OP_REG ||
	    x->operands[0].reg != X86_REG_RSP || x->operands[1].type != X86_OP_IMM ||
	    x->operands[1].imm <= 0 || x->operands[1].imm > BELOW_MAX)
		return 0;
	return (uint32_t)x->operands[1].imm;
}

static bool leads_away(csh cs, const cs_insn *insn)
{
	static const uint8_t groups[] = { X86_GRP_JUMP, X86_GRP_CALL, X86_GRP_RET, X86_GRP_INT,
					  X86_GRP_IRET };

	for (size_t i = 0; i < sizeof(groups); i++) {
		if (cs_insn_group(cs, insn, groups[i]))
			return true;
	}
	return false;
}

/* Behind it the arguments are where they were, and it is left at its end. */
static bool harmless(csh cs, const cs_insn *insn)
{
	cs_regs read, written;
	uint8_t nread, nwritten;

	if (leads_away(cs, insn) || cs_regs_access(cs, insn, read, &nread, written, &nwritten))
		return false;
	for (uint8_t i = 0; i < nwritten; i++) {
		if (is_argument_or_stack(written[i]))
			return false;
	}
	return true;
}

/* The offset of the spot from the entry, 0 if there is none behind it. */
static size_t walk(csh cs, cs_insn *insn, const uint8_t *code, size_t n, bool calls,
		   uint32_t *below)
{
	uint64_t at = 0;

	*below = 0;
	while (cs_disasm_iter(cs, &code, &n, &at, insn) && insn->address < PROLOGUE_MAX) {
		uint32_t room = room_made(insn);

		if (emulated(insn, calls))
			return insn->address;
		if (!room && !harmless(cs, insn))
			return 0;
		*below += room;
	}
	return 0;
}

/* A jump back to behind the entry: the spot could be passed twice. */
static bool jumped_to(csh cs, cs_insn *insn, const uint8_t *code, size_t n, size_t spot)
{
	uint64_t at = 0;

	while (cs_disasm_iter(cs, &code, &n, &at, insn)) {
		const cs_x86 *x = &insn->detail->x86;

		if (cs_insn_group(cs, insn, X86_GRP_JUMP) && x->op_count == 1 &&
		    x->operands[0].type == X86_OP_IMM && x->operands[0].imm > 0 &&
		    (uint64_t)x->operands[0].imm <= spot)
			return true;
	}
	return false;
}

struct tks_spot tks_spot_find(int fd, uint64_t entry, bool calls)
{
	struct tks_spot spot = { .offset = entry };
	uint8_t code[CODE_MAX];
	ssize_t n = pread(fd, code, sizeof(code), (off_t)entry);
	cs_insn *insn;
	uint32_t below;
	size_t at;
	csh cs;

	if (n <= 0 || cs_open(CS_ARCH_X86, CS_MODE_64, &cs))
		return spot;
	insn = cs_option(cs, CS_OPT_DETAIL, CS_OPT_ON) ? NULL : cs_malloc(cs);
	if (!insn)
		goto close_cs;
	at = walk(cs, insn, code, (size_t)n, calls, &below);
	if (at && !jumped_to(cs, insn, code, (size_t)n, at)) {
		spot.offset = entry + at;
		spot.below = below;
	}
	cs_free(insn, 1);
close_cs:
	cs_close(&cs);
	return spot;
}

bool tks_spot_calls_ok(void)
{
	FILE *f = fopen("/proc/cpuinfo", "re");
	char line[8192];
	bool ok = false;

	if (!f)
		return false;
	while (fgets(line, sizeof(line), f)) {
		if (!strncmp(line, "flags", 5)) {
			ok = strchr(line, '\n') && !strstr(line, " user_shstk");
			break;
		}
	}
	fclose(f);
	return ok;
}

#else /* elsewhere stepping over an instruction is no second trap worth avoiding */

struct tks_spot tks_spot_find(int fd, uint64_t entry, bool calls)
{
	(void)fd;
	(void)calls;
	return (struct tks_spot){ .offset = entry };
}

bool tks_spot_calls_ok(void)
{
	return false;
}
#endif
