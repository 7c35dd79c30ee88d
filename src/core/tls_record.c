// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tls_record.h"

#include <string.h>

enum { PAYLOAD_MAX = TKS_TLS_PLAIN_MAX + 2048 }; /* RFC 5246, 6.2.3; TLS 1.3 allows less */

static uint32_t payload_len(const uint8_t *header)
{
	return (uint32_t)header[3] << 8 | header[4];
}

/* As far as a header of len bytes goes, which are at least one. */
static bool header_begins(const uint8_t *h, size_t len)
{
	return h[0] >= TKS_TLS_CHANGE_CIPHER && h[0] <= TKS_TLS_DATA && (len < 2 || h[1] == 3) &&
	       (len < 3 || h[2] <= 4);
}

static bool header_valid(const uint8_t *h)
{
	return header_begins(h, TKS_TLS_HEADER) && payload_len(h) && payload_len(h) <= PAYLOAD_MAX;
}

bool tks_tls_looks_like(const uint8_t *data, size_t len)
{
	return len >= 3 && header_begins(data, len);
}

bool tks_tls_begins(const uint8_t *data, size_t len)
{
	bool chained = false;

	while (len >= TKS_TLS_HEADER) {
		size_t whole = TKS_TLS_HEADER + payload_len(data);

		if (!header_valid(data))
			return false;
		if (whole >= len)
			return true;
		data += whole;
		len -= whole;
		chained = true;
	}
	/* One or two bytes alone say nothing. */
	return len && (chained || len >= 3) && header_begins(data, len);
}

static void finish(struct tks_tls_framer *f, tks_tls_record_fn fn, void *ctx)
{
	f->in = false;
	f->nheader = 0;
	fn(ctx, &f->cur);
}

static void take_header(struct tks_tls_framer *f, uint8_t byte, uint64_t off)
{
	struct tks_tls_record *r = &f->cur;

	if (!f->nheader)
		*r = (struct tks_tls_record){ .off = off };
	r->head[f->nheader++] = byte;
	r->nhead = f->nheader;
	if (f->nheader < TKS_TLS_HEADER)
		return;
	if (!header_valid(r->head)) {
		f->seeking = true;
		f->nheader = 0;
		return;
	}
	r->type = r->head[0];
	r->len = payload_len(r->head);
	r->end = r->off + TKS_TLS_HEADER + r->len;
	f->left = r->len;
	f->in = true;
}

static size_t take_body(struct tks_tls_framer *f, const uint8_t *data, size_t len, uint64_t off)
{
	struct tks_tls_record *r = &f->cur;
	size_t n = len < f->left ? len : (size_t)f->left, keep = 0;

	if (off == r->off + r->nhead) {
		keep = TKS_TLS_KEPT - (size_t)r->nhead;
		keep = keep < n ? keep : n;
		memcpy(r->head + r->nhead, data, keep);
		r->nhead = (uint8_t)(r->nhead + keep);
	}
	f->left -= n;
	return n;
}

void tks_tls_framer_feed(struct tks_tls_framer *f, const struct tks_slice *s, tks_tls_record_fn fn,
			 void *ctx)
{
	if (f->seeking && !tks_tls_begins(s->data, s->len))
		return;
	f->seeking = false;
	for (size_t i = 0; i < s->len && !f->seeking;) {
		if (!f->in) {
			take_header(f, s->data[i], s->off + i);
			i++;
			continue;
		}
		i += take_body(f, s->data + i, s->len - i, s->off + i);
		if (!f->left)
			finish(f, fn, ctx);
	}
}

void tks_tls_framer_gap(struct tks_tls_framer *f, uint64_t off, uint64_t len, tks_tls_record_fn fn,
			void *ctx)
{
	(void)off;
	if (f->in && len <= f->left) {
		f->left -= len;
		if (!f->left)
			finish(f, fn, ctx);
		return;
	}
	f->in = false;
	f->nheader = 0;
	f->seeking = true;
}
