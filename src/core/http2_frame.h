/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Frame headers of HTTP/2 (RFC 9113, sections 4.1 and 6): what they say, and whether they can.
 */
#ifndef TKS_HTTP2_FRAME_H
#define TKS_HTTP2_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TKS_H2_FRAME_HEAD = 9, TKS_H2_PREFACE = 24 };

enum tks_h2_type {
	TKS_H2_DATA = 0,
	TKS_H2_HEADERS,
	TKS_H2_PRIORITY,
	TKS_H2_RST_STREAM,
	TKS_H2_SETTINGS,
	TKS_H2_PUSH_PROMISE,
	TKS_H2_PING,
	TKS_H2_GOAWAY,
	TKS_H2_WINDOW_UPDATE,
	TKS_H2_CONTINUATION,
};

enum tks_h2_flag {
	TKS_H2_END_STREAM = 0x1, /* DATA, HEADERS */
	TKS_H2_ACK = 0x1, /* SETTINGS, PING */
	TKS_H2_END_HEADERS = 0x4,
	TKS_H2_PADDED = 0x8,
	TKS_H2_HAS_PRIORITY = 0x20, /* HEADERS */
};

struct tks_h2_frame {
	uint32_t len; /* of the payload */
	uint32_t stream;
	uint8_t type, flags;
};

extern const char tks_h2_preface[TKS_H2_PREFACE + 1];

/* data: TKS_H2_FRAME_HEAD octets. The reserved bit is ignored. */
void tks_h2_frame_read(struct tks_h2_frame *f, const uint8_t *data);

/* The payload begins with the length of its padding. */
bool tks_h2_frame_padded(const struct tks_h2_frame *f);

/* Octets at the payload's start that are neither content nor padding. */
uint32_t tks_h2_frame_fixed(const struct tks_h2_frame *f);

/* True if the header can be one where a frame is known to begin. */
bool tks_h2_frame_valid(const struct tks_h2_frame *f);

/*
 * Counts the frames that data consists of; the last one may reach beyond. -1: it can't begin at a
 * frame. This is strict: only what is usual passes, so that other data do not. *whole: how many lie
 * in data to their end. *side: who sends them, if the frames tell, else -1.
 */
int tks_h2_frames_count(const uint8_t *data, size_t len, int *whole, int *side);

#endif
