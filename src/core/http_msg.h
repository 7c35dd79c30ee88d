/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What an HTTP message is to those who read it, whichever version framed it.
 */
#ifndef TKS_HTTP_MSG_H
#define TKS_HTTP_MSG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tks_side { TKS_REQUEST = 0, TKS_RESPONSE = 1 };

enum tks_msg_end {
	TKS_MSG_COMPLETE = 1, /* its framing says it is whole */
	TKS_MSG_CLOSED = 2, /* delimited by the end of the connection, which came: whole too */
	TKS_MSG_CUT = 3, /* the direction ended, or the next message began, before it was whole */
};

struct tks_http_head {
	enum tks_side side;
	uint64_t first_off, last_off; /* of the head's bytes; last_off is its final byte */
	uint16_t status; /* responses */
	uint8_t major, minor;
	bool keep_alive; /* HTTP/1 */
	bool chunked; /* HTTP/1 */
	bool upgrade; /* 101, or CONNECT's 2xx */
	bool resumed; /* no head was seen: the message was entered in its middle; all below is empty
		       */
	bool truncated; /* something did not fit below */
	bool unknowable; /* HTTP/2: some fields were written as references into a table that began
			  * before the trace did; those below may be among them */
	int64_t content_length; /* -1: none */
	char method[16];
	char target[256]; /* as sent, query and all */
	char content_type[64]; /* lower case, without parameters */
	char content_encoding[32]; /* lower case */
	char server[64];
	char upgrade_to[32]; /* lower case */
	char ws_extensions[128]; /* Sec-WebSocket-Extensions, lower case */
	char grpc_encoding[16]; /* lower case */
	char grpc_status[8]; /* in trailers, or a response of trailers only */
	char product[24]; /* told by a field only one product sends: "dynamo", "litellm", "tgi" */
};

/* A header field that is kept, and how. */
struct tks_http_field {
	const char *name; /* lower case */
	size_t offset, size; /* of its place in struct tks_http_head */
	bool lower; /* its value is the same in any case */
	bool cut_params; /* of no interest from ';' on */
	const char *says; /* the value kept is this, whatever the field's; NULL: the field's own */
};

/* NULL: not kept. name need not be terminated; lower case. */
const struct tks_http_field *tks_http_field_named(const char *name, size_t len);

/* Where the value of the field goes. */
static inline char *tks_http_field_place(struct tks_http_head *h, const struct tks_http_field *f)
{
	return (char *)h + f->offset;
}

/* A whole field: kept if it is one of those and the first of its name. */
void tks_http_field_set(struct tks_http_head *h, const char *name, size_t name_len,
			const char *value, size_t len);

#endif
