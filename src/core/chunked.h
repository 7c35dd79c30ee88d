/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The chunked transfer coding (RFC 9112, section 7.1), resumable at any byte. http1.c takes it off
 * here rather than in llhttp, because of gaps: it must know to the byte what the current chunk
 * still owes, must be able to begin at a size line, and must notice at once when a chunk's data
 * does not end where it should (llhttp as Debian builds it steps over those two bytes unseen).
 *
 * Tolerant where real peers are: hex in any case, leading zeros, blanks and extensions behind the
 * size, a bare LF as line end.
 */
#ifndef TKS_CHUNKED_H
#define TKS_CHUNKED_H

#include <stddef.h>
#include <stdint.h>

enum tks_chunk_place {
	TKS_CHUNK_SIZE = 0, /* at the start of a size line */
	TKS_CHUNK_DIGITS,
	TKS_CHUNK_EXTENSION,
	TKS_CHUNK_SIZE_LF,
	TKS_CHUNK_DATA,
	TKS_CHUNK_DATA_CR, /* before the CRLF behind the data */
	TKS_CHUNK_DATA_LF,
	TKS_CHUNK_TRAILER_START, /* at the start of a trailer line, or of the final CRLF */
	TKS_CHUNK_TRAILER,
	TKS_CHUNK_FINAL_LF,
	TKS_CHUNK_DONE,
};

/* Zero-initialised: at the start of the first size line. */
struct tks_chunked {
	uint64_t owed; /* data bytes that the current chunk still owes */
	uint8_t place; /* enum tks_chunk_place */
};

enum tks_chunk_event {
	TKS_CHUNK_EV_MORE = 0, /* all was taken, none of it data */
	TKS_CHUNK_EV_DATA, /* what was taken is data, all of it */
	TKS_CHUNK_EV_END, /* what was taken ends the body */
	TKS_CHUNK_EV_BAD, /* the byte behind what was taken can't be chunked coding */
};

/* Takes *used of len (> 0) bytes: either data or what lies between. */
enum tks_chunk_event tks_chunked_next(struct tks_chunked *c, const uint8_t *p, size_t len,
				      size_t *used);

/*
 * Steps over missing bytes as far as it is certain what they were: data that is owed, the CRLF
 * behind it, the final CRLF. Returns how many of len those are, and in *data how many of them data.
 */
uint64_t tks_chunked_skip(struct tks_chunked *c, uint64_t len, uint64_t *data);

#endif
