// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * libdw would find all of this by itself, but unpacks .gnu_debugdata to whatever size it says, and
 * looks below this process's root only.
 *
 * The file whose symbols they are may be shared by processes that do not trust each other, and what
 * is below a container's root is written by whoever is root there. So a separate file is only
 * believed where it says that a function begins and the file itself says so, too: unwinding needs
 * .eh_frame, which stripping leaves. At a function's first instruction a probe does no harm,
 * whatever the function is called; within an instruction it would.
 */
#include "elfdebug.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <lzma.h>
#include <zlib.h>

#include "maps.h"

enum {
	PACKED_MAX = 32 << 20, /* bytes of .gnu_debugdata */
	UNPACKED_MAX = 64 << 20, /* and of what is within */
	XZ_MEMORY = 96 << 20, /* that unpacking may take: xz -9 wants 65 MiB */
	EH_FRAME_MAX = 128 << 20,
	SCAN_MAX = 512 << 20, /* looked through for what TLS says */
	LINKED_MAX = 1 << 30, /* of a file whose checksum is made */
	NOTES_MAX = 1 << 20,
	CHUNK = 64 << 10,
	ID_MAX = 64,
	ID_PRINTED_MAX = 2 * ID_MAX,
};

struct names {
	const char *const *names;
	size_t n;
	struct tks_elfsym *out;
	size_t max;
};

/* --- does it look like TLS? --- */

/* TLS 1.3 and before derive their keys from these words, whoever wrote the library. */
static bool has_words(const char *p, size_t n)
{
	static const char v13[] = "ap traffic", before[] = "master secret";

	return memmem(p, n, v13, sizeof(v13) - 1) || memmem(p, n, before, sizeof(before) - 1);
}

static bool range_has_words(int fd, uint64_t at, uint64_t size)
{
	enum { OVERLAP = 16 }; /* longer than each */
	char buf[OVERLAP + CHUNK];
	size_t kept = 0;

	while (size) {
		size_t want = size < CHUNK ? size : CHUNK;
		ssize_t n = pread(fd, buf + kept, want, (off_t)at);

		if (n <= 0)
			return false;
		if (has_words(buf, kept + (size_t)n))
			return true;
		at += (uint64_t)n;
		size -= (uint64_t)n;
		n += (ssize_t)kept;
		kept = n < OVERLAP ? (size_t)n : OVERLAP;
		memmove(buf, buf + n - kept, kept);
	}
	return false;
}

/* Constants are where nothing is written. */
static bool looks_like_tls(const struct tks_elfdebug *d)
{
	uint64_t left = SCAN_MAX;
	size_t n;

	if (elf_getphdrnum(d->elf, &n))
		return false;
	for (size_t i = 0; i < n && left; i++) {
		GElf_Phdr ph;

		if (!gelf_getphdr(d->elf, (int)i, &ph) || ph.p_type != PT_LOAD ||
		    (ph.p_flags & PF_W))
			continue;
		if (ph.p_filesz > left)
			ph.p_filesz = left;
		if (range_has_words(d->fd, ph.p_offset, ph.p_filesz))
			return true;
		left -= ph.p_filesz;
	}
	return false;
}

/* --- do functions begin there? --- */

/*
 * Marks those that a record of .eh_frame has. A record: its length, 0 or the way back to its common
 * part, then the function's beginning, as a distance from where that stands (other forms are
 * possible, and not made: what is read of them is no function's beginning).
 */
static void mark_begins(const Elf_Data *d, uint64_t addr, const struct tks_elfsym *syms, size_t n,
			bool *begins)
{
	const uint8_t *p = d->d_buf;

	for (size_t at = 0; d->d_size - at >= 12;) {
		uint32_t size, back;
		int32_t distance;
		uint64_t begin;

		memcpy(&size, p + at, 4);
		memcpy(&back, p + at + 4, 4);
		memcpy(&distance, p + at + 8, 4);
		begin = addr + at + 8 + (uint64_t)(int64_t)distance;
		for (size_t i = 0; back && size && i < n; i++)
			begins[i] |= syms[i].addr == begin;
		/* What is linked ends with an empty one, and other parts may follow. */
		if (size > d->d_size - at - 4)
			return;
		at += 4 + (size_t)size;
	}
}

static bool all_begin(Elf *elf, const struct tks_elfsym *syms, size_t n)
{
	GElf_Shdr sh;
	Elf_Data *d = tks_elfsym_bytes(tks_elfsym_section(elf, ".eh_frame", &sh), EH_FRAME_MAX);
	bool *begins = d ? calloc(n, sizeof(*begins)) : NULL;
	bool all = begins;

	if (!begins)
		return false;
	mark_begins(d, sh.sh_addr, syms, n, begins);
	for (size_t i = 0; i < n; i++)
		all &= begins[i];
	free(begins);
	return all;
}

static int find_in(Elf *symbols, const struct tks_elfdebug *d, const struct names *w)
{
	int n = tks_elfsym_find(symbols, d->elf, w->names, w->n, w->out, w->max);

	if (n > 0 && !all_begin(d->elf, w->out, (size_t)n))
		return -ESTALE;
	return n;
}

/* --- .gnu_debugdata --- */

static int grow(lzma_stream *xz, uint8_t **image)
{
	size_t have = xz->total_out, size = have ? 2 * have : 1 << 20;
	uint8_t *p;

	if (size > UNPACKED_MAX)
		return -EFBIG;
	p = realloc(*image, size);
	if (!p)
		return -ENOMEM;
	*image = p;
	xz->next_out = p + have;
	xz->avail_out = size - have;
	return 0;
}

static int xz_error(lzma_ret ret)
{
	if (ret == LZMA_MEMLIMIT_ERROR)
		return -EFBIG;
	return ret == LZMA_MEM_ERROR ? -ENOMEM : -EINVAL;
}

/* The image is the caller's to free, whatever is returned. */
static int unpack(const Elf_Data *packed, uint8_t **image, size_t *n)
{
	lzma_stream xz = LZMA_STREAM_INIT;
	lzma_ret ret = lzma_stream_decoder(&xz, XZ_MEMORY, 0);
	int err = ret == LZMA_OK ? 0 : -ENOMEM;

	xz.next_in = packed->d_buf;
	xz.avail_in = packed->d_size;
	while (!err && ret != LZMA_STREAM_END) {
		err = xz.avail_out ? 0 : grow(&xz, image);
		if (err)
			break;
		ret = lzma_code(&xz, LZMA_FINISH);
		if (ret != LZMA_OK && ret != LZMA_STREAM_END)
			err = xz_error(ret);
	}
	*n = xz.total_out;
	lzma_end(&xz);
	return err;
}

static int find_packed(const struct tks_elfdebug *d, Elf_Data *packed, const struct names *w)
{
	uint8_t *image = NULL;
	Elf *symbols = NULL;
	size_t n = 0;
	int err = unpack(packed, &image, &n);

	if (!err) {
		symbols = tks_elfsym_open_memory(image, n);
		err = symbols ? find_in(symbols, d, w) : -EINVAL;
	}
	elf_end(symbols);
	free(image);
	return err;
}

/* --- separate files --- */

struct build_id {
	uint8_t b[ID_MAX];
	size_t n; /* 0: none */
};

static bool id_in(Elf_Data *notes, struct build_id *id)
{
	size_t at = 0, name, desc;
	GElf_Nhdr h;

	while (at < notes->d_size && (at = gelf_getnote(notes, at, &h, &name, &desc))) {
		if (h.n_type != NT_GNU_BUILD_ID || h.n_namesz != sizeof(ELF_NOTE_GNU) ||
		    memcmp((char *)notes->d_buf + name, ELF_NOTE_GNU, sizeof(ELF_NOTE_GNU)) != 0)
			continue;
		/* The first byte is the folder's name. */
		if (h.n_descsz < 2 || h.n_descsz > ID_MAX)
			return false;
		memcpy(id->b, (char *)notes->d_buf + desc, h.n_descsz);
		id->n = h.n_descsz;
		return true;
	}
	return false;
}

static void read_id(Elf *elf, struct build_id *id)
{
	Elf_Scn *scn = NULL;
	size_t left = NOTES_MAX;
	GElf_Shdr sh;

	id->n = 0;
	while ((scn = elf_nextscn(elf, scn))) {
		Elf_Data *notes;

		if (!gelf_getshdr(scn, &sh) || sh.sh_type != SHT_NOTE || sh.sh_size > left)
			continue;
		left -= sh.sh_size;
		notes = elf_getdata(scn, NULL);
		if (notes && notes->d_buf && id_in(notes, id))
			return;
	}
}

/* What .gnu_debuglink says. */
struct link {
	const char *name; /* NULL: there is none, or it is broken */
	uint32_t crc;
};

static struct link read_link(Elf *elf)
{
	GElf_Shdr sh;
	Elf_Data *d = tks_elfsym_bytes(tks_elfsym_section(elf, ".gnu_debuglink", &sh), PATH_MAX);
	struct link l = { .name = d ? d->d_buf : NULL };
	size_t len = d ? strnlen(l.name, d->d_size) : 0, at = (len + 4) & ~3u;

	if (!len || d->d_size < at + 4 || memchr(l.name, '/', len))
		return (struct link){ .name = NULL };
	memcpy(&l.crc, l.name + at, 4);
	return l;
}

static int check_crc(int fd, uint32_t want)
{
	unsigned char buf[CHUNK];
	unsigned long crc = crc32(0, NULL, 0);
	struct stat st;
	off_t at = 0;
	ssize_t n;

	if (fstat(fd, &st) || st.st_size > LINKED_MAX)
		return -EFBIG;
	while (at < st.st_size && (n = pread(fd, buf, sizeof(buf), at)) > 0) {
		crc = crc32(crc, buf, (unsigned int)n);
		at += n;
	}
	return crc == want ? 0 : -ESTALE;
}

static int find_in_file(const struct tks_elfdebug *d, int fd, const struct build_id *id,
			const struct link *link, const struct names *w)
{
	Elf *symbols = tks_elfsym_open(fd);
	struct build_id other;
	int err;

	if (!symbols)
		return -EINVAL;
	read_id(symbols, &other);
	/* Without one the checksum alone tells. */
	if (id->n && (other.n != id->n || memcmp(other.b, id->b, id->n) != 0))
		err = -ESTALE;
	else
		err = link ? check_crc(fd, link->crc) : 0;
	err = err ?: find_in(symbols, d, w);
	elf_end(symbols);
	return err;
}

/* One path below each root, till one has it. */
static int try_path(const struct tks_elfdebug *d, const char *path, const struct build_id *id,
		    const struct link *link, const struct names *w)
{
	int found = 0;

	for (size_t i = 0; i < d->nroots && found <= 0; i++) {
		int fd = tks_open_below(d->roots[i], path), n;

		if (fd < 0)
			continue;
		n = looks_like_tls(d) ? find_in_file(d, fd, id, link, w) : 0;
		found = n ?: found;
		close(fd);
	}
	return found;
}

static int find_by_id(const struct tks_elfdebug *d, const struct build_id *id,
		      const struct names *w)
{
	char path[64 + ID_PRINTED_MAX];
	int at = snprintf(path, sizeof(path), "/usr/lib/debug/.build-id/%02x/", id->b[0]);

	for (size_t i = 1; i < id->n; i++)
		at += snprintf(path + at, sizeof(path) - (size_t)at, "%02x", id->b[i]);
	snprintf(path + at, sizeof(path) - (size_t)at, ".debug");
	return try_path(d, path, id, NULL, w);
}

static int find_by_link(const struct tks_elfdebug *d, const struct build_id *id,
			const struct link *link, const struct names *w)
{
	static const char *const places[][2] = { { "", "" },
						 { "", "/.debug" },
						 { "/usr/lib/debug", "" } };
	const char *slash = strrchr(d->path, '/');
	char path[PATH_MAX];
	int found = 0;

	if (!slash)
		return 0;
	for (size_t i = 0; i < 3 && found <= 0; i++) {
		int n = snprintf(path, sizeof(path), "%s%.*s%s/%s", places[i][0],
				 (int)(slash - d->path), d->path, places[i][1], link->name);

		if (n < (int)sizeof(path))
			found = try_path(d, path, id, link, w) ?: found;
	}
	return found;
}

int tks_elfdebug_find(const struct tks_elfdebug *d, const char *const *names, size_t n,
		      struct tks_elfsym *out, size_t max)
{
	const struct names w = { names, n, out, max };
	struct link link = read_link(d->elf);
	Elf_Data *packed;
	struct build_id id;
	GElf_Shdr sh;
	int found = 0;

	packed = tks_elfsym_bytes(tks_elfsym_section(d->elf, ".gnu_debugdata", &sh), PACKED_MAX);
	if (packed && looks_like_tls(d))
		found = find_packed(d, packed, &w);
	read_id(d->elf, &id);
	if (found <= 0 && id.n)
		found = find_by_id(d, &id, &w) ?: found;
	if (found <= 0 && link.name)
		found = find_by_link(d, &id, &link, &w) ?: found;
	return found;
}
