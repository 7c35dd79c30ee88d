// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Header blocks of one direction. Table size updates are read here, before nghttp2 sees them: it is
 * told no more than what is kept.
 */
#include "http2_hpack.h"

#include <errno.h>
#include <string.h>

#include "block.h"
#include "http2.h"

enum {
	TABLE_DEFAULT = 4096,
	ENTRY = 33, /* octets an entry named "?" counts for; the least that a real one can */
	FREE_RENEWALS = 8,
};

/* --- nghttp2's memory --- */

static void *lib_malloc(size_t size, void *mem)
{
	return tks_block_alloc(mem, size);
}

static void lib_free(void *ptr, void *mem)
{
	tks_block_free(mem, ptr);
}

static void *lib_calloc(size_t n, size_t size, void *mem)
{
	return tks_block_calloc(mem, n, size);
}

static void *lib_realloc(void *ptr, size_t size, void *mem)
{
	return tks_block_resize(mem, ptr, size);
}

/* --- fields --- */

static void keep(struct tks_http_head *h, char *out, size_t size, const nghttp2_nv *nv)
{
	size_t n = nv->valuelen;

	if (*out)
		return;
	if (n > size - 1) {
		n = size - 1;
		h->truncated = true;
	}
	memcpy(out, nv->value, n);
	out[n] = 0;
}

/* -1: not a number of len digits at most. */
static int64_t number(const uint8_t *p, size_t n, size_t max)
{
	int64_t v = 0;

	if (!n || n > max)
		return -1;
	for (size_t i = 0; i < n; i++) {
		if (p[i] < '0' || p[i] > '9')
			return -1;
		v = v * 10 + (p[i] - '0');
	}
	return v;
}

static bool named(const nghttp2_nv *nv, const char *name)
{
	return nv->namelen == strlen(name) && !memcmp(nv->name, name, nv->namelen);
}

static void set_status(struct tks_http_head *h, const nghttp2_nv *nv)
{
	int64_t status = number(nv->value, nv->valuelen, 3);

	if (!h->status && status >= 100)
		h->status = (uint16_t)status;
}

static void set_pseudo(struct tks_hpack *hp, struct tks_http_head *h, const nghttp2_nv *nv)
{
	if (h->side == TKS_RESPONSE) {
		if (named(nv, ":status"))
			set_status(h, nv);
	} else if (named(nv, ":method")) {
		keep(h, h->method, sizeof(h->method), nv);
		hp->is_connect = !strcmp(h->method, "CONNECT");
	} else if (named(nv, ":path")) {
		keep(h, h->target, sizeof(h->target), nv);
	}
}

static void field(struct tks_hpack *hp, const nghttp2_nv *nv)
{
	struct tks_http_head *h = hp->head;
	size_t len = nv->namelen + nv->valuelen;

	if (!h)
		return;
	/* A few octets can name a large entry many times. */
	if (len > TKS_H2_HEAD_MAX - hp->fields_len) {
		hp->fields_len = TKS_H2_HEAD_MAX;
		h->truncated = true;
		return;
	}
	hp->fields_len += (uint32_t)len;
	if (named(nv, "?")) {
		h->unknowable = true;
		return;
	}
	if (nv->namelen && nv->name[0] == ':') {
		set_pseudo(hp, h, nv);
	} else if (named(nv, "content-length")) {
		if (h->content_length < 0)
			h->content_length = number(nv->value, nv->valuelen, 18);
	} else {
		tks_http_field_set(h, (const char *)nv->name, nv->namelen, (const char *)nv->value,
				   nv->valuelen);
	}
}

/* last: of the block. */
static int inflate(struct tks_hpack *hp, const uint8_t *data, size_t len, bool last)
{
	for (;;) {
		nghttp2_nv nv;
		int flags = 0;
		ssize_t n = nghttp2_hd_inflate_hd2(hp->inflater, &nv, &flags, data, len, last);

		if (n == NGHTTP2_ERR_NOMEM)
			return -ENOMEM;
		if (n < 0)
			return -EBADMSG;
		data += n;
		len -= (size_t)n;
		if (flags & NGHTTP2_HD_INFLATE_EMIT)
			field(hp, &nv);
		else if (!len)
			break;
	}
	if (last)
		nghttp2_hd_inflate_end_headers(hp->inflater);
	return 0;
}

/* --- the inflater --- */

void tks_hpack_init(struct tks_hpack *hp, struct tks_mem *mem)
{
	memset(hp, 0, sizeof(*hp));
	hp->mem = mem;
	hp->nghttp2_mem = (nghttp2_mem){ mem, lib_malloc, lib_free, lib_calloc, lib_realloc };
	hp->table = TABLE_DEFAULT;
	hp->renewals = FREE_RENEWALS;
}

static void drop_inflater(struct tks_hpack *hp)
{
	if (hp->inflater)
		nghttp2_hd_inflate_del(hp->inflater);
	hp->inflater = NULL;
	hp->unread = 0;
}

void tks_hpack_free(struct tks_hpack *hp)
{
	drop_inflater(hp);
	tks_hpack_done(hp);
}

static void drop_block(struct tks_hpack *hp)
{
	hp->dropped = true;
	if (hp->head)
		hp->head->unknowable = true;
}

void tks_hpack_lose(struct tks_hpack *hp)
{
	drop_inflater(hp);
	hp->unknown = true;
	drop_block(hp);
}

/* The block can't be decoded. If the table was filled already, then perhaps not far enough. */
static void bad_block(struct tks_hpack *hp)
{
	if (hp->unknown)
		hp->table = TKS_HPACK_TABLE_MAX;
	tks_hpack_lose(hp);
}

/* A table size update as an octet stream (RFC 7541, section 6.3). */
static int tell_size(struct tks_hpack *hp, uint32_t size)
{
	uint8_t out[8] = { 0x20 };
	size_t n = 1;

	if (size < 31) {
		out[0] |= (uint8_t)size;
	} else {
		out[0] |= 31;
		for (size -= 31; size >= 128; size >>= 7)
			out[n++] = (uint8_t)(size | 128);
		out[n++] = (uint8_t)size;
	}
	return inflate(hp, out, n, false);
}

static unsigned int entries(const struct tks_hpack *hp)
{
	return hp->table / ENTRY;
}

/* Entries "?" without a value. The second and later have their name from the first, to save memory.
 */
static int fill(struct tks_hpack *hp)
{
	static const uint8_t first[] = { 0x40, 1, '?', 0 }, again[] = { 0x40 | 62, 0 };
	int err = inflate(hp, first, sizeof(first), false);

	for (unsigned int i = 1; !err && i < entries(hp); i++)
		err = inflate(hp, again, sizeof(again), false);
	return err ?: inflate(hp, again, 0, true);
}

/*
 * Makes the inflater if there is none. Filling a table takes time that a few octets of a bad block
 * can ask for again and again: then only when as many octets have passed as it gets entries.
 */
static int ready(struct tks_hpack *hp)
{
	struct tks_http_head *head = hp->head;
	int err = 0;

	if (hp->inflater)
		return 0;
	if (!hp->renewals && hp->unread < entries(hp)) {
		drop_block(hp);
		return 0;
	}
	if (hp->renewals)
		hp->renewals--;
	if (nghttp2_hd_inflate_new2(&hp->inflater, &hp->nghttp2_mem)) {
		hp->inflater = NULL;
		err = -ENOMEM;
	}
	hp->head = NULL;
	if (!err)
		nghttp2_hd_inflate_change_table_size(hp->inflater, TKS_HPACK_TABLE_MAX);
	if (!err && hp->unknown && hp->table != TABLE_DEFAULT)
		err = tell_size(hp, hp->table);
	if (!err && hp->unknown)
		err = fill(hp);
	hp->head = head;
	if (err)
		tks_hpack_lose(hp);
	return err;
}

/* --- blocks --- */

/* What the inflater says; a bad block is no error to those who asked. */
static int settle(struct tks_hpack *hp, int err)
{
	if (err == -EBADMSG)
		bad_block(hp);
	else if (err)
		tks_hpack_lose(hp);
	return err == -EBADMSG ? 0 : err;
}

int tks_hpack_begin(struct tks_hpack *hp, enum tks_side side)
{
	hp->is_connect = false;
	hp->at_start = true;
	hp->dropped = hp->over = false;
	hp->update_len = 0;
	hp->block_len = hp->fields_len = 0;
	hp->head = tks_mem_alloc(hp->mem, sizeof(*hp->head));
	if (!hp->head) {
		tks_hpack_lose(hp);
		return -ENOMEM;
	}
	hp->head->side = side;
	hp->head->major = 2;
	hp->head->content_length = -1;
	return ready(hp);
}

static bool update_octet(struct tks_hpack *hp, uint8_t octet)
{
	unsigned int shift = 7 * (hp->update_len - 1u);
	bool more;

	if (!hp->update_len) {
		hp->update = octet & 31;
		more = hp->update == 31;
	} else {
		hp->update += (uint32_t)(octet & 127) << shift;
		more = octet & 128;
	}
	hp->update_len++;
	return more;
}

/* Table size updates come before the first field (section 4.2). Returns the octets they took. */
static int read_updates(struct tks_hpack *hp, const uint8_t *data, size_t len, size_t *used)
{
	int err = 0;

	for (*used = 0; *used < len && !err; ++*used) {
		if (!hp->update_len && (data[*used] & 0xe0) != 0x20) {
			hp->at_start = false;
			return 0;
		}
		/* Four octets behind the first: sizes of 2^28 and more nobody has. */
		if (hp->update_len > 4)
			return -EBADMSG;
		if (update_octet(hp, data[*used]))
			continue;
		if (hp->update > TKS_HPACK_TABLE_MAX)
			hp->update = TKS_HPACK_TABLE_MAX;
		if (!hp->unknown || hp->update > hp->table)
			hp->table = hp->update > TABLE_DEFAULT ? hp->update : TABLE_DEFAULT;
		err = tell_size(hp, hp->update);
		hp->update_len = 0;
	}
	return err;
}

static int read_octets(struct tks_hpack *hp, const uint8_t *data, size_t len)
{
	size_t used = 0;
	int err = 0;

	if (hp->at_start)
		err = read_updates(hp, data, len, &used);
	if (!err && used < len)
		err = inflate(hp, data + used, len - used, false);
	return settle(hp, err);
}

int tks_hpack_feed(struct tks_hpack *hp, const uint8_t *data, size_t len)
{
	size_t n = TKS_H2_HEAD_MAX - hp->block_len;
	int err = 0;

	if (n > len)
		n = len;
	hp->block_len += (uint32_t)n;
	if (!hp->dropped)
		err = read_octets(hp, data, n);
	if (n == len || hp->over)
		return err;
	hp->over = true;
	if (hp->head)
		hp->head->truncated = true;
	if (!hp->dropped)
		tks_hpack_lose(hp);
	return err;
}

int tks_hpack_end(struct tks_hpack *hp)
{
	static const uint8_t nothing[1];
	int err = 0;

	if (!hp->dropped)
		err = settle(hp, hp->update_len ? -EBADMSG : inflate(hp, nothing, 0, true));
	if (!hp->inflater)
		hp->unread += hp->block_len;
	return err;
}

void tks_hpack_done(struct tks_hpack *hp)
{
	tks_mem_free(hp->mem, hp->head, sizeof(*hp->head));
	hp->head = NULL;
	hp->dropped = true;
}
