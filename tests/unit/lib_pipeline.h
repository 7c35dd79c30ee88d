/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Feeding a pipeline by hand, for test_pipeline.c: one clock, connections by number, text as bytes.
 */
#ifndef LIB_PIPELINE_H
#define LIB_PIPELINE_H

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "tokensnoop/event.h"
#include "tokensnoop/pipeline.h"

enum { LIB_RECORDS = 64, LIB_TIMES = 64 };

struct lib_record {
	struct tks_request r;
	int64_t at[LIB_TIMES];
};

struct lib_pipe {
	struct tks_mem mem;
	struct tks_pipeline *p;
	uint64_t now; /* ns */
	const char *unix_name; /* the connections are unix sockets of this server's; NULL: TCP */
	bool met; /* not opened, but met */
	bool returns_unseen; /* of sends */
	uint32_t rx_seq[8], tx_seq[8];
	struct lib_record rec[LIB_RECORDS];
	size_t n;
	uint64_t verdict_conn;
	enum tks_verdict verdict;
	unsigned int verdicts;
};

static inline void lib_on_request(void *ctx, const struct tks_request *r)
{
	struct lib_pipe *l = ctx;
	struct lib_record *rec = &l->rec[l->n];

	if (l->n == LIB_RECORDS)
		abort();
	l->n++;
	rec->r = *r;
	memset(rec->at, 0, sizeof(rec->at));
	for (size_t i = 0; i < r->ntoken_at && i < LIB_TIMES; i++)
		rec->at[i] = r->token_at_ns[i];
}

static inline void lib_on_verdict(void *ctx, uint64_t conn, enum tks_verdict v)
{
	struct lib_pipe *l = ctx;

	l->verdict_conn = conn;
	l->verdict = v;
	l->verdicts++;
}

static inline int lib_open_pipe(struct lib_pipe *l, struct tks_pipeline_config cfg)
{
	int err;

	cfg.mem = &l->mem;
	cfg.on_request = lib_on_request;
	cfg.on_verdict = lib_on_verdict;
	cfg.ctx = l;
	l->p = tks_pipeline_new(&cfg, &err);
	return err;
}

static inline void lib_event(struct lib_pipe *l, int conn, struct tks_event *ev)
{
	ev->conn = (uint64_t)conn;
	ev->ts_ns = l->now;
	if (l->unix_name) {
		ev->local.family = ev->peer.family = AF_UNIX;
		memset(ev->local.addr, 7, sizeof(ev->local.addr));
		return;
	}
	ev->local.family = ev->peer.family = AF_INET;
	memcpy(ev->local.addr, "\x7f\0\0\1", 4);
	memcpy(ev->peer.addr, "\x7f\0\0\1", 4);
	ev->local.port = 8000;
	ev->peer.port = (uint16_t)(40000 + conn);
}

static inline int lib_open(struct lib_pipe *l, int conn)
{
	struct tks_event ev = { .kind = TKS_EV_OPEN, .role = TKS_ROLE_SERVER };

	l->rx_seq[conn] = 1000;
	l->tx_seq[conn] = 0xfffffff0; /* wraps after 16 bytes */
	ev.rx_seq = l->rx_seq[conn];
	ev.tx_seq = l->tx_seq[conn];
	if (l->unix_name) {
		ev.met = l->met;
		ev.data = (const uint8_t *)l->unix_name;
		ev.cap = (uint32_t)strlen(l->unix_name);
	}
	lib_event(l, conn, &ev);
	return tks_pipeline_feed(l->p, &ev);
}

/* len bytes at the direction's sequence number; keep: the pipeline sees them, else they are lost.
 */
static inline int lib_bytes(struct lib_pipe *l, int conn, enum tks_dir dir, const void *data,
			    size_t len, bool keep)
{
	uint32_t *seq = dir == TKS_TX ? &l->tx_seq[conn] : &l->rx_seq[conn];
	struct tks_event ev = { .kind = TKS_EV_DATA, .dir = dir };
	int err = 0;

	ev.seq = *seq;
	ev.len = ev.cap = (uint32_t)len;
	ev.data = data;
	lib_event(l, conn, &ev);
	if (dir == TKS_TX) {
		ev.ret_ns = l->returns_unseen ? 0 : l->now + 500;
		ev.proc.pid = 77;
		memcpy(ev.proc.comm, "srv", 4);
	}
	if (keep)
		err = tks_pipeline_feed(l->p, &ev);
	*seq += (uint32_t)len;
	return err;
}

static inline int lib_rx(struct lib_pipe *l, int conn, const char *text)
{
	return lib_bytes(l, conn, TKS_RX, text, strlen(text), true);
}

static inline int lib_tx(struct lib_pipe *l, int conn, const char *text)
{
	return lib_bytes(l, conn, TKS_TX, text, strlen(text), true);
}

static inline int lib_fin(struct lib_pipe *l, int conn, enum tks_dir dir)
{
	struct tks_event ev = { .kind = TKS_EV_FIN, .dir = dir };

	ev.seq = dir == TKS_TX ? l->tx_seq[conn] : l->rx_seq[conn];
	lib_event(l, conn, &ev);
	return tks_pipeline_feed(l->p, &ev);
}

static inline int lib_close(struct lib_pipe *l, int conn, uint32_t err)
{
	struct tks_event ev = { .kind = TKS_EV_CLOSE, .err = err, .seq_known = true };

	ev.tx_seq = l->tx_seq[conn];
	ev.rx_seq = l->rx_seq[conn];
	lib_event(l, conn, &ev);
	return tks_pipeline_feed(l->p, &ev);
}

/* One HTTP chunk around text. */
static inline char *lib_chunk(char *buf, size_t len, const char *text)
{
	snprintf(buf, len, "%zx\r\n%s\r\n", strlen(text), text);
	return buf;
}

static inline int lib_tx_chunk(struct lib_pipe *l, int conn, const char *text)
{
	char buf[4096];

	return lib_tx(l, conn, lib_chunk(buf, sizeof(buf), text));
}

#endif
