// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Packets and packet files -> events. Packets are put together here byte by byte from the RFCs; the
 * story that comes out is written down as text, one line an event, and compared as a whole.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pcap/dlt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "pcap_in.h"

enum { F = TKS_TCP_FIN, S = TKS_TCP_SYN, R = TKS_TCP_RST, A = TKS_TCP_ACK };
enum { CLIENT = 0, SERVER = 1 };

struct bytes {
	uint8_t b[8192];
	uint32_t n;
};

struct fixture {
	struct tks_mem mem;
	struct tks_pcap_in *in;
	char log[128 * 1024];
	size_t used;
	uint64_t now_ms;
	uint16_t port[2]; /* of client and server */
};

/* --- building ----------------------------------------------------------------------------------
 */

static void put(struct bytes *b, const void *data, size_t n)
{
	assert_true(b->n + n <= sizeof(b->b));
	memcpy(b->b + b->n, data, n);
	b->n += (uint32_t)n;
}

static void put8(struct bytes *b, uint8_t v)
{
	put(b, &v, 1);
}

static void put16(struct bytes *b, uint32_t v)
{
	put8(b, (uint8_t)(v >> 8));
	put8(b, (uint8_t)v);
}

static void put32(struct bytes *b, uint32_t v)
{
	put16(b, v >> 16);
	put16(b, v);
}

static void put_tcp(struct bytes *b, uint16_t sport, uint16_t dport, uint32_t seq, uint32_t ack,
		    uint8_t flags, const char *data)
{
	put16(b, sport);
	put16(b, dport);
	put32(b, seq);
	put32(b, ack);
	put8(b, 6 << 4); /* 24 bytes: one word of options */
	put8(b, flags);
	put16(b, 65535);
	put32(b, 0);
	put32(b, 0x01010100);
	put(b, data, strlen(data));
}

/* An IPv4 header in front of tcp; frag: flags and offset; total 0: the real one. */
static void put_ipv4(struct bytes *b, int from, const struct bytes *tcp, uint16_t frag,
		     uint16_t total)
{
	put8(b, 0x45);
	put8(b, 0);
	put16(b, total ? total : 20 + tcp->n);
	put16(b, 1);
	put16(b, frag);
	put8(b, 64);
	put8(b, 6);
	put16(b, 0);
	put32(b, from == CLIENT ? 0x0a000001 : 0x0a000002);
	put32(b, from == CLIENT ? 0x0a000002 : 0x0a000001);
	put(b, tcp->b, tcp->n);
}

static void put_ipv6(struct bytes *b, uint8_t next, const struct bytes *payload, uint16_t len)
{
	static const uint8_t src[16] = { 0x20, 1, 0xd, 0xb8, [15] = 1 },
			     dst[16] = { 0x20, 1, 0xd, 0xb8, [15] = 2 };

	put32(b, 0x60000000);
	put16(b, len);
	put8(b, next);
	put8(b, 64);
	put(b, src, 16);
	put(b, dst, 16);
	put(b, payload->b, payload->n);
}

/* --- what comes out ----------------------------------------------------------------------------
 */

__attribute__((format(printf, 2, 3))) static void log_add(struct fixture *f, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	f->used += (size_t)vsnprintf(f->log + f->used, sizeof(f->log) - f->used, fmt, ap);
	va_end(ap);
	assert_true(f->used < sizeof(f->log));
}

static void on_event(void *ctx, const struct tks_event *ev)
{
	struct fixture *f = ctx;
	const char *dir = ev->dir == TKS_TX ? "tx" : "rx";
	unsigned long long key = ev->conn, ms = ev->ts_ns / 1000000;

	assert_int_equal(ev->role, TKS_ROLE_SERVER);
	if (ev->kind == TKS_EV_OPEN)
		log_add(f, "%llu@%llu open %u<-%u tx=%u rx=%u\n", key, ms, ev->local.port,
			ev->peer.port, ev->tx_seq, ev->rx_seq);
	if (ev->kind == TKS_EV_DATA)
		log_add(f, "%llu@%llu %s %u+%u \"%.*s\"\n", key, ms, dir, ev->seq, ev->len,
			(int)ev->cap, (const char *)ev->data);
	if (ev->kind == TKS_EV_FIN)
		log_add(f, "%llu@%llu %s fin %u\n", key, ms, dir, ev->seq);
	if (ev->kind == TKS_EV_CLOSE && ev->seq_known)
		log_add(f, "%llu@%llu close err=%u tx=%u rx=%u\n", key, ms, ev->err, ev->tx_seq,
			ev->rx_seq);
	if (ev->kind == TKS_EV_CLOSE && !ev->seq_known)
		log_add(f, "%llu@%llu close err=%u\n", key, ms, ev->err);
}

#define expect_log(f, text)                                                                        \
	do {                                                                                       \
		assert_string_equal((f)->log, text);                                               \
		(f)->used = 0;                                                                     \
		(f)->log[0] = 0;                                                                   \
	} while (0)

static void begin(struct fixture *f, const uint16_t *ports, size_t nports, uint32_t max)
{
	struct tks_pcap_in_config cfg = {
		.mem = &f->mem,
		.ports = ports,
		.nports = nports,
		.max_connections = max ? max : 64,
		.on_event = on_event,
		.ctx = f,
	};

	memset(f, 0, sizeof(*f));
	f->port[CLIENT] = 40000;
	f->port[SERVER] = 8000;
	f->in = tks_pcap_in_new(&cfg);
	assert_non_null(f->in);
}

static void end(struct fixture *f)
{
	tks_pcap_in_free(f->in);
	assert_int_equal(f->mem.used, 0);
}

/* The packet in a buffer of its own size, so that a byte too many is seen. */
static int give(struct fixture *f, int link, const struct bytes *b, uint32_t cap, uint32_t len)
{
	uint8_t *copy = malloc(cap ? cap : 1);
	int err;

	assert_non_null(copy);
	memcpy(copy, b->b, cap);
	err = tks_pcap_in_packet(f->in, link, f->now_ms * 1000000, copy, cap, len);
	free(copy);
	return err;
}

static int send_tcp(struct fixture *f, int from, uint8_t flags, uint32_t seq, uint32_t ack,
		    const char *data)
{
	struct bytes tcp = { .n = 0 }, ip = { .n = 0 };

	put_tcp(&tcp, f->port[from], f->port[!from], seq, ack, flags, data);
	put_ipv4(&ip, from, &tcp, 0, 0);
	f->now_ms++;
	return give(f, DLT_RAW, &ip, ip.n, ip.n);
}

static void handshake(struct fixture *f, uint32_t client_isn, uint32_t server_isn)
{
	send_tcp(f, CLIENT, S, client_isn, 0, "");
	send_tcp(f, SERVER, S | A, server_isn, client_isn + 1, "");
	send_tcp(f, CLIENT, A, client_isn + 1, server_isn + 1, "");
}

static uint64_t skipped(struct fixture *f, enum tks_skip why)
{
	struct tks_pcap_counters c;

	tks_pcap_in_counters(f->in, &c);
	return c.skipped[why];
}

/* --- a connection's life -----------------------------------------------------------------------
 */

static void test_whole_life(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, NULL, 0, 0);
	handshake(&f, 100, 500);
	send_tcp(&f, CLIENT, A, 101, 501, "ask");
	send_tcp(&f, SERVER, A, 501, 104, "");
	send_tcp(&f, SERVER, A, 501, 104, "answer");
	send_tcp(&f, SERVER, F | A, 507, 104, "");
	send_tcp(&f, CLIENT, F | A, 104, 508, "");
	send_tcp(&f, SERVER, A, 508, 105, "");
	expect_log(&f, "1@2 open 8000<-40000 tx=501 rx=101\n"
		       "1@4 rx 101+3 \"ask\"\n"
		       "1@6 tx 501+6 \"answer\"\n"
		       "1@7 tx fin 507\n"
		       "1@8 rx fin 104\n"
		       "1@9 close err=0 tx=507 rx=104\n");
	send_tcp(&f, SERVER, A, 501, 104, "answer"); /* a late copy */
	expect_log(&f, "");
	assert_int_equal(skipped(&f, TKS_SKIP_LATE), 1);
	assert_int_equal(skipped(&f, TKS_SKIP_NONE), 9);
	assert_int_equal(tks_pcap_in_now(f.in), 10000000);
	end(&f);
}

static void test_sequence_numbers_wrap(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, NULL, 0, 0);
	handshake(&f, 0xffffffff, 0xfffffffd);
	send_tcp(&f, CLIENT, A, 0, 0xfffffffe, "ask");
	send_tcp(&f, SERVER, A, 0xfffffffe, 3, "answer");
	send_tcp(&f, SERVER, F | A, 4, 3, "");
	send_tcp(&f, CLIENT, F | A, 3, 5, "");
	send_tcp(&f, SERVER, A, 5, 4, "");
	expect_log(&f, "1@2 open 8000<-40000 tx=4294967294 rx=0\n"
		       "1@4 rx 0+3 \"ask\"\n"
		       "1@5 tx 4294967294+6 \"answer\"\n"
		       "1@6 tx fin 4\n"
		       "1@7 rx fin 3\n"
		       "1@8 close err=0 tx=4 rx=3\n");
	end(&f);
}

static void test_syn_again_is_no_new_connection(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, NULL, 0, 0);
	send_tcp(&f, CLIENT, S, 100, 0, "");
	handshake(&f, 100, 500);
	send_tcp(&f, CLIENT, S, 100, 0, "");
	send_tcp(&f, SERVER, S | A, 500, 101, "");
	send_tcp(&f, CLIENT, A, 101, 501, "x");
	expect_log(&f, "1@3 open 8000<-40000 tx=501 rx=101\n"
		       "1@7 rx 101+1 \"x\"\n");
	end(&f);
}

static void test_port_used_again(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, NULL, 0, 0);
	handshake(&f, 100, 500);
	send_tcp(&f, CLIENT, A, 101, 501, "x");
	handshake(&f, 9000, 7000); /* the first one's end was not captured */
	send_tcp(&f, CLIENT, R, 9001, 0, "");
	send_tcp(&f, CLIENT, S, 9000, 0, ""); /* a late copy of the SYN */
	handshake(&f, 20000, 30000);
	expect_log(&f, "1@2 open 8000<-40000 tx=501 rx=101\n"
		       "1@4 rx 101+1 \"x\"\n"
		       "1@5 close err=0 tx=501 rx=102\n"
		       "2@6 open 8000<-40000 tx=7001 rx=9001\n"
		       "2@8 close err=104 tx=7001 rx=9001\n"
		       "3@11 open 8000<-40000 tx=30001 rx=20001\n");
	assert_int_equal(ECONNRESET, 104);
	end(&f);
}

static void test_handshake_in_part(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, NULL, 0, 0);
	send_tcp(&f, SERVER, S | A, 500, 101, ""); /* the SYN-ACK alone tells all */
	expect_log(&f, "1@1 open 8000<-40000 tx=501 rx=101\n");
	f.port[CLIENT] = 40001;
	send_tcp(&f, CLIENT, S, 100, 0, "");
	send_tcp(&f, CLIENT, A, 101, 501,
		 "x"); /* the client's first ACK stands in for the SYN-ACK */
	expect_log(&f, "2@3 open 8000<-40001 tx=501 rx=101\n2@3 rx 101+1 \"x\"\n");
	f.port[CLIENT] = 40002;
	send_tcp(&f, CLIENT, S, 100, 0, "");
	send_tcp(&f, SERVER, A, 777, 50000042,
		 ""); /* answers an older connection (RFC 5961, challenge ACK) */
	send_tcp(&f, CLIENT, R, 50000042, 0, "");
	send_tcp(&f, CLIENT, S, 100, 0, "");
	send_tcp(&f, SERVER, S | A, 500, 101, "");
	expect_log(&f, "3@8 open 8000<-40002 tx=501 rx=101\n");
	f.port[CLIENT] = 40003;
	send_tcp(&f, CLIENT, S, 100, 0, "");
	send_tcp(&f, SERVER, A, 600, 120,
		 "y"); /* what came before was lost: no open, but the server is known */
	expect_log(&f, "4@10 tx 600+1 \"y\"\n");
	f.port[CLIENT] = 40004;
	send_tcp(&f, SERVER, S | A, 500, 101, ""); /* in the wrong order */
	send_tcp(&f, CLIENT, S, 100, 0, "");
	send_tcp(&f, CLIENT, A, 101, 501, "");
	expect_log(&f, "5@11 open 8000<-40004 tx=501 rx=101\n");
	end(&f);
}

static void test_data_in_the_syn(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, NULL, 0, 0);
	send_tcp(&f, CLIENT, S, 100, 0, "fast"); /* RFC 7413: its first byte has number 101 */
	send_tcp(&f, SERVER, S | A, 500, 105, ""); /* taken */
	expect_log(&f, "1@2 open 8000<-40000 tx=501 rx=101\n1@1 rx 101+4 \"fast\"\n");
	end(&f);
	begin(&f, NULL, 0, 0);
	send_tcp(&f, CLIENT, S, 100, 0, "fast");
	send_tcp(&f, SERVER, S | A, 500, 101, ""); /* not taken: sent again */
	send_tcp(&f, CLIENT, A, 101, 501, "fast");
	expect_log(&f, "1@2 open 8000<-40000 tx=501 rx=101\n"
		       "1@1 rx 101+4 \"fast\"\n"
		       "1@3 rx 101+4 \"fast\"\n");
	end(&f);
}

static void test_syn_behind_its_data(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, NULL, 0, 0);
	send_tcp(&f, CLIENT, A, 101, 501, "x");
	send_tcp(&f, CLIENT, S, 100, 0, "");
	send_tcp(&f, SERVER, S | A, 500, 101, "");
	send_tcp(&f, SERVER, A, 501, 102, "y");
	expect_log(&f, "1@3 open 8000<-40000 tx=501 rx=101\n"
		       "1@1 rx 101+1 \"x\"\n"
		       "1@4 tx 501+1 \"y\"\n");
	end(&f);
}

static void test_fin_waits_for_what_lies_before_it(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, NULL, 0, 0);
	handshake(&f, 100, 500);
	send_tcp(&f, SERVER, F | A, 504, 101, "d"); /* "abc" comes late */
	send_tcp(&f, CLIENT, A, 101, 501, "");
	send_tcp(&f, SERVER, A, 501, 101, "abc");
	send_tcp(&f, CLIENT, A, 101, 506, "");
	expect_log(&f, "1@2 open 8000<-40000 tx=501 rx=101\n"
		       "1@4 tx 504+1 \"d\"\n"
		       "1@6 tx 501+3 \"abc\"\n"
		       "1@4 tx fin 505\n");
	send_tcp(&f, CLIENT, F | A, 101, 506,
		 ""); /* nobody acknowledges it: told 200 ms later, or at the end */
	expect_log(&f, "");
	tks_pcap_in_finish(f.in);
	expect_log(&f, "1@8 rx fin 101\n");
	end(&f);
	begin(&f, NULL, 0, 0);
	handshake(&f, 100, 500);
	send_tcp(&f, SERVER, F | A, 501, 101, "");
	f.now_ms += 200;
	send_tcp(&f, SERVER, F | A, 501, 101, "");
	expect_log(&f, "1@2 open 8000<-40000 tx=501 rx=101\n1@4 tx fin 501\n");
	end(&f);
}

static void test_resets(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, NULL, 0, 0);
	handshake(&f, 100, 500);
	send_tcp(&f, CLIENT, R, 101 + (16 << 20) + 1, 0, ""); /* beyond what can be lost */
	send_tcp(&f, CLIENT, R, 101 - 65536 - 1, 0, "");
	expect_log(&f, "1@2 open 8000<-40000 tx=501 rx=101\n");
	send_tcp(&f, CLIENT, R, 101 - 65536, 0, "");
	expect_log(&f, "1@6 close err=104 tx=501 rx=101\n");
	f.port[CLIENT]++;
	handshake(&f, 100, 500);
	send_tcp(&f, CLIENT, A, 101, 501, "ask");
	send_tcp(&f, SERVER, R | A, 520, 104,
		 ""); /* what it had sent was lost up to 520; for its own socket no error */
	expect_log(&f, "2@8 open 8000<-40001 tx=501 rx=101\n"
		       "2@10 rx 101+3 \"ask\"\n"
		       "2@11 close err=0 tx=520 rx=104\n");
	f.port[CLIENT]++;
	send_tcp(&f, CLIENT, S, 100, 0, "");
	send_tcp(&f, SERVER, R | A, 0, 101, ""); /* refused: there was no connection */
	expect_log(&f, "");
	end(&f);
}

/* An ACK of what was never seen: told when nothing can come any more, and not before. */
static void test_bytes_acknowledged_but_not_seen(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, NULL, 0, 0);
	handshake(&f, 100, 500);
	send_tcp(&f, CLIENT, A, 101, 601, ""); /* 100 bytes of the server's */
	expect_log(&f, "1@2 open 8000<-40000 tx=501 rx=101\n");
	send_tcp(&f, SERVER, A, 501, 101, "late");
	send_tcp(&f, CLIENT, A, 101, 551, ""); /* an older one */
	expect_log(&f, "1@5 tx 501+4 \"late\"\n");
	tks_pcap_in_finish(f.in);
	expect_log(&f, "1@4 tx 505+96 \"\"\n");
	end(&f);

	begin(&f, NULL, 0, 0);
	handshake(&f, 100, 500);
	send_tcp(&f, CLIENT, A, 101, 501 + (16 << 20) + 1, ""); /* more than is believed */
	send_tcp(&f, CLIENT, R | A, 101, 511, "");
	expect_log(&f, "1@2 open 8000<-40000 tx=501 rx=101\n1@5 close err=104 tx=511 rx=101\n");
	end(&f);

	begin(&f, NULL, 0, 0);
	handshake(&f, 100, 500);
	send_tcp(&f, CLIENT, A, 101, 511, "");
	send_tcp(&f, SERVER, F | A, 511, 101, ""); /* the FIN says where the end is */
	tks_pcap_in_finish(f.in);
	expect_log(&f, "1@2 open 8000<-40000 tx=501 rx=101\n1@5 tx fin 511\n");
	end(&f);
}

/* --- which end is the server -------------------------------------------------------------------
 */

static void test_server_by_payload(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, NULL, 0, 0);
	f.port[CLIENT] = 1024; /* the lower port is not always the server's */
	send_tcp(&f, SERVER, A, 501, 101, "xyz: in the middle");
	send_tcp(&f, CLIENT, A, 101, 519, "POST /v1/chat/completions HTTP/1.1\r\n");
	expect_log(&f, "1@1 tx 501+18 \"xyz: in the middle\"\n"
		       "1@2 rx 101+36 \"POST /v1/chat/completions HTTP/1.1\r\n\"\n");
	f.port[CLIENT] = 1025;
	send_tcp(&f, SERVER, A, 501, 101, "HTTP/1.1 200 OK\r\n");
	expect_log(&f, "2@3 tx 501+17 \"HTTP/1.1 200 OK\r\n\"\n");
	end(&f);
}

static void test_server_by_lower_port(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, NULL, 0, 0);
	for (int i = 0; i < TKS_PCAP_HOLD_SEGMENTS; i++)
		send_tcp(&f, SERVER, A, 501 + (uint32_t)i, 101, ".");
	expect_log(&f, "");
	send_tcp(&f, SERVER, A, 601, 101, "!");
	assert_non_null(strstr(f.log, "1@1 tx 501+1 \".\"\n1@2 tx 502+1 \".\"\n"));
	assert_non_null(strstr(f.log, "1@16 tx 516+1 \".\"\n1@17 tx 601+1 \"!\"\n"));
	f.used = 0;
	f.log[0] = 0;
	f.port[CLIENT]++;
	send_tcp(&f, SERVER, A, 501, 101, "held");
	expect_log(&f, "");
	tks_pcap_in_finish(f.in);
	expect_log(&f, "2@18 tx 501+4 \"held\"\n");
	assert_int_equal(tks_pcap_in_now(f.in), 0);
	end(&f);
}

static void test_held_bytes_are_bounded(void **state)
{
	struct bytes tcp = { .n = 0 }, ip = { .n = 0 };
	struct fixture f;
	size_t before;
	int given = 0;

	(void)state;
	begin(&f, NULL, 0, 0);
	put_tcp(&tcp, 8000, 40000, 501, 101, A, "");
	memset(tcp.b + tcp.n, '.', 6000);
	tcp.n += 6000;
	before = f.mem.used;
	while (!f.used && given < 100) {
		ip.n = 0;
		put_ipv4(&ip, SERVER, &tcp, 0, 0);
		give(&f, DLT_RAW, &ip, ip.n, ip.n);
		assert_true(f.mem.used - before <= TKS_PCAP_HOLD_BYTES + 4096);
		given++;
	}
	assert_int_equal(given, 11); /* 10 * 6000 are below 64 KiB, 11 are not */
	end(&f);
}

static void test_ports_asked_for(void **state)
{
	static const uint16_t ports[] = { 8000, 40005 };
	struct fixture f;

	(void)state;
	begin(&f, ports, 2, 0);
	send_tcp(&f, SERVER, A, 501, 101, "x"); /* known by its port at once */
	expect_log(&f, "1@1 tx 501+1 \"x\"\n");
	f.port[SERVER] = 9000;
	handshake(&f, 100, 500);
	assert_int_equal(skipped(&f, TKS_SKIP_FILTERED), 3);
	f.port[CLIENT] = 40005; /* a client that has a port asked for */
	handshake(&f, 100, 500);
	send_tcp(&f, SERVER, A, 501, 101, "x");
	expect_log(&f, "");
	assert_int_equal(skipped(&f, TKS_SKIP_FILTERED), 7);
	f.port[SERVER] = 8000; /* both ends have one: the payload tells */
	send_tcp(&f, CLIENT, A, 101, 501, "GET / HTTP/1.1\r\n");
	expect_log(&f, "3@9 rx 101+16 \"GET / HTTP/1.1\r\n\"\n");
	end(&f);
}

static void test_too_many_ports(void **state)
{
	static const uint16_t ports[TKS_PCAP_PORTS_MAX + 1];
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_pcap_in_config cfg = { .mem = &mem,
					  .ports = ports,
					  .nports = TKS_PCAP_PORTS_MAX + 1 };

	(void)state;
	assert_null(tks_pcap_in_new(&cfg));
	assert_int_equal(mem.used, 0);
}

/* --- bounds ------------------------------------------------------------------------------------
 */

static void test_longest_idle_is_forgotten(void **state)
{
	struct tks_pcap_counters c;
	struct fixture f;

	(void)state;
	begin(&f, NULL, 0, 2);
	send_tcp(&f, CLIENT, A, 101, 501, "held");
	f.port[CLIENT]++;
	handshake(&f, 100, 500);
	f.port[CLIENT]--;
	send_tcp(&f, CLIENT, A, 105, 501, "held"); /* so the second is idle longer */
	f.port[CLIENT] += 2;
	handshake(&f, 100, 500);
	expect_log(&f, "2@3 open 8000<-40001 tx=501 rx=101\n3@7 open 8000<-40002 tx=501 rx=101\n");
	f.port[CLIENT]++;
	handshake(&f, 100, 500);
	expect_log(
		&f,
		"1@1 rx 101+4 \"held\"\n1@5 rx 105+4 \"held\"\n4@10 open 8000<-40003 tx=501 rx=101\n");
	tks_pcap_in_counters(f.in, &c);
	assert_int_equal(c.evicted, 2);
	assert_int_equal(c.connections, 4);
	end(&f);
}

static void scenario(struct fixture *f)
{
	send_tcp(f, SERVER, A, 501, 101, "held");
	send_tcp(f, SERVER, A, 505, 101, "held");
	send_tcp(f, CLIENT, A, 101, 509, "GET / HTTP/1.1\r\n");
	f->port[CLIENT]++;
	handshake(f, 100, 500);
	send_tcp(f, CLIENT, A, 101, 501, "x");
}

static void test_no_memory(void **state)
{
	struct fixture f;
	uint64_t calls;

	(void)state;
	begin(&f, NULL, 0, 0);
	scenario(&f);
	calls = f.mem.calls;
	end(&f);
	assert_true(calls >= 6);
	for (uint64_t n = 3; n <= calls; n++) { /* the first two make the object */
		struct tks_pcap_counters c;

		begin(&f, NULL, 0, 0);
		f.mem.fail_at = n;
		scenario(&f);
		tks_pcap_in_counters(f.in, &c);
		/* Either packets were dropped and counted, or there was no room to hold one: told
		 * at once then. */
		assert_true(c.no_memory || strstr(f.log, "tx 505+4"));
		f.mem.fail_at = 0;
		end(&f);
	}
}

static void test_no_memory_for_the_object(void **state)
{
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_pcap_in_config cfg = { .mem = &mem, .max_connections = 4, .on_event = on_event };

	(void)state;
	for (uint64_t n = 1; n <= 2; n++) {
		mem.calls = 0;
		mem.fail_at = n;
		assert_null(tks_pcap_in_new(&cfg));
		assert_int_equal(mem.used, 0);
	}
}

/* --- link and IP layers ------------------------------------------------------------------------
 */

static void make_ipv4(struct bytes *ip, uint16_t frag, uint16_t total)
{
	struct bytes tcp = { .n = 0 };

	ip->n = 0;
	put_tcp(&tcp, 40000, 8000, 7, 9, A, "GET / HTTP/1.1\r\n");
	put_ipv4(ip, CLIENT, &tcp, frag, total);
}

static void test_link_types(void **state)
{
	static const struct {
		int link;
		uint8_t header[24];
		uint32_t n;
		enum tks_skip want;
	} cases[] = {
		{ DLT_EN10MB, { [12] = 8, [13] = 0 }, 14, TKS_SKIP_NONE },
		{ DLT_EN10MB, { [12] = 0x81, [13] = 0, [16] = 8, [17] = 0 }, 18, TKS_SKIP_NONE },
		{ DLT_EN10MB,
		  { [12] = 0x88, [13] = 0xa8, [16] = 0x81, [20] = 8 },
		  22,
		  TKS_SKIP_NONE },
		{ DLT_EN10MB, { [12] = 8, [13] = 6 }, 14, TKS_SKIP_NOT_IP }, /* ARP */
		{ DLT_LINUX_SLL, { [14] = 8 }, 16, TKS_SKIP_NONE },
		{ DLT_LINUX_SLL, { [14] = 0x81, [18] = 8 }, 20, TKS_SKIP_NONE },
		{ DLT_LINUX_SLL2, { [0] = 8 }, 20, TKS_SKIP_NONE },
		{ DLT_RAW, { 0 }, 0, TKS_SKIP_NONE },
		{ DLT_IPV4, { 0 }, 0, TKS_SKIP_NONE },
		{ DLT_NULL, { 2, 0, 0, 0 }, 4, TKS_SKIP_NONE },
		{ DLT_NULL, { 0, 0, 0, 2 }, 4, TKS_SKIP_NONE },
		{ DLT_LOOP, { 0, 0, 0, 2 }, 4, TKS_SKIP_NONE },
		{ DLT_LOOP, { 0, 0, 0, 7 }, 4, TKS_SKIP_NOT_IP },
		{ DLT_IEEE802_11, { 0 }, 0, TKS_SKIP_NOT_IP },
	};
	struct bytes ip;

	(void)state;
	make_ipv4(&ip, 0, 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct tks_packet p = { 0 };
		struct bytes b = { .n = 0 };

		put(&b, cases[i].header, cases[i].n);
		put(&b, ip.b, ip.n);
		assert_int_equal(tks_packet_parse(cases[i].link, b.b, b.n, b.n, &p), cases[i].want);
		if (cases[i].want)
			continue;
		assert_int_equal(p.src.port, 40000);
		assert_int_equal(p.dst.port, 8000);
		assert_int_equal(p.seq, 7);
		assert_int_equal(p.ack, 9);
		assert_int_equal(p.src.family, AF_INET);
		assert_memory_equal(p.src.addr, "\x0a\0\0\1", 4);
		assert_int_equal(p.len, 16);
		assert_int_equal(p.cap, 16);
		assert_memory_equal(p.data, "GET / HTTP/1.1\r\n", 16);
	}
	assert_true(tks_packet_link_known(DLT_LINUX_SLL2));
	assert_false(tks_packet_link_known(DLT_IEEE802_11));
}

static void test_vlan_tags_are_bounded(void **state)
{
	for (int tags = 4; tags <= 5; tags++) {
		struct bytes b = { .n = 0 }, ip;
		struct tks_packet p;

		(void)state;
		put(&b, "\0\0\0\0\0\0\0\0\0\0\0\0", 12);
		for (int i = 0; i < tags; i++)
			put32(&b, 0x81000001);
		put16(&b, 0x0800);
		make_ipv4(&ip, 0, 0);
		put(&b, ip.b, ip.n);
		assert_int_equal(tks_packet_parse(DLT_EN10MB, b.b, b.n, b.n, &p),
				 tags == 4 ? TKS_SKIP_NONE : TKS_SKIP_BAD);
	}
}

static void test_lengths(void **state)
{
	struct tks_packet p;
	struct bytes ip;

	(void)state;
	make_ipv4(&ip, 0, 0);
	put(&ip, "padding", 7); /* behind what the IP header says */
	assert_int_equal(tks_packet_parse(DLT_RAW, ip.b, ip.n, ip.n, &p), TKS_SKIP_NONE);
	assert_int_equal(p.len, 16);
	assert_int_equal(p.cap, 16);
	/* Cut by the snapshot length inside the payload. */
	assert_int_equal(tks_packet_parse(DLT_RAW, ip.b, 44 + 5, ip.n, &p), TKS_SKIP_NONE);
	assert_int_equal(p.len, 16);
	assert_int_equal(p.cap, 5);
	/* Segmentation offload: the total length is 0, the wire length counts. */
	ip.n -= 7;
	ip.b[2] = ip.b[3] = 0;
	assert_int_equal(tks_packet_parse(DLT_RAW, ip.b, ip.n, ip.n + 100000, &p), TKS_SKIP_NONE);
	assert_int_equal(p.len, 100016);
	assert_int_equal(p.cap, 16);
	assert_int_equal(tks_packet_parse(DLT_RAW, ip.b, ip.n, 0xffffffff, &p), TKS_SKIP_BAD);
	/* A total length shorter than the headers. */
	make_ipv4(&ip, 0, 19);
	assert_int_equal(tks_packet_parse(DLT_RAW, ip.b, ip.n, ip.n, &p), TKS_SKIP_BAD);
	make_ipv4(&ip, 0, 39);
	assert_int_equal(tks_packet_parse(DLT_RAW, ip.b, ip.n, ip.n, &p), TKS_SKIP_BAD);
	/* Header lengths below their least. */
	make_ipv4(&ip, 0, 0);
	ip.b[0] = 0x44;
	assert_int_equal(tks_packet_parse(DLT_RAW, ip.b, ip.n, ip.n, &p), TKS_SKIP_BAD);
	make_ipv4(&ip, 0, 0);
	ip.b[20 + 12] = 4 << 4;
	assert_int_equal(tks_packet_parse(DLT_RAW, ip.b, ip.n, ip.n, &p), TKS_SKIP_BAD);
	ip.b[20 + 12] = 15 << 4; /* longer than the packet */
	assert_int_equal(tks_packet_parse(DLT_RAW, ip.b, ip.n, ip.n, &p), TKS_SKIP_BAD);
}

static void test_cut_at_every_position(void **state)
{
	struct bytes b = { .n = 0 }, ip;

	(void)state;
	make_ipv4(&ip, 0, 0);
	put(&b, "\0\0\0\0\0\0\0\0\0\0\0\0\x08", 14);
	put(&b, ip.b, ip.n);
	for (uint32_t cap = 0; cap <= b.n; cap++) {
		uint8_t *copy = malloc(cap ? cap : 1);
		struct tks_packet p;
		enum tks_skip why;

		assert_non_null(copy);
		memcpy(copy, b.b, cap);
		why = tks_packet_parse(DLT_EN10MB, copy, cap, b.n, &p);
		/* Headers are 14 + 20 + 24 bytes. */
		assert_int_equal(why, cap < 58 ? TKS_SKIP_TRUNCATED : TKS_SKIP_NONE);
		if (!why)
			assert_int_equal(p.cap, cap - 58);
		why = tks_packet_parse(DLT_EN10MB, copy, cap, cap,
				       &p); /* the packet itself is as short */
		if (cap < 54)
			assert_int_equal(why, cap < 34 ? TKS_SKIP_BAD : TKS_SKIP_TRUNCATED);
		free(copy);
	}
}

static void test_ipv4_skipped(void **state)
{
	struct tks_packet p;
	struct bytes ip;

	(void)state;
	make_ipv4(&ip, 0x2000, 0); /* more fragments */
	assert_int_equal(tks_packet_parse(DLT_RAW, ip.b, ip.n, ip.n, &p), TKS_SKIP_FRAGMENT);
	make_ipv4(&ip, 0x0001, 0); /* an offset */
	assert_int_equal(tks_packet_parse(DLT_RAW, ip.b, ip.n, ip.n, &p), TKS_SKIP_FRAGMENT);
	make_ipv4(&ip, 0x4000, 0); /* don't fragment */
	assert_int_equal(tks_packet_parse(DLT_RAW, ip.b, ip.n, ip.n, &p), TKS_SKIP_NONE);
	ip.b[9] = 17;
	assert_int_equal(tks_packet_parse(DLT_RAW, ip.b, ip.n, ip.n, &p), TKS_SKIP_NOT_TCP);
}

static enum tks_skip parse_ipv6_with(uint8_t next, const void *ext, size_t n, struct tks_packet *p)
{
	struct bytes payload = { .n = 0 }, ip = { .n = 0 };

	put(&payload, ext, n);
	put_tcp(&payload, 40000, 8000, 7, 9, A, "hello");
	put_ipv6(&ip, next, &payload, (uint16_t)payload.n);
	return tks_packet_parse(DLT_IPV6, ip.b, ip.n, ip.n, p);
}

static void test_ipv6(void **state)
{
	uint8_t chain[17 * 8] = { 0 };
	struct tks_packet p;

	(void)state;
	assert_int_equal(parse_ipv6_with(6, "", 0, &p), TKS_SKIP_NONE);
	assert_int_equal(p.src.family, AF_INET6);
	assert_int_equal(p.src.addr[15], 1);
	assert_int_equal(p.len, 5);
	/* Hop-by-hop of 16 bytes, then authentication of 4 * (4 + 2) = 24, then TCP. */
	assert_int_equal(parse_ipv6_with(0,
					 "\x33\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
					 "\x06\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
					 40, &p),
			 TKS_SKIP_NONE);
	assert_int_equal(p.len, 5);
	assert_int_equal(p.src.port, 40000);
	assert_int_equal(parse_ipv6_with(44, "\6\0\0\0\0\0\0\1", 8, &p),
			 TKS_SKIP_NONE); /* whole (RFC 6946) */
	assert_int_equal(parse_ipv6_with(44, "\6\0\0\1\0\0\0\1", 8, &p), TKS_SKIP_FRAGMENT);
	assert_int_equal(parse_ipv6_with(44, "\6\0\1\0\0\0\0\1", 8, &p), TKS_SKIP_FRAGMENT);
	assert_int_equal(parse_ipv6_with(17, "", 0, &p), TKS_SKIP_NOT_TCP);
	assert_int_equal(parse_ipv6_with(50, "", 0, &p), TKS_SKIP_NOT_TCP); /* ESP */
	assert_int_equal(parse_ipv6_with(0, "\6\xff\0\0\0\0\0\0", 8, &p),
			 TKS_SKIP_BAD); /* longer than the packet */
	/* 16 extension headers are followed, 17 are not. */
	for (int i = 0; i < 17; i++)
		chain[i * 8] = 60;
	chain[15 * 8] = 6;
	assert_int_equal(parse_ipv6_with(60, chain, 16 * 8, &p), TKS_SKIP_NONE);
	chain[15 * 8] = 60;
	chain[16 * 8] = 6;
	assert_int_equal(parse_ipv6_with(60, chain, 17 * 8, &p), TKS_SKIP_BAD);
}

static void test_skip_names(void **state)
{
	(void)state;
	for (int i = 0; i < TKS_SKIPS; i++)
		assert_true(strlen(tks_skip_name(i)) > 1);
	assert_string_equal(tks_skip_name(TKS_SKIPS), "?");
}

/* --- files -------------------------------------------------------------------------------------
 */

/* A savefile in host order, microseconds, of one packet, captured at second sec and 250 ms. */
static void make_file(struct bytes *b, uint32_t link, uint32_t sec)
{
	const uint32_t header[6] = { 0xa1b2c3d4, 2 | 4 << 16, 0, 0, 65535, link };
	uint32_t record[4] = { sec, 250000 };
	struct bytes ip;

	make_ipv4(&ip, 0, 0);
	record[2] = record[3] = ip.n;
	b->n = 0;
	put(b, header, sizeof(header));
	put(b, record, sizeof(record));
	put(b, ip.b, ip.n);
}

static int open_bytes(struct fixture *f, struct bytes *b, uint32_t n, char *why)
{
	FILE *file = fmemopen(b->b, n, "r");

	assert_non_null(file);
	return tks_pcap_in_open(f->in, file, why, 256);
}

static void test_file(void **state)
{
	char why[256] = "";
	struct fixture f;
	struct bytes b;

	(void)state;
	begin(&f, NULL, 0, 0);
	assert_int_equal(tks_pcap_in_next(f.in, why, sizeof(why)), 0);
	make_file(&b, 101, 3);
	assert_int_equal(open_bytes(&f, &b, b.n, why), 0);
	assert_int_equal(tks_pcap_in_ahead(f.in), 3250000000);
	assert_int_equal(tks_pcap_in_now(f.in), 0);
	assert_int_equal(tks_pcap_in_next(f.in, why, sizeof(why)), 1);
	assert_int_equal(tks_pcap_in_ahead(f.in), UINT64_MAX);
	assert_int_equal(tks_pcap_in_now(f.in), 3250000000);
	assert_int_equal(tks_pcap_in_next(f.in, why, sizeof(why)), 0);
	expect_log(&f, "1@3250 rx 7+16 \"GET / HTTP/1.1\r\n\"\n");
	end(&f);
}

static void test_file_cut_short(void **state)
{
	char why[256] = "";
	struct bytes b;

	(void)state;
	make_file(&b, 101, 3);
	for (uint32_t n = 1; n < b.n; n++) {
		struct fixture f;
		int err;

		begin(&f, NULL, 0, 0);
		err = open_bytes(&f, &b, n, why);
		assert_int_equal(err, n < 24 ? -EBADMSG : 0);
		if (!err) /* right behind the header the file is whole, and without packets */
			assert_int_equal(tks_pcap_in_next(f.in, why, sizeof(why)),
					 n == 24 ? 0 : -ENODATA);
		if (n != 24)
			assert_true(strlen(why) > 5);
		expect_log(&f, "");
		end(&f);
	}
}

static void test_file_foreign(void **state)
{
	char why[256] = "";
	struct fixture f;
	struct bytes b = { .n = 0 };

	(void)state;
	begin(&f, NULL, 0, 0);
	put(&b, "PK\3\4 this is something else altogether", 36);
	assert_int_equal(open_bytes(&f, &b, b.n, why), -EBADMSG);
	make_file(&b, 105, 3); /* 802.11 */
	assert_int_equal(open_bytes(&f, &b, b.n, why), -EPROTONOSUPPORT);
	assert_non_null(strstr(why, "802.11"));
	make_file(&b, 101, 3);
	b.b[24 + 8] = b.b[24 + 9] = b.b[24 + 10] = 0xff; /* a packet of 16 MiB and more */
	assert_int_equal(open_bytes(&f, &b, b.n, why), 0);
	assert_true(tks_pcap_in_next(f.in, why, sizeof(why)) < 0);
	end(&f);
}

static void test_file_with_impossible_time(void **state)
{
	char why[256] = "";
	struct fixture f;
	struct bytes b;

	(void)state;
	begin(&f, NULL, 0, 0);
	make_file(&b, 101, 3);
	b.b[24 + 7] = 0x7f; /* two billion microseconds and more */
	assert_int_equal(open_bytes(&f, &b, b.n, why), 0);
	assert_int_equal(tks_pcap_in_ahead(f.in), UINT64_MAX);
	assert_int_equal(tks_pcap_in_next(f.in, why, sizeof(why)), 1);
	assert_int_equal(skipped(&f, TKS_SKIP_BAD), 1);
	expect_log(&f, "");
	end(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole_life),
		cmocka_unit_test(test_sequence_numbers_wrap),
		cmocka_unit_test(test_syn_again_is_no_new_connection),
		cmocka_unit_test(test_port_used_again),
		cmocka_unit_test(test_handshake_in_part),
		cmocka_unit_test(test_data_in_the_syn),
		cmocka_unit_test(test_syn_behind_its_data),
		cmocka_unit_test(test_fin_waits_for_what_lies_before_it),
		cmocka_unit_test(test_resets),
		cmocka_unit_test(test_bytes_acknowledged_but_not_seen),
		cmocka_unit_test(test_server_by_payload),
		cmocka_unit_test(test_server_by_lower_port),
		cmocka_unit_test(test_held_bytes_are_bounded),
		cmocka_unit_test(test_ports_asked_for),
		cmocka_unit_test(test_too_many_ports),
		cmocka_unit_test(test_longest_idle_is_forgotten),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_no_memory_for_the_object),
		cmocka_unit_test(test_link_types),
		cmocka_unit_test(test_vlan_tags_are_bounded),
		cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_cut_at_every_position),
		cmocka_unit_test(test_ipv4_skipped),
		cmocka_unit_test(test_ipv6),
		cmocka_unit_test(test_skip_names),
		cmocka_unit_test(test_file),
		cmocka_unit_test(test_file_cut_short),
		cmocka_unit_test(test_file_foreign),
		cmocka_unit_test(test_file_with_impossible_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
