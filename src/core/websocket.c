// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "websocket.h"

#include <errno.h>
#include <string.h>

#include "codec.h"

enum {
	FIN = 0x80,
	RSV1 = 0x40, /* permessage-deflate: the message is compressed */
	RSV_OTHER = 0x30,
	OPCODE = 0x0f,
	MASKED = 0x80,
	LEN7 = 0x7f,
	LEN_16BIT = 126,
	LEN_64BIT = 127,
	HEADER_MAX = 14,
	CONTROL_MAX = 125,
	SEEK_LEN_MAX = 16 << 20, /* what a frame looked for may have */
	CLOSE_CODE_LOST = 3, /* bytes of it are missing */
};

enum opcode { CONTINUATION = 0, TEXT = 1, BINARY = 2, CLOSE = 8, PING = 9, PONG = 10 };

struct tks_ws {
	struct tks_mem *mem;
	enum tks_side side;
	const struct tks_ws_ops *ops;
	void *ctx;
	struct tks_codec *codec; /* made when the first compressed message comes */
	bool deflate, takeover; /* the extension; it keeps its window */
	bool window_lost; /* with takeover: what is compressed can't be read any more */
	bool dead, seeking;
	bool adrift; /* found again: a message may go on whose beginning is missing */
	uint8_t head[HEADER_MAX], nhead;
	uint64_t head_off; /* of its first octet */
	bool in_payload;
	uint8_t opcode; /* of the frame under way */
	bool fin;
	uint64_t left;
	uint8_t mask[4], phase; /* all 0: none */
	bool begun, compressed;
	struct tks_ws_message cur;
	uint8_t close_code[2], nclose;
	uint64_t wire_off;
};

/* --- headers --- */

static bool is_control(uint8_t opcode)
{
	return opcode & 8;
}

/* Octets that the header has, as far as those there tell. */
static unsigned int head_len(const uint8_t *h, unsigned int n)
{
	unsigned int len = 2;

	if (n < 2)
		return len;
	if ((h[1] & LEN7) == LEN_16BIT)
		len += 2;
	if ((h[1] & LEN7) == LEN_64BIT)
		len += 8;
	return len + (h[1] & MASKED ? 4 : 0);
}

static uint64_t payload_len(const uint8_t *h)
{
	unsigned int n = h[1] & LEN7, octets = n == LEN_16BIT ? 2 : n == LEN_64BIT ? 8 : 0;
	uint64_t len = octets ? 0 : n;

	for (unsigned int i = 0; i < octets; i++)
		len = len << 8 | h[2 + i];
	return len;
}

static bool opcode_valid(uint8_t first)
{
	uint8_t opcode = first & OPCODE;

	return opcode <= BINARY || (opcode >= CLOSE && opcode <= PONG && first & FIN);
}

static bool head_valid(const uint8_t *h)
{
	if (!opcode_valid(h[0]) || payload_len(h) >> 63)
		return false;
	return !is_control(h[0] & OPCODE) || (h[1] & LEN7) <= CONTROL_MAX;
}

/* --- messages --- */

static void break_message(struct tks_ws *w)
{
	w->cur.broken = true;
	if (w->compressed && w->takeover)
		w->window_lost = true;
}

static int begin_compressed(struct tks_ws *w)
{
	if (!w->deflate || w->window_lost) {
		w->cur.broken = true;
		return 0;
	}
	if (!w->codec) {
		w->codec = tks_codec_new(w->mem, TKS_CODING_RAW_DEFLATE);
		if (!w->codec) {
			break_message(w);
			return -ENOMEM;
		}
	} else if (!w->takeover) {
		tks_codec_reset(w->codec);
	}
	return 0;
}

static int begin_message(struct tks_ws *w)
{
	w->begun = true;
	w->compressed = w->head[0] & RSV1;
	w->cur = (struct tks_ws_message){ .first_off = w->head_off, .text = w->opcode == TEXT };
	return w->compressed ? begin_compressed(w) : 0;
}

/* The first frame of it that was seen is a continuation. */
static void begin_without_beginning(struct tks_ws *w)
{
	w->begun = true;
	w->compressed = false;
	w->cur = (struct tks_ws_message){ .first_off = w->head_off, .broken = true };
}

static int on_bytes(void *ctx, const uint8_t *data, size_t len)
{
	struct tks_ws *w = ctx;
	struct tks_slice s = { data, len, w->wire_off };

	w->cur.bytes += len;
	w->ops->data(w->ctx, &s);
	return 0;
}

static int inflated(struct tks_ws *w, const uint8_t *data, size_t len)
{
	int err = tks_codec_feed(w->codec, data, len, on_bytes, w);

	if (err)
		break_message(w);
	return err == -ENOMEM ? err : 0;
}

static int end_message(struct tks_ws *w, uint64_t last_off)
{
	/* What every compressed message ends with is not sent (RFC 7692, section 7.2.2). */
	static const uint8_t tail[] = { 0, 0, 0xff, 0xff };
	int err = 0;

	w->wire_off = last_off;
	if (w->compressed && !w->cur.broken)
		err = inflated(w, tail, sizeof(tail));
	w->cur.last_off = last_off;
	w->begun = false;
	w->ops->message(w->ctx, &w->cur);
	return err;
}

static int end_frame(struct tks_ws *w, uint64_t last_off)
{
	w->in_payload = false;
	w->nhead = 0;
	if (w->opcode == CLOSE) {
		uint16_t code = (uint16_t)(w->close_code[0] << 8 | w->close_code[1]);

		w->ops->close(w->ctx, w->nclose == 2 ? code : 0, last_off);
	}
	return w->fin && !is_control(w->opcode) ? end_message(w, last_off) : 0;
}

/* A header is whole. */
static int begin_frame(struct tks_ws *w, uint64_t off)
{
	const uint8_t *h = w->head;
	bool fresh;
	int err = 0;

	w->opcode = h[0] & OPCODE;
	fresh = w->opcode == TEXT || w->opcode == BINARY;
	if (w->opcode == CONTINUATION && !w->begun && w->adrift)
		begin_without_beginning(w);
	if (!head_valid(h) || (fresh && w->begun) || (w->opcode == CONTINUATION && !w->begun))
		return -EBADMSG;
	w->adrift &= is_control(w->opcode);
	w->fin = h[0] & FIN;
	w->left = payload_len(h);
	w->in_payload = true;
	w->phase = 0;
	w->nclose = 0;
	memset(w->mask, 0, sizeof(w->mask));
	if (h[1] & MASKED)
		memcpy(w->mask, h + w->nhead - sizeof(w->mask), sizeof(w->mask));
	if (fresh)
		err = begin_message(w);
	/* Bits that nobody gave a meaning for such a frame. */
	if (!is_control(w->opcode) && h[0] & (fresh ? RSV_OTHER : RSV_OTHER | RSV1))
		break_message(w);
	if (!w->left)
		err = end_frame(w, off) ?: err;
	return err;
}

static int plain(struct tks_ws *w, const uint8_t *data, size_t len)
{
	if (w->opcode == CLOSE) {
		for (size_t i = 0; i < len && w->nclose < 2; i++)
			w->close_code[w->nclose++] = data[i];
	}
	if (is_control(w->opcode) || w->cur.broken)
		return 0;
	return w->compressed ? inflated(w, data, len) : on_bytes(w, data, len);
}

static int payload(struct tks_ws *w, const struct tks_slice *s)
{
	uint8_t out[1024];
	int err = 0;

	w->wire_off = s->off + s->len - 1;
	if (!(w->head[1] & MASKED))
		return plain(w, s->data, s->len);
	for (size_t i = 0, n; i < s->len; i += n) {
		for (n = 0; n < sizeof(out) && i + n < s->len; n++)
			out[n] = s->data[i + n] ^ w->mask[w->phase++ & 3];
		err = plain(w, out, n) ?: err;
	}
	return err;
}

/* --- bytes --- */

/* True if the slice begins with a header, and behind its payload another, as far as it reaches. */
static bool is_frame(const struct tks_ws *w, const uint8_t *p, size_t n)
{
	const uint8_t *begin = p;

	do {
		unsigned int len = head_len(p, n < 2 ? (unsigned int)n : 2);

		if (!opcode_valid(p[0]) || p[0] & RSV_OTHER || (p[0] & RSV1 && !w->deflate))
			return false;
		if (n < len)
			return p != begin;
		if (!head_valid(p) || !(p[1] & MASKED) != (w->side == TKS_RESPONSE) ||
		    payload_len(p) > SEEK_LEN_MAX)
			return false;
		if (payload_len(p) >= n - len)
			return true;
		n -= len + (size_t)payload_len(p);
		p += len + payload_len(p);
	} while (n);
	return true;
}

bool tks_ws_sniff_middle(const uint8_t *data, size_t len)
{
	/* Compressed frames show nothing that could be believed. */
	static const struct tks_ws plain_server = { .side = TKS_RESPONSE };
	unsigned int head = head_len(data, len < 2 ? (unsigned int)len : 2);
	uint64_t n;

	if (len < head || data[0] != (FIN | TEXT) || !is_frame(&plain_server, data, len))
		return false;
	n = payload_len(data);
	if (n < 2 || n > len - head)
		return false;
	data += head;
	return data[0] == '{' && (data[1] == '"' || data[1] == ' ') && data[n - 1] == '}';
}

static bool found(struct tks_ws *w, const struct tks_slice *s)
{
	if (!is_frame(w, s->data, s->len))
		return false;
	w->seeking = false;
	w->nhead = 0;
	w->in_payload = false;
	w->adrift = true;
	return true;
}

/* Of the slice's octets; sets how many it used. */
static int some(struct tks_ws *w, const struct tks_slice *s, size_t *used)
{
	struct tks_slice part = { s->data, 1, s->off };
	int err;

	*used = 1;
	if (!w->in_payload) {
		if (!w->nhead)
			w->head_off = s->off;
		w->head[w->nhead++] = *s->data;
		if (w->nhead < head_len(w->head, w->nhead))
			return 0;
		return begin_frame(w, s->off);
	}
	part.len = s->len < w->left ? s->len : (size_t)w->left;
	*used = part.len;
	err = payload(w, &part);
	w->left -= part.len;
	return w->left ? err : end_frame(w, s->off + part.len - 1) ?: err;
}

int tks_ws_feed(struct tks_ws *w, const struct tks_slice *in)
{
	struct tks_slice s = *in;
	int err = 0;

	if (w->dead || !s.len || (w->seeking && !found(w, &s)))
		return 0;
	while (s.len) {
		size_t used;
		int ret = some(w, &s, &used);

		if (ret == -EBADMSG) {
			w->dead = true;
			return ret;
		}
		err = ret ?: err;
		s.data += used;
		s.off += used;
		s.len -= used;
	}
	return err;
}

void tks_ws_gap(struct tks_ws *w, uint64_t off, uint64_t len)
{
	if (w->dead)
		return;
	if (w->begun && !(w->in_payload && is_control(w->opcode)))
		break_message(w);
	if (w->nclose < sizeof(w->close_code))
		w->nclose = CLOSE_CODE_LOST;
	if (w->in_payload && len && len <= w->left) {
		w->left -= len;
		w->phase = (uint8_t)(w->phase + len);
		if (!w->left)
			end_frame(w, off + len - 1);
		return;
	}
	/* Compressed messages may be among what is missing. */
	w->window_lost |= w->takeover;
	if (w->begun) {
		w->cur.broken = true;
		w->cur.last_off = off;
		w->begun = false;
		w->ops->message(w->ctx, &w->cur);
	}
	w->seeking = true;
}

/* --- life --- */

/* An extension or a parameter is named so. */
static bool is_named(const char *s, const char *name)
{
	size_t n = strlen(name);

	s += strspn(s, " \t");
	return !strncmp(s, name, n) && (!s[n] || strchr(" \t=;,", s[n]));
}

/* The next of those marks that is not within quotes, or the end. */
static const char *next_mark(const char *s, const char *marks)
{
	for (bool quoted = false; *s && (quoted || !strchr(marks, *s)); s++)
		quoted ^= *s == '"';
	return s;
}

static void read_extensions(struct tks_ws *w, const char *s)
{
	const char *no_takeover = w->side == TKS_RESPONSE ? "server_no_context_takeover"
							  : "client_no_context_takeover";

	while (*s && !is_named(s, "permessage-deflate")) {
		s = next_mark(s, ",");
		s += *s == ',';
	}
	if (!*s)
		return;
	w->deflate = w->takeover = true;
	for (s = next_mark(s, ";,"); *s == ';'; s = next_mark(s + 1, ";,"))
		w->takeover &= !is_named(s + 1, no_takeover);
}

struct tks_ws *tks_ws_new(struct tks_mem *mem, enum tks_side side, const char *extensions,
			  const struct tks_ws_ops *ops, void *ctx)
{
	struct tks_ws *w = tks_mem_alloc(mem, sizeof(*w));

	if (!w)
		return NULL;
	w->mem = mem;
	w->side = side;
	w->ops = ops;
	w->ctx = ctx;
	read_extensions(w, extensions);
	return w;
}

void tks_ws_free(struct tks_ws *w)
{
	if (!w)
		return;
	tks_codec_free(w->codec);
	tks_mem_free(w->mem, w, sizeof(*w));
}
