// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Fuzzes pcap_in. An input that begins with a savefile's or a pcapng's magic is read as a file
 * (seeds: tests/golden/run_golden.py --write CASE); any other is a text of segments, one a line,
 * which reaches the logic of connections faster:
 *
 *     END PORT FLAGS SEQ ACK TEXT
 *
 * - END is c (client) or s (server), followed by one digit of the client's PORT; t as END lets
 *   half a second pass;
 * - FLAGS are of S, A, F, R, P, or - for none; SEQ and ACK are decimal.
 *
 * Oracles: what event.h promises; an opening comes first and once, nothing comes after a close;
 * memory stays in its budget and is given back; the same input tells the same story twice,
 * whatever the hash seed.
 */
#include <pcap/dlt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pcap_in.h"

enum { MEMORY = 1 << 20, CONNECTIONS = 8, KEYS = 4096 };

#define must(x)                                                                                    \
	do {                                                                                       \
		if (!(x))                                                                          \
			abort();                                                                   \
	} while (0)

struct story {
	uint64_t hash, events;
	uint8_t seen[KEYS]; /* by key: 1 told of, 2 closed */
};

static void hash_in(struct story *s, const void *data, size_t n)
{
	const uint8_t *p = data;

	for (size_t i = 0; i < n; i++)
		s->hash = (s->hash ^ p[i]) * 0x100000001b3;
}

static void on_event(void *ctx, const struct tks_event *ev)
{
	struct story *s = ctx;
	uint8_t *seen;

	must(ev->conn != 0 && ev->role == TKS_ROLE_SERVER);
	must(ev->kind >= TKS_EV_OPEN && ev->kind <= TKS_EV_CLOSE);
	must(ev->cap <= ev->len && (ev->kind == TKS_EV_DATA || !ev->len));
	must(ev->local.family == ev->peer.family);
	s->events++;
	hash_in(s, &ev->kind, sizeof(ev->kind));
	hash_in(s, &ev->conn, sizeof(ev->conn));
	hash_in(s, &ev->ts_ns, sizeof(ev->ts_ns));
	hash_in(s, &ev->seq, sizeof(ev->seq));
	hash_in(s, ev->data, ev->cap);
	if (ev->conn >= KEYS)
		return;
	seen = &s->seen[ev->conn];
	must(*seen != 2);
	must(ev->kind != TKS_EV_OPEN || !*seen);
	*seen = ev->kind == TKS_EV_CLOSE ? 2 : 1;
}

static void run_file(struct tks_pcap_in *in, const uint8_t *data, size_t size)
{
	FILE *f = fmemopen((void *)data, size, "r");
	char why[256];

	must(f);
	if (tks_pcap_in_open(in, f, why, sizeof(why)))
		return;
	while (tks_pcap_in_next(in, why, sizeof(why)) == 1)
		;
}

static void put16(uint8_t *p, unsigned int v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

static void put32(uint8_t *p, uint32_t v)
{
	put16(p, v >> 16);
	put16(p + 2, v & 0xffff);
}

static uint32_t number(const char **p, const char *end)
{
	uint32_t v = 0;

	while (*p < end && **p == ' ')
		(*p)++;
	while (*p < end && **p >= '0' && **p <= '9')
		v = v * 10 + (uint32_t)(*(*p)++ - '0');
	return v;
}

static uint8_t flags(const char **p, const char *end)
{
	static const char names[] = "FSRPA";
	uint8_t v = 0;
	const char *hit;

	while (*p < end && **p == ' ')
		(*p)++;
	for (; *p < end && **p != ' '; (*p)++) {
		hit = memchr(names, **p, sizeof(names) - 1);
		if (hit)
			v |= (uint8_t)(1 << (hit - names));
	}
	return v;
}

static void run_line(struct tks_pcap_in *in, const char *p, const char *end, uint64_t *now)
{
	static const uint8_t addr[2][4] = { { 10, 0, 0, 1 }, { 10, 0, 0, 2 } };
	uint8_t b[40 + 1024] = { 0x45, [8] = 64, 6, [32] = 5 << 4 };
	bool server = *p == 's';
	uint32_t client_port, n;

	*now += *p == 't' ? 500000000 : 1000000;
	if (*p++ == 't')
		return;
	client_port = 40000 + number(&p, end) % 10;
	put16(b + 20, server ? 8000 : client_port);
	put16(b + 22, server ? client_port : 8000);
	memcpy(b + 12, addr[server], 4);
	memcpy(b + 16, addr[!server], 4);
	b[33] = flags(&p, end);
	put32(b + 24, number(&p, end));
	put32(b + 28, number(&p, end));
	if (p < end)
		p++;
	n = end - p > 1024 ? 1024 : (uint32_t)(end - p);
	memcpy(b + 40, p, n);
	put16(b + 2, 40 + n);
	tks_pcap_in_packet(in, DLT_RAW, *now, b, 40 + n, 40 + n);
}

static void run_text(struct tks_pcap_in *in, const char *p, size_t size)
{
	const char *end = p + size, *lf;
	uint64_t now = 1;

	for (; p < end; p = lf + 1) {
		lf = memchr(p, '\n', (size_t)(end - p));
		if (!lf)
			lf = end;
		if (lf > p)
			run_line(in, p, lf, &now);
	}
}

static bool is_file(const uint8_t *data, size_t size)
{
	return size >= 4 &&
	       (!memcmp(data, "\xd4\xc3\xb2\xa1", 4) || !memcmp(data, "\x0a\x0d\x0d\x0a", 4) ||
		!memcmp(data, "\xa1\xb2\xc3\xd4", 4) || !memcmp(data, "\x4d\x3c\xb2\xa1", 4));
}

static void run(const uint8_t *data, size_t size, struct story *s)
{
	static const uint16_t ports[] = { 8000 };
	struct tks_mem mem = TKS_MEM_INIT(MEMORY);
	struct tks_pcap_in_config cfg = {
		.mem = &mem,
		.ports = ports,
		.nports = size & 1, /* both ways to find the server */
		.max_connections = CONNECTIONS,
		.on_event = on_event,
		.ctx = s,
	};
	struct tks_pcap_in *in = tks_pcap_in_new(&cfg);

	must(in);
	if (is_file(data, size))
		run_file(in, data, size);
	else
		run_text(in, (const char *)data, size);
	must(mem.peak <= MEMORY);
	if (size & 2)
		tks_pcap_in_finish(in);
	tks_pcap_in_free(in);
	must(mem.used == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct story once = { 0 }, again = { 0 };

	run(data, size, &once);
	run(data, size, &again);
	must(once.hash == again.hash && once.events == again.events);
	return 0;
}
