// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * HTTP/1 of a connection: two sides, each at one of four places.
 *
 *                head whole             body whole
 *   BETWEEN ---> HEAD ---------> BODY -----------> BETWEEN
 *                  \               \
 *                   +--- gap, or bytes that can't be ---> LOST ---> HEAD (tentative) or BODY
 *
 * A head found while LOST is tentative until its first line is whole: text may look like the
 * beginning of one. Only then is what went before ended, and the new message announced. A response
 * is not believed at all while the request it would answer can't have been made. While the framing
 * is intact nothing is ever looked at for what it seems to be.
 *
 * Heads are parsed by http1_head.c, chunks by chunked.c; pairing is explained in http1.h.
 */
#include "http1.h"

#include <errno.h>
#include <string.h>

#include "chunked.h"
#include "http1_head.h"
#include "websocket.h"

enum place { BETWEEN = 0, HEAD, BODY, LOST };

enum framing { NO_BODY = 0, COUNTED, CHUNKED, UNTIL_CLOSE };

enum method { OTHER = 0, METHOD_HEAD, METHOD_CONNECT };

/* A request whose response has not ended. */
struct asked {
	uint64_t t_ns; /* of its first byte; 0: not known */
	enum method method;
};

struct side {
	enum tks_side id;
	enum place place;
	enum framing framing;
	bool tentative; /* HEAD: its first line is not whole yet */
	bool open; /* the user knows the message: a request by begin, a response by head */
	bool headed; /* its head was reported */
	bool paired; /* a response that answers asked[0] */
	uint64_t first_off; /* HEAD: of the head */
	uint64_t cut_end; /* HEAD: behind the last byte seen before it */
	uint64_t seen_end; /* behind the last byte seen */
	uint64_t owed; /* COUNTED */
	struct tks_chunked chunked;
	struct tks_headp *headp; /* HEAD */
};

struct tks_http1 {
	struct tks_mem *mem;
	const struct tks_h1_ops *ops;
	void *ctx;
	struct side side[2]; /* by enum tks_side */
	struct asked *asked; /* oldest first */
	unsigned int nasked, asked_size;
	bool doubt; /* the order of requests and responses may not be all there is to know */
	bool pipelines; /* the client was seen to send requests ahead */
	bool given_up;
};

struct tks_http1 *tks_http1_new(struct tks_mem *mem, const struct tks_h1_ops *ops, void *ctx)
{
	struct tks_http1 *h = tks_mem_alloc(mem, sizeof(*h));

	if (!h)
		return NULL;
	h->mem = mem;
	h->ops = ops;
	h->ctx = ctx;
	h->side[TKS_RESPONSE].id = TKS_RESPONSE;
	return h;
}

static void free_headp(struct tks_http1 *h, struct side *s)
{
	tks_mem_free(h->mem, s->headp, sizeof(*s->headp));
	s->headp = NULL;
}

void tks_http1_free(struct tks_http1 *h)
{
	if (!h)
		return;
	free_headp(h, &h->side[TKS_REQUEST]);
	free_headp(h, &h->side[TKS_RESPONSE]);
	tks_mem_free(h->mem, h->asked, h->asked_size * sizeof(*h->asked));
	tks_mem_free(h->mem, h, sizeof(*h));
}

void tks_http1_mid_stream(struct tks_http1 *h)
{
	h->side[TKS_REQUEST].place = LOST;
	h->side[TKS_RESPONSE].place = LOST;
}

unsigned int tks_http1_pending(const struct tks_http1 *h)
{
	return h->nasked;
}

bool tks_http1_given_up(const struct tks_http1 *h)
{
	return h->given_up;
}

static uint64_t time_of(const struct tks_http1 *h, enum tks_side side, uint64_t off)
{
	return h->ops->time ? h->ops->time(h->ctx, side, off) : 0;
}

/* --- requests that wait for their responses --- */

static int asked_grow(struct tks_http1 *h)
{
	unsigned int size = h->asked_size ? 2 * h->asked_size : 4;
	struct asked *a =
		tks_mem_resize(h->mem, h->asked, h->asked_size * sizeof(*a), size * sizeof(*a));

	if (!a)
		return -ENOMEM;
	h->asked = a;
	h->asked_size = size;
	return 0;
}

static int asked_push(struct tks_http1 *h, uint64_t t_ns)
{
	if (h->nasked == TKS_H1_PIPELINE_MAX) {
		h->given_up = true;
		return -EBADMSG;
	}
	if (h->nasked == h->asked_size && asked_grow(h))
		return -ENOMEM;
	h->asked[h->nasked++] = (struct asked){ .t_ns = t_ns };
	return 0;
}

static void asked_pop(struct tks_http1 *h)
{
	h->nasked--;
	memmove(h->asked, h->asked + 1, h->nasked * sizeof(*h->asked));
}

/* The request that is being received: the youngest. NULL if it was answered before its end. */
static struct asked *asked_current(struct tks_http1 *h)
{
	return h->nasked ? &h->asked[h->nasked - 1] : NULL;
}

/* --- messages --- */

static int end_message(struct tks_http1 *h, struct side *s, uint64_t last_off, enum tks_msg_end how)
{
	s->open = false;
	s->headed = false;
	s->place = BETWEEN;
	if (s->id == TKS_RESPONSE && s->paired)
		asked_pop(h);
	s->paired = false;
	return h->ops->end(h->ctx, s->id, last_off, how);
}

/* What was open is over, its end unseen: the next message begins. */
static int cut_message(struct tks_http1 *h, struct side *s, uint64_t end)
{
	return s->open ? end_message(h, s, end ? end - 1 : 0, TKS_MSG_CUT) : 0;
}

/* The framing can't be followed from off on. */
static int lose(struct tks_http1 *h, struct side *s, uint64_t off)
{
	free_headp(h, s);
	s->place = LOST;
	s->tentative = false;
	h->doubt |= s->id == TKS_RESPONSE;
	return s->headed ? h->ops->body_gap(h->ctx, s->id, off, 0) : 0;
}

/* asked[0] was answered unseen. */
static int answer_unseen(struct tks_http1 *h, uint64_t off)
{
	struct tks_http_head head = { .side = TKS_RESPONSE,
				      .first_off = off,
				      .last_off = off,
				      .resumed = true,
				      .content_length = -1 };
	int err = h->ops->head(h->ctx, &head);

	asked_pop(h);
	return err ?: h->ops->end(h->ctx, TKS_RESPONSE, off ? off - 1 : 0, TKS_MSG_CUT);
}

/* True if the request at place i in the row was sent before t_ns. */
static bool sent_by(const struct tks_http1 *h, unsigned int i, uint64_t t_ns)
{
	return i < h->nasked && h->asked[i].t_ns && h->asked[i].t_ns < t_ns;
}

/* Finds the request that the response which begins at off answers. */
static int pair(struct tks_http1 *h, struct side *s, uint64_t off)
{
	uint64_t t_ns = time_of(h, TKS_RESPONSE, off);
	int err = 0;

	if (!h->doubt)
		h->pipelines |= sent_by(h, 1, t_ns);
	while (!err && h->doubt && !h->pipelines && sent_by(h, 1, t_ns))
		err = answer_unseen(h, off);
	s->paired = h->nasked;
	/* One that waits and one answer: in step. None: its request will come late, or never. */
	if (h->nasked <= 1)
		h->doubt = !h->nasked;
	return err;
}

/* --- heads --- */

static int announce_request(struct tks_http1 *h, struct side *s)
{
	int err = asked_push(h, time_of(h, TKS_REQUEST, s->first_off));

	if (err)
		return err;
	s->open = true;
	h->ops->begin(h->ctx, TKS_REQUEST, s->first_off);
	return 0;
}

static int start_head(struct tks_http1 *h, struct side *s, uint64_t off, bool tentative)
{
	s->headp = tks_mem_alloc(h->mem, sizeof(*s->headp));
	if (!s->headp)
		return -ENOMEM;
	tks_headp_start(s->headp, s->id);
	s->place = HEAD;
	s->first_off = off;
	s->cut_end = s->seen_end;
	s->tentative = tentative;
	return tentative || s->id == TKS_RESPONSE ? 0 : announce_request(h, s);
}

/* False while every request known is answered or being answered, so that this can't be a response.
 */
static bool answerable(const struct tks_http1 *h, const struct side *s)
{
	return !s->open || h->nasked > s->paired || h->side[TKS_REQUEST].place == LOST;
}

/* A tentative head proved to be one. */
static int settle_head(struct tks_http1 *h, struct side *s)
{
	int err;

	s->tentative = false;
	err = cut_message(h, s, s->cut_end);
	s->place = HEAD;
	if (!err && s->id == TKS_REQUEST)
		err = announce_request(h, s);
	return err;
}

static enum framing body_framing(const struct tks_headp *p)
{
	const struct tks_http_head *head = &p->head;

	if (head->chunked)
		return CHUNKED;
	if (head->content_length >= 0 && !p->other_coding)
		return head->content_length ? COUNTED : NO_BODY;
	return head->side == TKS_RESPONSE ? UNTIL_CLOSE : NO_BODY;
}

static void begin_body(struct side *s, enum framing framing, int64_t content_length)
{
	s->place = BODY;
	s->framing = framing;
	s->owed = framing == COUNTED ? (uint64_t)content_length : 0;
	s->chunked = (struct tks_chunked){ .place = TKS_CHUNK_SIZE };
}

static int request_head(struct tks_http1 *h, struct side *s, struct tks_headp *p)
{
	struct asked *a = asked_current(h);
	enum framing framing = body_framing(p);

	if (a && p->parser.method == HTTP_HEAD)
		a->method = METHOD_HEAD;
	if (p->parser.method == HTTP_CONNECT) {
		framing = NO_BODY;
		if (a)
			a->method = METHOD_CONNECT;
	}
	begin_body(s, framing, p->head.content_length);
	s->headed = true;
	return h->ops->head(h->ctx, &p->head);
}

/* Whatever the request side was at: from now on it is not HTTP/1 any more. */
static void tunnel(struct tks_http1 *h)
{
	struct side *s = &h->side[TKS_REQUEST];

	free_headp(h, s);
	s->tentative = false;
	begin_body(s, UNTIL_CLOSE, -1);
}

static int response_head(struct tks_http1 *h, struct side *s, struct tks_headp *p)
{
	enum method method = OTHER;
	enum framing framing = body_framing(p);
	uint16_t status = p->head.status;
	int err;

	if (status < 200 && status != 101) {
		s->place = BETWEEN;
		return 0;
	}
	err = pair(h, s, s->first_off);
	if (err)
		return err;
	if (s->paired)
		method = h->asked[0].method;
	p->head.upgrade = status == 101 || (method == METHOD_CONNECT && status / 100 == 2);
	if (p->head.upgrade)
		framing = UNTIL_CLOSE;
	else if (method == METHOD_HEAD || status == 204 || status == 304)
		framing = NO_BODY;
	begin_body(s, framing, p->head.content_length);
	s->open = true;
	s->headed = true;
	if (p->head.upgrade)
		tunnel(h);
	return h->ops->head(h->ctx, &p->head);
}

static int head_done(struct tks_http1 *h, struct side *s, uint64_t end)
{
	struct tks_headp *p = s->headp;
	int err;

	p->head.first_off = s->first_off;
	p->head.last_off = end - 1;
	s->headp = NULL;
	err = s->id == TKS_REQUEST ? request_head(h, s, p) : response_head(h, s, p);
	tks_mem_free(h->mem, p, sizeof(*p));
	if (!err && s->place == BODY && s->framing == NO_BODY)
		err = end_message(h, s, end - 1, TKS_MSG_COMPLETE);
	return err;
}

/*
 * It is not a head. If that shows in a later slice than the one it seemed to begin in, this later
 * one is to be looked at anew; else it is dropped.
 */
static void not_a_head(struct tks_http1 *h, struct side *s, const struct tks_slice *rest,
		       size_t *used)
{
	free_headp(h, s);
	s->place = LOST;
	s->tentative = false;
	*used = s->first_off < rest->off ? 0 : rest->len;
}

static int read_head(struct tks_http1 *h, struct side *s, const struct tks_slice *rest,
		     size_t *used)
{
	size_t room = TKS_H1_HEAD_MAX - (size_t)(rest->off - s->first_off);
	size_t n = rest->len < room ? rest->len : room;
	int ev = tks_headp_feed(s->headp, rest->data, n, used);

	if (ev == TKS_HEADP_MORE && n == room)
		ev = -EBADMSG;
	if (s->tentative && (ev < 0 || (ev == TKS_HEADP_LINE && !answerable(h, s)))) {
		not_a_head(h, s, rest, used);
		return 0;
	}
	if (ev == TKS_HEADP_LINE && s->tentative)
		return settle_head(h, s);
	if (ev == TKS_HEADP_DONE)
		return head_done(h, s, rest->off + *used);
	return ev < 0 ? ev : 0;
}

/* --- bodies --- */

static int hand_body(struct tks_http1 *h, struct side *s, const struct tks_slice *rest, size_t n)
{
	struct tks_slice body = { .data = rest->data, .len = n, .off = rest->off };

	return h->ops->body(h->ctx, s->id, &body);
}

static int read_counted(struct tks_http1 *h, struct side *s, const struct tks_slice *rest,
			size_t *used)
{
	int err;

	*used = rest->len < s->owed ? rest->len : (size_t)s->owed;
	s->owed -= *used;
	err = hand_body(h, s, rest, *used);
	if (!err && !s->owed)
		err = end_message(h, s, rest->off + *used - 1, TKS_MSG_COMPLETE);
	return err;
}

static int read_chunked(struct tks_http1 *h, struct side *s, const struct tks_slice *rest,
			size_t *used)
{
	switch (tks_chunked_next(&s->chunked, rest->data, rest->len, used)) {
	case TKS_CHUNK_EV_MORE:
		return 0;
	case TKS_CHUNK_EV_DATA:
		return hand_body(h, s, rest, *used);
	case TKS_CHUNK_EV_END:
		return end_message(h, s, rest->off + *used - 1, TKS_MSG_COMPLETE);
	case TKS_CHUNK_EV_BAD:
		break;
	}
	return -EBADMSG;
}

static int read_body(struct tks_http1 *h, struct side *s, const struct tks_slice *rest,
		     size_t *used)
{
	if (s->framing == CHUNKED)
		return read_chunked(h, s, rest, used);
	if (s->framing == COUNTED)
		return read_counted(h, s, rest, used);
	*used = rest->len;
	return hand_body(h, s, rest, rest->len);
}

/* --- looking for a place to trust --- */

/*
 * True if the bytes read as chunks from a size line on. Of a message known to be chunked a size
 * line is enough; else a whole chunk has to be there, or the end and nothing that can't follow it.
 * No bare LF behind data here: a number and an empty line would pass for a chunk.
 */
static bool reads_as_chunks(const struct side *s, const uint8_t *data, size_t len)
{
	struct tks_chunked c = { .place = TKS_CHUNK_SIZE };
	bool line = false, behind_data = false, whole = false;
	size_t used;

	while (len) {
		bool bare = c.place == TKS_CHUNK_DATA_CR && *data != '\r';
		enum tks_chunk_event ev = tks_chunked_next(&c, data, len, &used);

		if (bare || ev == TKS_CHUNK_EV_BAD)
			return false;
		data += used;
		len -= used;
		if (ev == TKS_CHUNK_EV_END)
			return !len || tks_http1_sniff(TKS_RESPONSE, data, len);
		line |= c.place >= TKS_CHUNK_DATA;
		whole |= behind_data && c.place != TKS_CHUNK_DATA_LF;
		behind_data = c.place == TKS_CHUNK_DATA_CR || c.place == TKS_CHUNK_DATA_LF;
	}
	return s->open ? line : whole;
}

/* Goes on at a size line. The response may be another than the one that was lost. */
static int resume(struct tks_http1 *h, struct side *s, uint64_t off)
{
	struct tks_http_head head = { .side = TKS_RESPONSE,
				      .first_off = off,
				      .last_off = off,
				      .major = 1,
				      .minor = 1,
				      .chunked = true,
				      .resumed = true,
				      .content_length = -1 };
	int err = 0;

	if (s->open && !h->pipelines && sent_by(h, s->paired, time_of(h, TKS_RESPONSE, off)))
		err = cut_message(h, s, s->seen_end);
	if (err)
		return err;
	if (s->open) {
		begin_body(s, CHUNKED, -1);
		return 0;
	}
	err = pair(h, s, off);
	if (err)
		return err;
	begin_body(s, CHUNKED, -1);
	s->open = true;
	s->headed = true;
	return h->ops->head(h->ctx, &head);
}

/* Entered in the middle of what an upgrade had made of the connection. */
static int resume_websocket(struct tks_http1 *h, struct side *s, uint64_t off)
{
	struct tks_http_head head = { .side = TKS_RESPONSE,
				      .first_off = off,
				      .last_off = off,
				      .status = 101,
				      .major = 1,
				      .minor = 1,
				      .upgrade = true,
				      .resumed = true,
				      .content_length = -1,
				      .upgrade_to = "websocket",
				      /* It may have been agreed on. */
				      .ws_extensions = "permessage-deflate" };

	begin_body(s, UNTIL_CLOSE, -1);
	s->open = true;
	s->headed = true;
	tunnel(h);
	return h->ops->head(h->ctx, &head);
}

/* Looks at the start of a slice. */
static int search(struct tks_http1 *h, struct side *s, const struct tks_slice *rest, size_t *used)
{
	const uint8_t *data = rest->data;
	size_t len = rest->len, i = 0;

	while (i < len && (data[i] == '\r' || data[i] == '\n'))
		i++;
	*used = i;
	if (i == len)
		return 0;
	if (i)
		s->seen_end = rest->off + i;
	if (tks_http1_sniff(s->id, data + i, len - i))
		return start_head(h, s, rest->off + i, true);
	if (s->id == TKS_RESPONSE && (!s->open || s->framing == CHUNKED) &&
	    reads_as_chunks(s, data + i, len - i))
		return resume(h, s, rest->off + i);
	if (s->id == TKS_RESPONSE && !s->open && !h->nasked && !i && tks_ws_sniff_middle(data, len))
		return resume_websocket(h, s, rest->off);
	*used = len;
	return 0;
}

/* --- in --- */

static int between(struct tks_http1 *h, struct side *s, const struct tks_slice *rest, size_t *used)
{
	size_t i = 0;

	while (i < rest->len && (rest->data[i] == '\r' || rest->data[i] == '\n'))
		i++;
	*used = i;
	return i < rest->len ? start_head(h, s, rest->off + i, false) : 0;
}

static int read_some(struct tks_http1 *h, struct side *s, const struct tks_slice *rest,
		     size_t *used)
{
	switch (s->place) {
	case BETWEEN:
		return between(h, s, rest, used);
	case HEAD:
		return read_head(h, s, rest, used);
	case BODY:
		return read_body(h, s, rest, used);
	case LOST:
		break;
	}
	return search(h, s, rest, used);
}

int tks_http1_feed(struct tks_http1 *h, enum tks_side side, const struct tks_slice *slice)
{
	struct side *s = &h->side[side];
	struct tks_slice rest = *slice;
	int err = 0;

	while (rest.len && !err && !h->given_up) {
		size_t used = 0;

		err = read_some(h, s, &rest, &used);
		rest.data += used;
		rest.len -= used;
		rest.off += used;
		s->seen_end = rest.off;
	}
	s->seen_end = slice->off + slice->len;
	if (h->given_up)
		return -EBADMSG;
	/* What is left of the slice is dropped, so the framing is lost whatever the reason. */
	if (err)
		lose(h, s, rest.off);
	return err;
}

/* --- gaps and ends --- */

/* Missing bytes of a body; returns how many of them its framing accounts for, or a negative errno.
 */
static int gap_in_body(struct tks_http1 *h, struct side *s, uint64_t off, uint64_t len,
		       uint64_t *known)
{
	uint64_t data = len;
	bool whole = false;
	int err = 0;

	*known = len;
	if (s->framing == COUNTED) {
		if (data > s->owed)
			data = s->owed;
		*known = data;
		s->owed -= data;
		whole = !s->owed;
	} else if (s->framing == CHUNKED) {
		*known = tks_chunked_skip(&s->chunked, len, &data);
		whole = s->chunked.place == TKS_CHUNK_DONE;
	}
	if (data)
		err = h->ops->body_gap(h->ctx, s->id, off, data);
	if (!err && whole)
		err = end_message(h, s, off + *known - 1, TKS_MSG_COMPLETE);
	return err;
}

int tks_http1_gap(struct tks_http1 *h, enum tks_side side, uint64_t off, uint64_t len)
{
	struct side *s = &h->side[side];
	uint64_t known = 0;
	int err = 0;

	if (!len || h->given_up)
		return 0;
	if (s->place == BODY)
		err = gap_in_body(h, s, off, len, &known);
	if (s->place != LOST && (known < len || err))
		err = lose(h, s, off + known) ?: err;
	return err;
}

int tks_http1_eof(struct tks_http1 *h, enum tks_side side, uint64_t off)
{
	struct side *s = &h->side[side];
	bool closed = s->place == BODY && s->framing == UNTIL_CLOSE;
	int err = 0;

	free_headp(h, s);
	if (s->open && closed)
		err = end_message(h, s, off ? off - 1 : 0, TKS_MSG_CLOSED);
	else if (s->open)
		err = cut_message(h, s, s->seen_end);
	s->place = LOST;
	s->tentative = false;
	return err;
}
