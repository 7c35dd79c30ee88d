/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * application/vnd.amazon.eventstream: binary messages of headers and a payload, big endian:
 *
 *   u32 total length | u32 headers length | u32 CRC of these 8 bytes | headers | payload | u32 CRC
 *
 * (AWS "Event stream encoding"; botocore/eventstream.py). CRC-32 is zlib's. A header is u8 name
 * length, name, u8 type, value; type 7 is a string with u16 length.
 */
#ifndef TKS_AWS_EVENTS_H
#define TKS_AWS_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "slice.h"

struct tks_aws_event {
	uint64_t first_off, last_off;
	char message_type[16]; /* ":message-type": event, exception, error */
	char type[48]; /* ":event-type", or ":exception-type", or ":error-code" */
	uint64_t payload_bytes;
	bool bad_crc; /* of the message: its payload is not to be believed */
};

struct tks_aws_ops {
	/* The headers of the message under way are known; offsets and bad_crc not yet. */
	void (*begin)(void *ctx, const struct tks_aws_event *e);
	void (*payload)(void *ctx, const struct tks_slice *s);
	void (*event)(void *ctx, const struct tks_aws_event *e);
	/* What was begun is void (a gap). */
	void (*reset)(void *ctx);
};

struct tks_aws_events {
	const struct tks_aws_ops *ops;
	void *ctx;
	struct tks_aws_event cur;
	uint8_t place; /* and all below: the reader's own */
	uint8_t buf[12], nbuf;
	uint8_t name_len, value_type;
	uint8_t field;
	char name[24];
	uint32_t total, headers_len, left, value_left, crc;
	bool begun;
};

void tks_aws_events_init(struct tks_aws_events *a, const struct tks_aws_ops *ops, void *ctx);

/* 0; -EBADMSG: not an event stream (the prelude's CRC is wrong, lengths can't be, or pass 24 MiB +
 * 128 KiB); from then on it looks for a prelude with a right CRC at the starts of slices. */
int tks_aws_events_feed(struct tks_aws_events *a, const struct tks_slice *s);

/* Bytes are missing: the message under way is void (stepped over exactly if the gap lies within
 * it), then the next prelude with a right CRC at the start of a slice is taken. */
void tks_aws_events_gap(struct tks_aws_events *a, uint64_t len);

#endif
