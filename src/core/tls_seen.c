// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tls_int.h"

#include <errno.h>
#include <string.h>

enum {
	RECORDS_MAX = 1024, /* records of a direction that wait for their plaintext */
};

struct tks_tls_seen *tks_tls_nth(const struct tks_tls_ring *r, uint32_t i)
{
	return &r->at[(r->head + i) & (r->size - 1)];
}

void tks_tls_ring_drop(struct tks_tls_ring *r, uint32_t n)
{
	r->head = (r->head + n) & (r->size - 1);
	r->count -= n;
}

int tks_tls_ring_push(struct tks_tls_ring *r, struct tks_mem *mem, const struct tks_tls_seen *s)
{
	if (r->count == r->size && r->size < RECORDS_MAX) {
		uint32_t size = r->size ? 2 * r->size : 8;
		struct tks_tls_seen *at = tks_mem_alloc(mem, size * sizeof(*at));

		if (!at && !r->size)
			return -ENOMEM;
		for (uint32_t i = 0; at && i < r->count; i++)
			at[i] = *tks_tls_nth(r, i);
		if (at) {
			tks_mem_free(mem, r->at, r->size * sizeof(*at));
			r->at = at;
			r->size = size;
			r->head = 0;
		}
	}
	if (r->count == r->size)
		tks_tls_ring_drop(r, 1);
	r->count++;
	*tks_tls_nth(r, r->count - 1) = *s;
	return 0;
}

uint32_t tks_tls_plain_of(const struct tks_tls_conn *c, uint32_t len, uint32_t want)
{
	uint32_t most = want < TKS_TLS_PLAIN_MAX ? want : TKS_TLS_PLAIN_MAX;

	if (c->overhead)
		return len > (uint32_t)c->overhead ? len - (uint32_t)c->overhead : 0;
	if (len < most + TKS_TLS_OVERHEAD_MIN || len > most + TKS_TLS_OVERHEAD_MAX)
		return 0;
	return most;
}

void tks_tls_learn_overhead(struct tks_tls_conn *c, uint32_t len, uint32_t plain)
{
	uint32_t more = len > plain ? len - plain : 0;

	if (!c->overhead && (more == 16 || more == 17 || more == 24))
		c->overhead = (int)more;
}

void tks_tls_read_hello(struct tks_tls_conn *c, const struct tks_tls_record *r)
{
	enum { AT_SESSION = TKS_TLS_HEADER + 4 + 2 + 32, SERVER_HELLO = 2 };
	uint16_t suite;
	size_t at;

	if (r->type != TKS_TLS_HANDSHAKE || r->nhead <= AT_SESSION ||
	    r->head[TKS_TLS_HEADER] != SERVER_HELLO)
		return;
	at = (size_t)AT_SESSION + 1 + r->head[AT_SESSION];
	if (at + 2 > r->nhead)
		return;
	suite = (uint16_t)(r->head[at] << 8 | r->head[at + 1]);
	if (suite >> 8 == 0x13) {
		c->overhead = suite >= 0x1305 ? 9 : 17;
		c->finished = c->from_start ? 4 + (suite == 0x1302 ? 48 : 32) : 0;
	} else if (suite >= 0xcca8 && suite <= 0xccae) {
		c->overhead = 16;
	} else if ((suite >= 0x9c && suite <= 0xa7) || (suite >= 0xc02b && suite <= 0xc032)) {
		c->overhead = 24;
	}
}

/* Whether a record of this payload was read by a call that got n bytes of `asked`. */
static bool was_read_as(const struct tks_tls_conn *c, const struct tks_tls_seen *s, uint32_t n,
			uint32_t asked)
{
	uint32_t plain = tks_tls_plain_of(c, s->len, n);

	if (s->type != TKS_TLS_DATA)
		return false;
	if (n < asked)
		return plain == n;
	return c->overhead ? plain >= n : s->len >= n + TKS_TLS_OVERHEAD_MIN;
}

/*
 * The record, from the i-th on, that a read gave n bytes of; r->count: none. What was read before
 * the object was seen is still there: of those that fit, the first read has the oldest that was not
 * answered yet when the next of them arrived.
 */
static uint32_t read_from(const struct tks_tls_conn *c, uint32_t n, uint32_t asked,
			  uint64_t read_ns)
{
	const struct tks_tls_ring *r = &c->records[TKS_RX];
	uint32_t found = r->count;

	for (uint32_t i = 0; i < r->count; i++) {
		const struct tks_tls_seen *s = tks_tls_nth(r, i);

		if (s->ts_ns > read_ns || !was_read_as(c, s, n, asked))
			continue;
		if (found == r->count || s->ret_ns > tks_tls_nth(r, found)->ts_ns)
			found = i;
		if (c->rx_begun)
			break;
	}
	return found;
}

uint64_t tks_tls_arrival(struct tks_tls_conn *c, uint32_t n, uint32_t asked, uint64_t read_ns)
{
	struct tks_tls_ring *r = &c->records[TKS_RX];
	const struct tks_tls_seen *s;
	uint32_t at;

	if (c->rx_left >= n) {
		c->rx_left -= n < asked ? c->rx_left : n;
		return c->rx_ns;
	}
	at = read_from(c, n, asked, read_ns);
	c->rx_begun = true;
	if (at < r->count) {
		s = tks_tls_nth(r, at);
		if (n < asked)
			tks_tls_learn_overhead(c, s->len, n);
		c->rx_left = n < asked
				     ? 0
				     : s->len - n - (uint32_t)(c->overhead ?: TKS_TLS_OVERHEAD_MIN);
		c->rx_ns = s->ts_ns;
		tks_tls_ring_drop(r, at + 1);
		return c->rx_ns;
	}
	c->tls->counters.unmatched++;
	c->rx_read_ns = read_ns;
	for (uint32_t i = r->count; i > 0; i--) {
		s = tks_tls_nth(r, i - 1);
		if (s->ts_ns <= read_ns)
			return s->ts_ns;
	}
	return read_ns;
}
