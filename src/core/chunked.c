// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The chunked coding as a machine of one byte a step, but for data, which goes by the run.
 */
#include "chunked.h"

#include <errno.h>

static int hex_digit(uint8_t ch)
{
	if (ch >= '0' && ch <= '9')
		return ch - '0';
	ch |= 0x20;
	return ch >= 'a' && ch <= 'f' ? ch - 'a' + 10 : -1;
}

/* No server writes a chunk of a tebibyte: what says so is not chunked coding. */
static const uint64_t chunk_max = 1ull << 40;

static int size_digit(struct tks_chunked *c, int digit)
{
	if (c->owed > chunk_max >> 4)
		return -EBADMSG;
	c->owed = c->owed << 4 | (unsigned int)digit;
	c->place = TKS_CHUNK_DIGITS;
	return 0;
}

static void end_of_size_line(struct tks_chunked *c)
{
	c->place = c->owed ? TKS_CHUNK_DATA : TKS_CHUNK_TRAILER_START;
}

/* Behind the digits. */
static int size_rest(struct tks_chunked *c, uint8_t ch)
{
	switch (ch) {
	case '\r':
		c->place = TKS_CHUNK_SIZE_LF;
		return 0;
	case '\n':
		end_of_size_line(c);
		return 0;
	case ';':
	case ' ':
	case '\t':
		c->place = TKS_CHUNK_EXTENSION;
		return 0;
	default:
		return -EBADMSG;
	}
}

static int size_line(struct tks_chunked *c, uint8_t ch)
{
	int digit = hex_digit(ch);

	switch (c->place) {
	case TKS_CHUNK_SIZE:
		return digit >= 0 ? size_digit(c, digit) : -EBADMSG;
	case TKS_CHUNK_DIGITS:
		return digit >= 0 ? size_digit(c, digit) : size_rest(c, ch);
	case TKS_CHUNK_EXTENSION:
		return ch == '\r' || ch == '\n' ? size_rest(c, ch) : 0;
	default: /* TKS_CHUNK_SIZE_LF */
		if (ch != '\n')
			return -EBADMSG;
		end_of_size_line(c);
		return 0;
	}
}

static int data_end(struct tks_chunked *c, uint8_t ch)
{
	if (ch == '\n')
		c->place = TKS_CHUNK_SIZE;
	else if (ch == '\r' && c->place == TKS_CHUNK_DATA_CR)
		c->place = TKS_CHUNK_DATA_LF;
	else
		return -EBADMSG;
	return 0;
}

static int trailer(struct tks_chunked *c, uint8_t ch)
{
	if (c->place == TKS_CHUNK_TRAILER) {
		if (ch == '\n')
			c->place = TKS_CHUNK_TRAILER_START;
		return 0;
	}
	if (ch == '\n')
		c->place = TKS_CHUNK_DONE;
	else if (c->place == TKS_CHUNK_FINAL_LF)
		return -EBADMSG;
	else
		c->place = ch == '\r' ? TKS_CHUNK_FINAL_LF : TKS_CHUNK_TRAILER;
	return 0;
}

static int step(struct tks_chunked *c, uint8_t ch)
{
	if (c->place <= TKS_CHUNK_SIZE_LF)
		return size_line(c, ch);
	if (c->place <= TKS_CHUNK_DATA_LF)
		return data_end(c, ch);
	return trailer(c, ch);
}

/* Up to n bytes of the chunk's data go by. */
static uint64_t take_data(struct tks_chunked *c, uint64_t n)
{
	if (n > c->owed)
		n = c->owed;
	c->owed -= n;
	if (!c->owed)
		c->place = TKS_CHUNK_DATA_CR;
	return n;
}

enum tks_chunk_event tks_chunked_next(struct tks_chunked *c, const uint8_t *p, size_t len,
				      size_t *used)
{
	size_t i = 0;

	if (c->place == TKS_CHUNK_DATA) {
		*used = (size_t)take_data(c, len);
		return TKS_CHUNK_EV_DATA;
	}
	while (i < len && c->place != TKS_CHUNK_DATA && c->place != TKS_CHUNK_DONE) {
		if (step(c, p[i])) {
			*used = i;
			return TKS_CHUNK_EV_BAD;
		}
		i++;
	}
	*used = i;
	return c->place == TKS_CHUNK_DONE ? TKS_CHUNK_EV_END : TKS_CHUNK_EV_MORE;
}

uint64_t tks_chunked_skip(struct tks_chunked *c, uint64_t len, uint64_t *data)
{
	uint64_t n = 0;

	*data = 0;
	if (c->place == TKS_CHUNK_DATA)
		n = *data = take_data(c, len);
	if (c->place == TKS_CHUNK_DATA_CR && n < len) {
		c->place = TKS_CHUNK_DATA_LF;
		n++;
	}
	if (c->place == TKS_CHUNK_DATA_LF && n < len) {
		c->place = TKS_CHUNK_SIZE;
		n++;
	}
	/* Two bytes are too few for a trailer. */
	if (n < len && ((c->place == TKS_CHUNK_TRAILER_START && len - n == 2) ||
			(c->place == TKS_CHUNK_FINAL_LF && len - n == 1))) {
		c->place = TKS_CHUNK_DONE;
		n = len;
	}
	return n;
}
