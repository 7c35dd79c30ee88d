/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * gRPC's length-prefixed messages: u8 compressed, u32 length (big endian), message ("gRPC over
 * HTTP2", section Requests). Compressed ones are inflated by the codec that grpc-encoding names.
 */
#ifndef TKS_GRPC_H
#define TKS_GRPC_H

#include <stdbool.h>
#include <stdint.h>

#include "codec.h"
#include "slice.h"

struct tks_grpc_message {
	uint64_t first_off, last_off; /* of the prefix's first byte and the message's last */
	uint64_t bytes; /* of the message, inflated */
	bool broken; /* could not be inflated, or bytes are missing */
};

struct tks_grpc_ops {
	void (*data)(void *ctx, const struct tks_slice *s);
	void (*message)(void *ctx, const struct tks_grpc_message *m);
};

struct tks_grpc {
	struct tks_mem *mem;
	const struct tks_grpc_ops *ops;
	void *ctx;
	enum tks_coding coding;
	struct tks_codec *codec; /* made when the first compressed message comes */
	struct tks_grpc_message cur;
	uint8_t prefix[5], nprefix;
	bool compressed, lost;
	uint32_t left;
	uint64_t wire_off;
};

/* encoding: grpc-encoding's value, "" for none. */
void tks_grpc_init(struct tks_grpc *g, struct tks_mem *mem, const char *encoding,
		   const struct tks_grpc_ops *ops, void *ctx);
void tks_grpc_free(struct tks_grpc *g);

/* 0; -EBADMSG: not gRPC (a flag other than 0 and 1): all further bytes are dropped; -ENOMEM: the
 * message is broken. */
int tks_grpc_feed(struct tks_grpc *g, const struct tks_slice *s);

/* Bytes are missing; len 0: unknown how many, then nothing more can be framed. Within a message it
 * is stepped over, and the message is broken. */
void tks_grpc_gap(struct tks_grpc *g, uint64_t len);

#endif
