// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "elfsym.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include <gelf.h>

#if defined(__x86_64__)
#define MACHINE EM_X86_64
#elif defined(__aarch64__)
#define MACHINE EM_AARCH64
#endif

int tks_elfsym_offset(Elf *elf, uint64_t addr, uint64_t *offset)
{
	size_t n;

	if (elf_getphdrnum(elf, &n))
		return -EINVAL;
	for (size_t i = 0; i < n; i++) {
		GElf_Phdr ph;

		if (!gelf_getphdr(elf, (int)i, &ph) || ph.p_type != PT_LOAD ||
		    !(ph.p_flags & PF_X) || addr < ph.p_vaddr || addr - ph.p_vaddr >= ph.p_filesz)
			continue;
		*offset = addr - ph.p_vaddr + ph.p_offset;
		return 0;
	}
	return -ENOENT;
}

static bool is_function(const GElf_Sym *sym)
{
	int type = GELF_ST_TYPE(sym->st_info);

	return (type == STT_FUNC || type == STT_GNU_IFUNC) && sym->st_shndx != SHN_UNDEF &&
	       sym->st_value;
}

enum {
	SYMBOLS_MAX = 8 << 20, /* looked at of a file: what is hostile has no end */
	TABLE_MAX = 512 << 20, /* bytes of a symbol or string table */
};

/* A program or library of this machine whose header can be believed so far that reading it has an
 * end: section counts beyond 16 bits are for objects that are still to be linked. */
bool tks_elfsym_readable(int fd)
{
	Elf64_Ehdr h;

	return pread(fd, &h, sizeof(h), 0) == sizeof(h) && !memcmp(h.e_ident, ELFMAG, SELFMAG) &&
	       h.e_ident[EI_CLASS] == ELFCLASS64 && h.e_machine == MACHINE &&
	       (h.e_type == ET_EXEC || h.e_type == ET_DYN) && (h.e_shnum || !h.e_shoff);
}

struct search {
	const char *const *names;
	size_t n;
	tks_elfsym_fn fn;
	void *ctx;
	size_t left; /* symbols that may be looked at */
};

static void look_at(Elf *elf, const GElf_Sym *sym, const char *name, const struct search *s)
{
	uint64_t offset;

	for (size_t i = 0; i < s->n; i++) {
		if (strcmp(name, s->names[i]) != 0)
			continue;
		if (!tks_elfsym_offset(elf, sym->st_value, &offset))
			s->fn(s->ctx, i, offset);
		return;
	}
}

/* Names, ended with a NUL: elf_strptr would look for that anew with each. */
static Elf_Data *names_of(Elf *elf, size_t index)
{
	Elf_Scn *scn = elf_getscn(elf, index);
	Elf_Data *data;
	GElf_Shdr sh;

	if (!scn || !gelf_getshdr(scn, &sh) || sh.sh_type != SHT_STRTAB || sh.sh_size > TABLE_MAX)
		return NULL;
	data = elf_getdata(scn, NULL);
	if (!data || !data->d_buf || !data->d_size || ((char *)data->d_buf)[data->d_size - 1])
		return NULL;
	return data;
}

static void search_table(Elf *elf, Elf_Scn *scn, const GElf_Shdr *sh, struct search *s)
{
	Elf_Data *names = names_of(elf, sh->sh_link);
	Elf_Data *data = names && sh->sh_size <= TABLE_MAX ? elf_getdata(scn, NULL) : NULL;
	size_t n = data ? data->d_size / sizeof(Elf64_Sym) : 0;

	for (size_t i = 0; i < n && s->left; i++, s->left--) {
		GElf_Sym sym;

		if (gelf_getsym(data, (int)i, &sym) && is_function(&sym) &&
		    sym.st_name < names->d_size)
			look_at(elf, &sym, (const char *)names->d_buf + sym.st_name, s);
	}
}

int tks_elfsym_find(int fd, const char *const *names, size_t n, tks_elfsym_fn fn, void *ctx)
{
	struct search s = { names, n, fn, ctx, SYMBOLS_MAX };
	Elf_Scn *scn = NULL;
	GElf_Ehdr ehdr;
	GElf_Shdr sh;
	Elf *elf;
	int err = 0;

	if (!tks_elfsym_readable(fd))
		return -ENOEXEC;
	elf_version(EV_CURRENT);
	/* Not mapped: whoever may write to the file could cut it short under the reader. */
	elf = elf_begin(fd, ELF_C_READ, NULL);
	if (!elf)
		return -EINVAL;
	if (elf_kind(elf) != ELF_K_ELF || !gelf_getehdr(elf, &ehdr) || ehdr.e_machine != MACHINE) {
		err = -ENOEXEC;
		goto end;
	}
	while ((scn = elf_nextscn(elf, scn))) {
		if (gelf_getshdr(scn, &sh) &&
		    (sh.sh_type == SHT_DYNSYM || sh.sh_type == SHT_SYMTAB))
			search_table(elf, scn, &sh, &s);
	}
end:
	elf_end(elf);
	return err;
}
