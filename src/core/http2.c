// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The frame layer. Each direction is read octet by octet as far as headers go; payloads are handed
 * on in the pieces they come in. What the peers may not do is put up with where it can be read.
 */
#include "http2.h"

#include <errno.h>
#include <string.h>

#include "http2_frame.h"
#include "http2_hpack.h"
#include "http2_stream.h"

enum {
	H2_NO_ERROR = 0,
	CLOSED_KEPT =
		64, /* numbers of streams closed lately: what still comes of them is dropped */
};

/* Reads one direction. */
struct dir {
	enum tks_side side;
	bool seeking; /* for a slice that begins with a frame */
	bool preface; /* it is still to come */
	bool in_payload;
	uint8_t head[TKS_H2_PREFACE], nhead;
	struct tks_h2_frame f;
	uint64_t first_off; /* of the frame */
	uint64_t seen_off; /* the last octet that came */
	uint32_t left; /* of its payload */
	uint32_t fixed; /* octets at its start that are still to come and are no content */
	uint32_t pad;
	bool pad_next; /* the next octet is the padding's length */
	bool content_lost; /* the rest of the payload is dropped */
	uint32_t code; /* RST_STREAM */
	bool code_lost;
	struct tks_hpack hpack;
	uint32_t block; /* the stream whose header block is unfinished; 0: none */
	bool block_ends_stream;
	bool block_told; /* it is reported already, or not to be */
	uint64_t block_off;
};

struct tks_http2 {
	struct tks_mem *mem;
	const struct tks_h2_ops *ops;
	void *ctx;
	struct dir dirs[2];
	struct tks_h2_streams streams;
	uint32_t top; /* the highest stream seen */
	bool holes; /* streams may be open whose beginning was not seen */
	uint32_t closed[CLOSED_KEPT];
	unsigned int nclosed;
};

/* --- streams --- */

static bool closed_lately(const struct tks_http2 *h, uint32_t id)
{
	for (unsigned int i = 0; i < CLOSED_KEPT; i++) {
		if (h->closed[i] == id)
			return true;
	}
	return false;
}

static void close_stream(struct tks_http2 *h, struct tks_h2_stream *s)
{
	h->closed[h->nclosed++ % CLOSED_KEPT] = s->id;
	tks_h2_stream_remove(&h->streams, s);
}

static bool is_open(const struct tks_h2_stream *s, enum tks_side side)
{
	return s->state[side] == TKS_H2_BEGUN || s->state[side] == TKS_H2_HEADED;
}

/* Ends what is open of the stream at that octet of each side, and forgets it. */
static int cut_stream(struct tks_http2 *h, struct tks_h2_stream *s, uint64_t request_off,
		      uint64_t response_off)
{
	uint32_t id = s->id;
	bool request = is_open(s, TKS_REQUEST), response = s->state[TKS_RESPONSE] != TKS_H2_ENDED;
	int err = 0;

	close_stream(h, s);
	if (request)
		err = h->ops->end(h->ctx, id, TKS_REQUEST, request_off, TKS_MSG_CUT);
	if (response)
		err = h->ops->end(h->ctx, id, TKS_RESPONSE, response_off, TKS_MSG_CUT) ?: err;
	return err;
}

static struct tks_h2_stream *add_stream(struct tks_http2 *h, uint32_t id)
{
	if (h->streams.n >= TKS_H2_STREAMS_MAX)
		cut_stream(h, tks_h2_stream_idlest(&h->streams), h->dirs[TKS_REQUEST].seen_off,
			   h->dirs[TKS_RESPONSE].seen_off);
	if (id > h->top)
		h->top = id;
	return tks_h2_stream_add(&h->streams, id);
}

/*
 * The stream that a frame of a message belongs to. NULL: it is closed, or was never opened by a
 * request (*err: no memory).
 */
static struct tks_h2_stream *stream_of(struct tks_http2 *h, const struct dir *d, uint32_t id,
				       int *err)
{
	struct tks_h2_stream *s = tks_h2_stream_find(&h->streams, id);
	bool opens = d->side == TKS_REQUEST && d->f.type == TKS_H2_HEADERS && id > h->top;

	*err = 0;
	if (s) {
		tks_h2_stream_touch(&h->streams, s);
		return s;
	}
	/* Even ones are pushed, and of no interest. */
	if (!(id & 1) || (!opens && (!h->holes || closed_lately(h, id))))
		return NULL;
	s = add_stream(h, id);
	if (!s)
		*err = -ENOMEM;
	return s;
}

static int message_ends(struct tks_http2 *h, struct tks_h2_stream *s, enum tks_side side,
			uint64_t off)
{
	uint32_t id = s->id;
	bool was_open = is_open(s, side);

	s->state[side] = TKS_H2_ENDED;
	if (s->state[TKS_RESPONSE] == TKS_H2_ENDED && !is_open(s, TKS_REQUEST))
		close_stream(h, s);
	return was_open ? h->ops->end(h->ctx, id, side, off, TKS_MSG_COMPLETE) : 0;
}

/* --- header blocks --- */

static int report_head(struct tks_http2 *h, struct tks_h2_stream *s, struct tks_http_head *head,
		       bool is_connect)
{
	enum tks_side side = head->side;

	/* Behind one that was reported they are trailers. */
	if (s->state[side] >= TKS_H2_HEADED)
		return side == TKS_RESPONSE ? h->ops->trailers(h->ctx, s->id, head) : 0;
	if (side == TKS_RESPONSE && head->status >= 100 && head->status < 200)
		return 0;
	if (side == TKS_REQUEST)
		s->is_connect = is_connect;
	else
		head->upgrade = s->is_connect && head->status >= 200 && head->status < 300;
	s->state[side] = TKS_H2_HEADED;
	return h->ops->head(h->ctx, s->id, head);
}

/* The block as far as it was read. */
static int tell_block(struct tks_http2 *h, struct dir *d, uint64_t last_off)
{
	struct tks_h2_stream *s = tks_h2_stream_find(&h->streams, d->block);
	struct tks_http_head bare = {
		.side = d->side, .major = 2, .content_length = -1, .unknowable = true
	};
	struct tks_http_head *head = d->hpack.head ?: &bare;

	if (!s || d->block_told)
		return 0;
	d->block_told = true;
	head->first_off = d->block_off;
	head->last_off = last_off;
	return report_head(h, s, head, d->hpack.is_connect);
}

static int end_block(struct tks_http2 *h, struct dir *d, uint64_t last_off)
{
	struct tks_h2_stream *s;
	int err = tks_hpack_end(&d->hpack);

	err = tell_block(h, d, last_off) ?: err;
	tks_hpack_done(&d->hpack);
	s = tks_h2_stream_find(&h->streams, d->block);
	d->block = 0;
	if (s && d->block_ends_stream)
		err = message_ends(h, s, d->side, last_off) ?: err;
	return err;
}

/* A block is left unfinished: what it adds to the table is not known. */
static void drop_block(struct dir *d)
{
	if (!d->block)
		return;
	tks_hpack_lose(&d->hpack);
	tks_hpack_done(&d->hpack);
	d->block = 0;
}

static int begin_block(struct tks_http2 *h, struct dir *d)
{
	struct tks_h2_stream *s;
	int err = 0;

	drop_block(d);
	d->block = d->f.stream;
	d->block_off = d->first_off;
	d->block_told = d->f.type == TKS_H2_PUSH_PROMISE;
	d->block_ends_stream = !d->block_told && d->f.flags & TKS_H2_END_STREAM;
	if (!d->block_told) {
		s = stream_of(h, d, d->f.stream, &err);
		if (s && d->side == TKS_REQUEST && s->state[TKS_REQUEST] == TKS_H2_UNSEEN) {
			s->state[TKS_REQUEST] = TKS_H2_BEGUN;
			h->ops->begin(h->ctx, s->id, d->first_off);
		}
	}
	return tks_hpack_begin(&d->hpack, d->side) ?: err;
}

/* --- frames --- */

/* Before the first body octets: a message whose head was not seen is entered in its middle. */
static int enter_body(struct tks_http2 *h, struct tks_h2_stream *s, const struct dir *d)
{
	struct tks_http_head head = { .side = d->side,
				      .major = 2,
				      .resumed = true,
				      .content_length = -1,
				      .first_off = d->first_off,
				      .last_off = d->first_off };

	if (s->state[d->side] >= TKS_H2_HEADED)
		return 0;
	s->state[d->side] = TKS_H2_HEADED;
	return h->ops->head(h->ctx, s->id, &head);
}

static int data_begins(struct tks_http2 *h, struct dir *d)
{
	struct tks_h2_stream *s;
	int err;

	s = stream_of(h, d, d->f.stream, &err);
	d->content_lost = !s || s->state[d->side] == TKS_H2_ENDED;
	return d->content_lost ? err : enter_body(h, s, d);
}

static int frame_begins(struct tks_http2 *h, struct dir *d)
{
	const struct tks_h2_frame *f = &d->f;
	bool goes_on = f->type == TKS_H2_CONTINUATION && d->block && d->block == f->stream;

	d->left = f->len;
	d->fixed = tks_h2_frame_fixed(f);
	d->pad = 0;
	d->pad_next = tks_h2_frame_padded(f);
	d->content_lost = false;
	d->code = 0;
	d->code_lost = false;
	if (!goes_on)
		drop_block(d);
	switch (f->type) {
	case TKS_H2_DATA:
		return data_begins(h, d);
	case TKS_H2_HEADERS:
	case TKS_H2_PUSH_PROMISE:
		return begin_block(h, d);
	case TKS_H2_CONTINUATION:
		if (!goes_on)
			tks_hpack_lose(&d->hpack);
		d->content_lost = !goes_on;
		return 0;
	default:
		return 0;
	}
}

static int reset(struct tks_http2 *h, struct dir *d, uint64_t last_off)
{
	struct tks_h2_stream *s = tks_h2_stream_find(&h->streams, d->f.stream);
	uint32_t code = d->code_lost ? TKS_H2_CODE_LOST : d->code;
	bool whole;
	int err = 0;

	if (!s)
		return 0;
	/* A server that has answered may refuse the rest of the request. */
	whole = s->state[TKS_RESPONSE] == TKS_H2_ENDED;
	if (!whole || code != H2_NO_ERROR)
		err = h->ops->reset(h->ctx, s->id, d->side, code);
	return cut_stream(h, s, last_off, last_off) ?: err;
}

static int frame_ends(struct tks_http2 *h, struct dir *d, uint64_t last_off)
{
	const struct tks_h2_frame *f = &d->f;
	struct tks_h2_stream *s;

	d->in_payload = false;
	d->nhead = 0;
	switch (f->type) {
	case TKS_H2_DATA:
		s = f->flags & TKS_H2_END_STREAM ? tks_h2_stream_find(&h->streams, f->stream)
						 : NULL;
		return s ? message_ends(h, s, d->side, last_off) : 0;
	case TKS_H2_HEADERS:
	case TKS_H2_PUSH_PROMISE:
	case TKS_H2_CONTINUATION:
		return d->block && f->flags & TKS_H2_END_HEADERS ? end_block(h, d, last_off) : 0;
	case TKS_H2_RST_STREAM:
		return reset(h, d, last_off);
	default:
		return 0;
	}
}

static int block_octets(struct tks_http2 *h, struct dir *d, const struct tks_slice *s)
{
	uint32_t room = TKS_H2_HEAD_MAX - d->hpack.block_len;
	int err = tks_hpack_feed(&d->hpack, s->data, s->len);

	/* Past what is read of a block nothing is to be waited for. */
	return d->hpack.over ? tell_block(h, d, s->off + room) ?: err : err;
}

/* What is neither the padding's length nor padding. */
static int content(struct tks_http2 *h, struct dir *d, const struct tks_slice *s)
{
	if (d->content_lost)
		return 0;
	switch (d->f.type) {
	case TKS_H2_DATA:
		return h->ops->body(h->ctx, d->f.stream, d->side, s);
	case TKS_H2_HEADERS:
	case TKS_H2_PUSH_PROMISE:
	case TKS_H2_CONTINUATION:
		return block_octets(h, d, s);
	default:
		return 0;
	}
}

/* One of the octets in front of the content. -EBADMSG: the padding is longer than the frame. */
static int fixed_octet(struct dir *d, uint8_t octet)
{
	d->fixed--;
	if (d->pad_next) {
		d->pad_next = false;
		d->pad = octet;
		return d->left - 1 < d->fixed + d->pad ? -EBADMSG : 0;
	}
	if (d->f.type == TKS_H2_RST_STREAM)
		d->code = d->code << 8 | octet;
	return 0;
}

/* Octets of the payload; how many it took is in *used. */
static int payload(struct tks_http2 *h, struct dir *d, const struct tks_slice *in, size_t *used)
{
	struct tks_slice s = { in->data, 1, in->off };
	int err;

	if (d->fixed) {
		err = fixed_octet(d, *in->data);
	} else {
		uint32_t n = d->left > d->pad ? d->left - d->pad : d->left;

		s.len = in->len < n ? in->len : n;
		err = d->left > d->pad ? content(h, d, &s) : 0;
	}
	*used = s.len;
	if (err == -EBADMSG)
		return err;
	d->left -= (uint32_t)s.len;
	return d->left ? err : frame_ends(h, d, s.off + s.len - 1) ?: err;
}

/* --- directions --- */

/* Where a frame begins is not known any more. */
static void seek(struct tks_http2 *h, struct dir *d)
{
	drop_block(d);
	tks_hpack_lose(&d->hpack);
	d->in_payload = false;
	d->preface = false;
	d->nhead = 0;
	d->seeking = true;
	h->holes = true;
}

/* Octets of a frame's header, or of the preface. */
static int head_octet(struct tks_http2 *h, struct dir *d, const struct tks_slice *s)
{
	int err;

	if (!d->nhead)
		d->first_off = s->off;
	d->head[d->nhead++] = *s->data;
	if (d->preface) {
		if (d->head[d->nhead - 1] != (uint8_t)tks_h2_preface[d->nhead - 1])
			return -EBADMSG;
		if (d->nhead == TKS_H2_PREFACE) {
			d->preface = false;
			d->nhead = 0;
		}
		return 0;
	}
	if (d->nhead < TKS_H2_FRAME_HEAD)
		return 0;
	tks_h2_frame_read(&d->f, d->head);
	if (!tks_h2_frame_valid(&d->f))
		return -EBADMSG;
	d->in_payload = true;
	err = frame_begins(h, d);
	return d->left ? err : frame_ends(h, d, s->off) ?: err;
}

/*
 * A header alone, of a frame that reaches beyond the slice or is empty, is only believed where its
 * stream is open: it may be the middle of another.
 */
static bool found(struct tks_http2 *h, struct dir *d, const struct tks_slice *s)
{
	struct tks_h2_frame f;
	int whole, side;

	if (tks_h2_frames_count(s->data, s->len, &whole, &side) <= 0)
		return false;
	tks_h2_frame_read(&f, s->data);
	if ((!whole || (f.stream && !f.len)) && !tks_h2_stream_find(&h->streams, f.stream))
		return false;
	d->seeking = false;
	return true;
}

int tks_http2_feed(struct tks_http2 *h, enum tks_side side, const struct tks_slice *in)
{
	struct dir *d = &h->dirs[side];
	struct tks_slice s = *in;
	int first_err = 0;

	if (d->seeking && s.len && !found(h, d, &s))
		return 0;
	while (s.len) {
		size_t used = 1;
		int err;

		d->seen_off = s.off;
		err = d->in_payload ? payload(h, d, &s, &used) : head_octet(h, d, &s);
		d->seen_off = s.off + used - 1;
		if (err == -EBADMSG) {
			seek(h, d);
			h->ops->body_gap(h->ctx, 0, side, s.off, 0);
			return err;
		}
		first_err = first_err ?: err;
		s.data += used;
		s.off += used;
		s.len -= used;
	}
	return first_err;
}

/* Within a frame: its end is known. */
static int gap_in_frame(struct tks_http2 *h, struct dir *d, uint64_t off, uint32_t len)
{
	bool in_block = d->f.type == TKS_H2_HEADERS || d->f.type == TKS_H2_CONTINUATION ||
			d->f.type == TKS_H2_PUSH_PROMISE;
	uint32_t body = d->left > d->pad ? d->left - d->pad : 0;
	int err = 0;

	if (in_block)
		tks_hpack_lose(&d->hpack);
	d->code_lost = true;
	if (d->f.type == TKS_H2_DATA && !d->content_lost && body) {
		/* With the padding's length what is padding is lost too. */
		err = h->ops->body_gap(h->ctx, d->f.stream, d->side, off,
				       d->fixed	    ? 0
				       : len < body ? len
						    : body);
		d->content_lost = d->fixed;
	}
	d->fixed -= len < d->fixed ? len : d->fixed;
	d->pad_next = false;
	d->left -= len;
	return d->left ? err : frame_ends(h, d, off + len - 1) ?: err;
}

int tks_http2_gap(struct tks_http2 *h, enum tks_side side, uint64_t off, uint64_t len)
{
	struct dir *d = &h->dirs[side];

	if (d->in_payload && len && len <= d->left)
		return gap_in_frame(h, d, off, (uint32_t)len);
	seek(h, d);
	return h->ops->body_gap(h->ctx, 0, side, off, 0);
}

int tks_http2_eof(struct tks_http2 *h, enum tks_side side, uint64_t off)
{
	uint64_t last_off = off ? off - 1 : 0;
	int err = 0;

	drop_block(&h->dirs[side]);
	for (uint32_t i = 0; i < h->streams.n; i++) {
		struct tks_h2_stream *s = h->streams.at[i];

		if (!is_open(s, side))
			continue;
		s->state[side] = TKS_H2_ENDED;
		err = h->ops->end(h->ctx, s->id, side, last_off, TKS_MSG_CUT) ?: err;
	}
	return err;
}

/* --- life --- */

struct tks_http2 *tks_http2_new(struct tks_mem *mem, const struct tks_h2_ops *ops, void *ctx)
{
	struct tks_http2 *h = tks_mem_alloc(mem, sizeof(*h));

	if (!h)
		return NULL;
	h->mem = mem;
	h->ops = ops;
	h->ctx = ctx;
	tks_h2_streams_init(&h->streams, mem);
	for (int side = 0; side < 2; side++) {
		h->dirs[side].side = (enum tks_side)side;
		tks_hpack_init(&h->dirs[side].hpack, mem);
	}
	h->dirs[TKS_REQUEST].preface = true;
	return h;
}

void tks_http2_free(struct tks_http2 *h)
{
	if (!h)
		return;
	for (int side = 0; side < 2; side++)
		tks_hpack_free(&h->dirs[side].hpack);
	tks_h2_streams_free(&h->streams);
	tks_mem_free(h->mem, h, sizeof(*h));
}

void tks_http2_mid_stream(struct tks_http2 *h)
{
	seek(h, &h->dirs[TKS_REQUEST]);
	seek(h, &h->dirs[TKS_RESPONSE]);
}

void tks_http2_upgraded(struct tks_http2 *h)
{
	struct tks_h2_stream *s = add_stream(h, 1);

	if (s)
		s->state[TKS_REQUEST] = TKS_H2_ENDED;
}
