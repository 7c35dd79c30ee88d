// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The table begins with a magic number of its form, then counts and offsets of its parts:
 *
 *   1.16, 1.17   nfunc nfiles             funcnames cu files pc funcs
 *   1.18 on      nfunc nfiles text_start  funcnames cu files pc funcs
 *
 * as words of the machine's size. The part funcs holds pairs (where the function begins, where its
 * record is), from 1.18 on as 32-bit distances from text_start. A record begins with the function's
 * place again and the place of its name.
 *
 * Returns are found with a disassembler, as a byte that is a return may be a part of another
 * instruction. They are where a probe may take a result: Go moves and copies its stacks, so the
 * return address must not be touched.
 */
#include "gofunc.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include <capstone/capstone.h>

#include "elfsym.h"

enum { MAGIC_116 = 0xfa, MAGIC_118 = 0xf0, MAGIC_120 = 0xf1, WORDS = 8, FUNC_MAX = 64 * 1024 };

enum {
	FUNCS_MAX = 4 << 20,
	TABLE_MAX = 128 << 20, /* bytes of a section that is read */
};

struct gotab {
	int fd;
	Elf *elf;
	const uint8_t *p;
	size_t size;
	bool pairs32; /* 1.18 on */
	uint64_t nfunc, text, names, funcs;
};

static bool in(const struct gotab *t, uint64_t at, uint64_t n)
{
	return at <= t->size && n <= t->size - at;
}

static uint64_t word(const struct gotab *t, uint64_t at)
{
	uint64_t v = 0;

	if (in(t, at, sizeof(v)))
		memcpy(&v, t->p + at, sizeof(v));
	return v;
}

static uint32_t word32(const struct gotab *t, uint64_t at)
{
	uint32_t v = 0;

	if (in(t, at, sizeof(v)))
		memcpy(&v, t->p + at, sizeof(v));
	return v;
}

/* --- the table --- */

/*
 * Since 1.26 the header leaves text_start empty. Where C code comes first in the text it is not the
 * section's beginning: the module's data (a section of its own since then) says where the first
 * function is.
 */
static void find_text(struct gotab *t)
{
	enum { AT_MINPC = 8 + 6 * 24 + 8 }; /* struct moduledata, runtime/symtab.go */
	GElf_Shdr sh;
	Elf_Data *d = tks_elfsym_bytes(tks_elfsym_section(t->elf, ".go.module", &sh), TABLE_MAX);
	uint64_t minpc;

	if (!d || d->d_size < AT_MINPC + sizeof(minpc))
		return;
	memcpy(&minpc, (const char *)d->d_buf + AT_MINPC, sizeof(minpc));
	if (minpc)
		t->text = minpc - word32(t, t->funcs);
}

static int read_header(struct gotab *t)
{
	static const uint8_t common[] = { 0xff, 0xff, 0xff };
	uint64_t text = 0;
	unsigned int n;

	if (!in(t, 0, 8 + WORDS * 8) || memcmp(t->p + 1, common, sizeof(common)) != 0 || t->p[4] ||
	    t->p[5])
		return -EINVAL;
	t->pairs32 = t->p[0] == MAGIC_118 || t->p[0] == MAGIC_120;
	if ((!t->pairs32 && t->p[0] != MAGIC_116) || t->p[7] != 8)
		return -EOPNOTSUPP;
	t->nfunc = word(t, 8);
	n = 2;
	if (t->pairs32)
		text = word(t, 8 + 8 * n++);
	t->names = word(t, 8 + 8 * n);
	t->funcs = word(t, 8 + 8 * (n + 4));
	if (!in(t, t->names, 1) || !in(t, t->funcs, 1) || t->nfunc >= t->size ||
	    t->nfunc > FUNCS_MAX)
		return -EINVAL;
	if (text)
		t->text = text;
	else if (t->pairs32)
		find_text(t);
	return 0;
}

/* Where the i-th function begins; that of the one behind the last is where it ends. */
static uint64_t entry_of(const struct gotab *t, uint64_t i)
{
	if (t->pairs32)
		return t->text + word32(t, t->funcs + 8 * i);
	return word(t, t->funcs + 16 * i);
}

static const char *name_of(const struct gotab *t, uint64_t i, size_t *max)
{
	uint64_t at, name;

	if (t->pairs32) {
		at = t->funcs + word32(t, t->funcs + 8 * i + 4);
		name = t->names + word32(t, at + 4);
	} else {
		at = t->funcs + word(t, t->funcs + 16 * i + 8);
		name = t->names + word32(t, at + 8);
	}
	if (!in(t, name, 1))
		return "";
	*max = t->size - name;
	return (const char *)t->p + name;
}

/* --- a function --- */

/*
 * A function begins with a comparison of the stack pointer with the goroutine's bound, which the
 * register ABI (1.17) keeps at 16(g), and a jump to where the stack is grown and the function begun
 * again. Text as the disassembler writes it.
 */
#if defined(__x86_64__)
static const cs_arch GO_ARCH = CS_ARCH_X86;
static const cs_mode GO_MODE = CS_MODE_64;
static const unsigned int GO_RETURN = X86_INS_RET;
static const char GO_COMPARE[] = "cmp", GO_BOUND[] = "[r14 + 0x10]", GO_GROW[] = "jbe";
#elif defined(__aarch64__)
/* The bound was loaded to x16 before. */
static const cs_arch GO_ARCH = CS_ARCH_ARM64;
static const cs_mode GO_MODE = CS_MODE_ARM;
static const unsigned int GO_RETURN = ARM64_INS_RET;
static const char GO_COMPARE[] = "cmp", GO_BOUND[] = "x16", GO_GROW[] = "b.ls";
#endif

static void instruction(struct tks_gofunc *f, const cs_insn *insn, bool *compared)
{
	if (!strcmp(insn->mnemonic, GO_COMPARE) && strstr(insn->op_str, GO_BOUND))
		*compared = true;
	else if (!strcmp(insn->mnemonic, GO_GROW) && *compared && !f->entry)
		f->entry = insn->address + insn->size;
	else if (insn->id == GO_RETURN && f->nreturns <= TKS_GO_RETURNS_MAX)
		f->returns[f->nreturns++ % TKS_GO_RETURNS_MAX] = insn->address;
}

static int disassemble(const uint8_t *code, size_t n, uint64_t offset, struct tks_gofunc *f)
{
	bool compared = false;
	uint64_t at = offset;
	cs_insn *insn;
	csh cs;
	int err = 0;

	if (cs_open(GO_ARCH, GO_MODE, &cs))
		return -ENOMEM;
	/* Where all instructions are of one length, what is none (zeros behind the function) hides
	 * none. */
	if (GO_ARCH == CS_ARCH_ARM64)
		cs_option(cs, CS_OPT_SKIPDATA, CS_OPT_ON);
	insn = cs_malloc(cs);
	if (!insn) {
		err = -ENOMEM;
		goto close_cs;
	}
	while (cs_disasm_iter(cs, &code, &n, &at, insn))
		instruction(f, insn, &compared);
	/* Returns behind what was not understood would not be seen. */
	if (n || !f->entry || f->nreturns > TKS_GO_RETURNS_MAX)
		err = -EOPNOTSUPP;
	cs_free(insn, 1);
close_cs:
	cs_close(&cs);
	return err;
}

static int take(const struct gotab *t, uint64_t i, struct tks_gofunc *f)
{
	uint64_t begin = entry_of(t, i), end = entry_of(t, i + 1), offset;
	uint8_t code[FUNC_MAX];

	if (tks_elfsym_offset(t->elf, begin, &offset) || end <= begin || end - begin > FUNC_MAX ||
	    pread(t->fd, code, end - begin, (off_t)offset) != (ssize_t)(end - begin))
		return -EINVAL;
	return disassemble(code, end - begin, offset, f);
}

static int search(const struct gotab *t, const char *const *names, size_t n, struct tks_gofunc *out)
{
	int err = 0;

	for (uint64_t i = 0; i < t->nfunc && !err; i++) {
		size_t max = 0;
		const char *name = name_of(t, i, &max);

		for (size_t k = 0; k < n && !err; k++) {
			size_t len = strlen(names[k]) + 1;

			if (!out[k].entry && len <= max && !memcmp(name, names[k], len))
				err = take(t, i, &out[k]);
		}
	}
	return err;
}

int tks_gofunc_find(Elf *elf, int fd, const char *const *names, size_t n, struct tks_gofunc *out)
{
	struct gotab t = { .fd = fd, .elf = elf };
	Elf_Scn *scn;
	Elf_Data *d;
	GElf_Shdr sh;

	memset(out, 0, n * sizeof(*out));
	scn = tks_elfsym_section(elf, ".gopclntab", &sh)
		      ?: tks_elfsym_section(elf, ".data.rel.ro.gopclntab", &sh);
	d = tks_elfsym_bytes(scn, TABLE_MAX);
	/* Where the table does not say where the text begins, it is the section. */
	if (!d || !tks_elfsym_section(elf, ".text", &sh))
		return -ENOEXEC;
	t.text = sh.sh_addr;
	t.p = d->d_buf;
	t.size = d->d_size;
	return read_header(&t) ?: search(&t, names, n, out);
}
