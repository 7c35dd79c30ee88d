// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "elfsym.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#if defined(__x86_64__)
#define MACHINE EM_X86_64
#elif defined(__aarch64__)
#define MACHINE EM_AARCH64
#endif

enum {
	SYMBOLS_MAX = 8 << 20, /* looked at of a file: what is hostile has no end */
	TABLES_MAX = 256 << 20, /* bytes of all symbol and string tables of a file */
	SECTION_NAMES_MAX = 1 << 20, /* bytes */
};

/* --- the file --- */

/*
 * A program or library of this machine whose header can be believed so far that reading it has an
 * end: counts of sections and segments beyond 16 bits are for objects that are still to be linked
 * and for core files.
 */
static bool believable(const Elf64_Ehdr *h)
{
	return !memcmp(h->e_ident, ELFMAG, SELFMAG) && h->e_ident[EI_CLASS] == ELFCLASS64 &&
	       h->e_ident[EI_DATA] == ELFDATA2LSB && h->e_machine == MACHINE &&
	       (h->e_type == ET_EXEC || h->e_type == ET_DYN) && (h->e_shnum || !h->e_shoff) &&
	       h->e_phnum != PN_XNUM;
}

Elf *tks_elfsym_open(int fd)
{
	Elf64_Ehdr h;

	if (pread(fd, &h, sizeof(h), 0) != sizeof(h) || !believable(&h))
		return NULL;
	elf_version(EV_CURRENT);
	/* Not mapped: whoever may write to the file could cut it short under the reader. */
	return elf_begin(fd, ELF_C_READ, NULL);
}

Elf *tks_elfsym_open_memory(void *image, size_t n)
{
	Elf64_Ehdr h;

	if (n < sizeof(h))
		return NULL;
	memcpy(&h, image, sizeof(h));
	if (!believable(&h))
		return NULL;
	elf_version(EV_CURRENT);
	return elf_memory(image, n);
}

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

/* --- sections --- */

/* Names, ended with a NUL: elf_strptr would look for that anew with each, and read any size. */
static Elf_Data *names_of(Elf *elf, size_t index, size_t max)
{
	Elf_Scn *scn = elf_getscn(elf, index);
	Elf_Data *data;
	GElf_Shdr sh;

	if (!scn || !gelf_getshdr(scn, &sh) || sh.sh_type != SHT_STRTAB || sh.sh_size > max)
		return NULL;
	data = elf_getdata(scn, NULL);
	if (!data || !data->d_buf || !data->d_size || ((char *)data->d_buf)[data->d_size - 1])
		return NULL;
	return data;
}

Elf_Scn *tks_elfsym_section(Elf *elf, const char *name, GElf_Shdr *sh)
{
	Elf_Data *names;
	Elf_Scn *scn = NULL;
	size_t index;

	if (elf_getshdrstrndx(elf, &index))
		return NULL;
	names = names_of(elf, index, SECTION_NAMES_MAX);
	while (names && (scn = elf_nextscn(elf, scn))) {
		if (gelf_getshdr(scn, sh) && sh->sh_type != SHT_NOBITS &&
		    sh->sh_name < names->d_size &&
		    !strcmp((const char *)names->d_buf + sh->sh_name, name))
			return scn;
	}
	return NULL;
}

Elf_Data *tks_elfsym_bytes(Elf_Scn *scn, size_t max)
{
	GElf_Shdr sh;
	Elf_Data *data;

	if (!scn || !gelf_getshdr(scn, &sh) || sh.sh_type == SHT_NOBITS || sh.sh_size > max)
		return NULL;
	data = elf_rawdata(scn, NULL);
	return data && data->d_buf ? data : NULL;
}

/* --- symbols --- */

struct search {
	Elf *loaded;
	const char *const *names;
	size_t n;
	struct tks_elfsym *out;
	size_t max, found;
	size_t symbols_left, bytes_left; /* that may be looked at */
	int err;
};

/* Not what another file defines (PLT stubs and copies of its address), and no absolute values. */
static bool is_function(const GElf_Sym *sym)
{
	int type = GELF_ST_TYPE(sym->st_info);

	return (type == STT_FUNC || type == STT_GNU_IFUNC) && sym->st_shndx != SHN_UNDEF &&
	       sym->st_shndx != SHN_ABS && sym->st_shndx != SHN_COMMON && sym->st_value;
}

/* The full table has versions behind the names ("f@V", "f@@V"). */
static bool is_named(const char *symbol, const char *name)
{
	size_t len = strlen(name);

	return !strncmp(symbol, name, len) && (!symbol[len] || symbol[len] == '@');
}

static void add(struct search *s, const struct tks_elfsym *sym)
{
	for (size_t i = 0; i < s->found; i++) {
		if (s->out[i].name == sym->name && s->out[i].offset == sym->offset)
			return;
	}
	if (s->found == s->max)
		s->err = -E2BIG;
	else
		s->out[s->found++] = *sym;
}

static void look_at(struct search *s, const GElf_Sym *sym, const char *name)
{
	struct tks_elfsym f = { .addr = sym->st_value,
				.indirect = GELF_ST_TYPE(sym->st_info) == STT_GNU_IFUNC };

	for (f.name = 0; f.name < s->n; f.name++) {
		if (is_named(name, s->names[f.name]) &&
		    !tks_elfsym_offset(s->loaded, f.addr, &f.offset))
			add(s, &f);
	}
}

static void search_table(Elf *symbols, Elf_Scn *scn, const GElf_Shdr *sh, struct search *s)
{
	Elf_Data *names = names_of(symbols, sh->sh_link, s->bytes_left), *data;
	size_t n;

	if (!names)
		return;
	s->bytes_left -= names->d_size;
	if (sh->sh_size > s->bytes_left)
		return;
	s->bytes_left -= sh->sh_size;
	data = elf_getdata(scn, NULL);
	n = data ? data->d_size / sizeof(Elf64_Sym) : 0;
	for (size_t i = 0; i < n && s->symbols_left && !s->err; i++, s->symbols_left--) {
		GElf_Sym sym;

		if (gelf_getsym(data, (int)i, &sym) && is_function(&sym) &&
		    sym.st_name < names->d_size)
			look_at(s, &sym, (const char *)names->d_buf + sym.st_name);
	}
}

int tks_elfsym_find(Elf *symbols, Elf *loaded, const char *const *names, size_t n,
		    struct tks_elfsym *out, size_t max)
{
	struct search s = { .loaded = loaded,
			    .names = names,
			    .n = n,
			    .out = out,
			    .max = max,
			    .symbols_left = SYMBOLS_MAX,
			    .bytes_left = TABLES_MAX };
	Elf_Scn *scn = NULL;
	GElf_Shdr sh;

	while (!s.err && (scn = elf_nextscn(symbols, scn))) {
		if (gelf_getshdr(scn, &sh) &&
		    (sh.sh_type == SHT_DYNSYM || sh.sh_type == SHT_SYMTAB))
			search_table(symbols, scn, &sh, &s);
	}
	return s.err ?: (int)s.found;
}
