// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "elfsym.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include <gelf.h>

#if defined(__x86_64__)
#define MACHINE EM_X86_64
#elif defined(__aarch64__)
#define MACHINE EM_AARCH64
#endif

/* The place in the file of what is loaded at addr. */
static int file_offset(Elf *elf, uint64_t addr, uint64_t *offset)
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

struct search {
	const char *const *names;
	size_t n;
	tks_elfsym_fn fn;
	void *ctx;
};

static void look_at(Elf *elf, const GElf_Sym *sym, const char *name, const struct search *s)
{
	uint64_t offset;

	for (size_t i = 0; i < s->n; i++) {
		if (strcmp(name, s->names[i]) != 0)
			continue;
		if (!file_offset(elf, sym->st_value, &offset))
			s->fn(s->ctx, i, offset);
		return;
	}
}

static void search_table(Elf *elf, Elf_Scn *scn, const GElf_Shdr *sh, const struct search *s)
{
	Elf_Data *data = elf_getdata(scn, NULL);
	size_t n = data && sh->sh_entsize ? data->d_size / sh->sh_entsize : 0;

	for (size_t i = 0; i < n; i++) {
		const char *name;
		GElf_Sym sym;

		if (!gelf_getsym(data, (int)i, &sym) || !is_function(&sym))
			continue;
		name = elf_strptr(elf, sh->sh_link, sym.st_name);
		if (name)
			look_at(elf, &sym, name, s);
	}
}

int tks_elfsym_find(int fd, const char *const *names, size_t n, tks_elfsym_fn fn, void *ctx)
{
	const struct search s = { names, n, fn, ctx };
	Elf_Scn *scn = NULL;
	GElf_Ehdr ehdr;
	GElf_Shdr sh;
	Elf *elf;
	int err = 0;

	elf_version(EV_CURRENT);
	elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
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
