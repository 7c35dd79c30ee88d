/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One captured packet -> its TCP segment, through the link and IP headers. Stateless; reads nothing
 * beyond the captured bytes. Checksums are not looked at: packets captured where they were sent
 * have none yet.
 */
#ifndef TKS_PACKET_H
#define TKS_PACKET_H

#include <stdbool.h>
#include <stdint.h>

#include "tokensnoop/event.h"

enum tks_tcp_flags { TKS_TCP_FIN = 1, TKS_TCP_SYN = 2, TKS_TCP_RST = 4, TKS_TCP_ACK = 16 };

struct tks_packet {
	struct tks_endpoint src, dst;
	uint32_t seq, ack;
	uint8_t flags; /* enum tks_tcp_flags, and others */
	uint32_t len; /* bytes of payload as sent, by the IP header */
	uint32_t cap; /* of which so many were captured, at data */
	const uint8_t *data;
};

/* Why a packet brings nothing. */
enum tks_skip {
	TKS_SKIP_NONE = 0,
	TKS_SKIP_NOT_IP,
	TKS_SKIP_NOT_TCP,
	TKS_SKIP_FRAGMENT, /* of an IP packet: not put together */
	TKS_SKIP_TRUNCATED, /* captured too short to hold the headers */
	TKS_SKIP_BAD, /* headers contradict each other */
	TKS_SKIP_FILTERED, /* no port that was asked for */
	TKS_SKIP_LATE, /* its connection had ended */
	TKS_SKIP_EMPTY, /* no payload, and of a connection not known */
	TKS_SKIPS,
};

/* A short name for people. */
const char *tks_skip_name(enum tks_skip why);

/* link: a DLT_ value. */
bool tks_packet_link_known(int link);

/* len: the packet's length on the wire; cap <= len bytes of it are at data. TKS_SKIP_NONE: *p is
 * filled. */
enum tks_skip tks_packet_parse(int link, const uint8_t *data, uint32_t cap, uint32_t len,
			       struct tks_packet *p);

#endif
