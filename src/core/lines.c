// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "lines.h"

#include <string.h>

void tks_lines_init(struct tks_lines *l, const struct tks_lines_ops *ops, void *ctx)
{
	*l = (struct tks_lines){ .ops = ops, .ctx = ctx };
}

static void end_line(struct tks_lines *l, uint64_t last_off)
{
	if (l->begun)
		l->ops->line(l->ctx, l->first_off, last_off);
	l->begun = false;
}

static void part(struct tks_lines *l, struct tks_slice s)
{
	while (!l->begun && s.len && strchr(" \t\r", *s.data)) {
		s.data++;
		s.off++;
		s.len--;
	}
	if (!s.len)
		return;
	if (!l->begun)
		l->first_off = s.off;
	l->begun = true;
	l->last_off = s.off + s.len - 1;
	l->ops->data(l->ctx, &s);
}

void tks_lines_feed(struct tks_lines *l, const struct tks_slice *in)
{
	struct tks_slice s = *in;

	if (s.len && l->maybe) {
		l->maybe = false;
		l->resync = *s.data != '{';
	}
	while (s.len) {
		const uint8_t *lf = memchr(s.data, '\n', s.len);
		size_t n = lf ? (size_t)(lf - s.data) : s.len;

		if (n && !l->resync)
			part(l, (struct tks_slice){ s.data, n, s.off });
		if (!lf)
			return;
		if (!l->resync)
			end_line(l, s.off + n);
		l->resync = false;
		s.data += n + 1;
		s.off += n + 1;
		s.len -= n + 1;
	}
}

void tks_lines_gap(struct tks_lines *l)
{
	if (l->begun)
		l->ops->reset(l->ctx);
	l->begun = false;
	l->resync = false;
	l->maybe = true;
}

void tks_lines_end(struct tks_lines *l)
{
	if (!l->resync)
		end_line(l, l->last_off);
}
