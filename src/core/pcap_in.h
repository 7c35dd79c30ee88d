/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Packet files -> events. Finds TCP connections among packets and tells their story from the
 * server's side, as if the capture had been taken at its socket: local is the server, TX is what it
 * sent.
 */
#ifndef TKS_PCAP_IN_H
#define TKS_PCAP_IN_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "packet.h"
#include "tokensnoop/event.h"
#include "tokensnoop/mem.h"

struct tks_pcap_in;

struct tks_pcap_in_config {
	struct tks_mem *mem;
	const uint16_t *ports; /* of servers: other connections are skipped; copied */
	size_t nports; /* at most TKS_PCAP_PORTS_MAX; 0: every connection */
	uint32_t max_connections; /* 0: 65536; past it the one idle longest is forgotten */
	/* In the order of the packets; the event is valid during the call only. */
	void (*on_event)(void *ctx, const struct tks_event *ev);
	void *ctx;
};

enum {
	TKS_PCAP_PORTS_MAX = 16,
	/* What is kept of a connection entered in its middle until a payload tells which end is the
	   server. */
	TKS_PCAP_HOLD_SEGMENTS = 16,
	TKS_PCAP_HOLD_BYTES = 64 * 1024,
};

struct tks_pcap_counters {
	uint64_t packets; /* read; those that were of use are skipped[TKS_SKIP_NONE] */
	uint64_t skipped[TKS_SKIPS]; /* by enum tks_skip */
	uint64_t connections, evicted;
	uint64_t no_memory; /* packets dropped because the budget was used up */
};

/* NULL without memory or with too many ports. */
struct tks_pcap_in *tks_pcap_in_new(const struct tks_pcap_in_config *cfg);
void tks_pcap_in_free(struct tks_pcap_in *in);

/*
 * Takes a packet of link type link (DLT_), captured at ts_ns since the epoch: cap of its len bytes
 * are at data. 0, or -ENOMEM: it was dropped, and counted.
 */
int tks_pcap_in_packet(struct tks_pcap_in *in, int link, uint64_t ts_ns, const uint8_t *data,
		       uint32_t cap, uint32_t len);

/*
 * Begins a file, pcap or pcapng; f is closed by the next open, by close, or by free, and at once on
 * failure. The connections stay: a capture may be cut into several files. 0, -EBADMSG (not a packet
 * file, or its header is broken), -EPROTONOSUPPORT (link type): why then has a line for people.
 */
int tks_pcap_in_open(struct tks_pcap_in *in, FILE *f, char *why, size_t why_len);

/* After open, before the first next: the time of the file's first packet, UINT64_MAX when it has
 * none. */
uint64_t tks_pcap_in_ahead(const struct tks_pcap_in *in);

/*
 * Takes the file's next packet. 1; 0 at the end; -ENODATA: the file ends inside a packet; -EBADMSG:
 * what follows can't be read: why then has a line for people. -ENOMEM as above, the next call goes
 * on.
 */
int tks_pcap_in_next(struct tks_pcap_in *in, char *why, size_t why_len);

void tks_pcap_in_close(struct tks_pcap_in *in);

/* Time of the latest packet so far; 0: none. */
uint64_t tks_pcap_in_now(const struct tks_pcap_in *in);

/*
 * No more packets will come: tells what was held back. Connections that were not closed are left
 * open, and forgotten; so is the time. The counters and an open file stay.
 */
void tks_pcap_in_finish(struct tks_pcap_in *in);

void tks_pcap_in_counters(const struct tks_pcap_in *in, struct tks_pcap_counters *out);

#endif
