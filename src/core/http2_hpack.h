/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The header blocks of one direction of an HTTP/2 connection: libnghttp2's inflater, and what an
 * onlooker needs around it.
 *
 * What the table held before the trace began, or before bytes were lost, is not known. A new
 * inflater's table is then filled with entries named "?". References count from the newest entry,
 * so those to entries seen are right and those to older ones reach a "?" - also where the table
 * kept is larger than the encoder's (it then has more old entries) or smaller (a reference to one
 * it has not is an error, and the inflater is made anew). So the size need not be exact, and
 * SETTINGS_HEADER_TABLE_SIZE need not be known: what the encoder makes of it, it says in its blocks
 * (RFC 7541, section 4.2).
 */
#ifndef TKS_HTTP2_HPACK_H
#define TKS_HTTP2_HPACK_H

#include <nghttp2/nghttp2.h>

#include "http_msg.h"
#include "tokensnoop/mem.h"

/* Set up by tks_hpack_init(). For reading only. */
struct tks_hpack {
	struct tks_mem *mem;
	nghttp2_mem nghttp2_mem;
	nghttp2_hd_inflater *inflater; /* NULL: none yet, or not any more */
	struct tks_http_head *head; /* of the block under way; NULL: none */
	bool is_connect; /* the block has a :method CONNECT */
	bool unknown; /* the table began before what was seen: a new one is to be filled */
	bool at_start; /* no field of the block has begun */
	bool dropped; /* what follows of the block can't be read */
	bool over; /* it has more than TKS_H2_HEAD_MAX octets: those behind are not read */
	uint8_t update_len; /* octets of a table size update so far */
	uint32_t update;
	uint32_t table; /* octets that a new inflater's table may hold */
	uint32_t block_len, fields_len;
	unsigned int renewals; /* inflaters that may be made at once */
	uint64_t unread; /* octets of blocks since there is no inflater */
};

void tks_hpack_init(struct tks_hpack *hp, struct tks_mem *mem);
void tks_hpack_free(struct tks_hpack *hp);

/* Entries of the table are not known, or not all of them. Also ends a block under way: what is
 * still fed of it is dropped. */
void tks_hpack_lose(struct tks_hpack *hp);

/*
 * A block: begin, feed in any pieces, end. Without memory -ENOMEM, once; what can't be read is no
 * error, but flagged. The calls may be made all the same: they do nothing then.
 *
 * Behind end, head is what the block says (NULL without memory), until done.
 */
int tks_hpack_begin(struct tks_hpack *hp, enum tks_side side);
int tks_hpack_feed(struct tks_hpack *hp, const uint8_t *data, size_t len);
int tks_hpack_end(struct tks_hpack *hp);
void tks_hpack_done(struct tks_hpack *hp);

enum {
	TKS_HPACK_TABLE_MAX = 65536, /* octets of a table kept, whatever the encoder may use */
};

#endif
