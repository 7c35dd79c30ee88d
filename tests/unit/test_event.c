// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Ring records to events: every kind, every contradiction that a record can hold, addresses. */
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "tokensnoop/event.h"
#include "tokensnoop/record.h"

struct record {
	struct tks_rec r;
	uint8_t data[32];
};

/* A sane data record with 5 of 7 bytes captured. */
static struct record sane(uint16_t kind)
{
	struct record rec = {
		.r = { .size = sizeof(struct tks_rec) + 5,
		       .kind = kind,
		       .ts_ns = 100,
		       .ret_ns = 120,
		       .cookie = 77,
		       .cgroup = 9,
		       .seq = 1000,
		       .len = 7,
		       .cap = 5,
		       .lost = 3,
		       .netns = 4026531840u,
		       .pid = 12,
		       .tid = 13,
		       .family = AF_INET,
		       .lport = 8000,
		       .rport = 40000,
		       .laddr = { 127, 0, 0, 1 },
		       .raddr = { 10, 0, 0, 2 },
		       .comm = "uvicorn" },
		.data = "hello",
	};

	return rec;
}

static struct record sane_conn(uint16_t state)
{
	struct record rec = sane(TKS_REC_CONN);

	rec.r.size = sizeof(struct tks_rec);
	rec.r.len = rec.r.cap = 0;
	rec.r.state = state;
	rec.r.rcv_seq = 2000;
	return rec;
}

static int decode(const struct record *rec, struct tks_event *ev)
{
	return tks_event_decode(rec, rec->r.size, ev);
}

static void a_send(void **state)
{
	struct record rec = sane(TKS_REC_TX);
	struct tks_event ev;

	(void)state;
	assert_int_equal(decode(&rec, &ev), 0);
	assert_int_equal(ev.kind, TKS_EV_DATA);
	assert_int_equal(ev.dir, TKS_TX);
	assert_int_equal(ev.role, TKS_ROLE_UNKNOWN);
	assert_int_equal(ev.ts_ns, 100);
	assert_int_equal(ev.ret_ns, 120);
	assert_int_equal(ev.conn, 77);
	assert_int_equal(ev.netns, 4026531840u);
	assert_int_equal(ev.seq, 1000);
	assert_int_equal(ev.len, 7);
	assert_int_equal(ev.cap, 5);
	assert_ptr_equal(ev.data, rec.data);
	assert_int_equal(ev.lost, 3);
	assert_int_equal(ev.proc.pid, 12);
	assert_int_equal(ev.proc.tid, 13);
	assert_int_equal(ev.proc.cgroup, 9);
	assert_string_equal(ev.proc.comm, "uvicorn");
	assert_int_equal(ev.local.port, 8000);
	assert_int_equal(ev.peer.port, 40000);
	assert_int_equal(ev.peer.addr[3], 2);
	assert_false(ev.unsure);
	assert_false(ev.kernel_tls);
	rec.r.flags = TKS_RECF_KERNEL_TLS;
	assert_int_equal(decode(&rec, &ev), 0);
	assert_true(ev.kernel_tls);
}

static void a_packet(void **state)
{
	struct record rec = sane(TKS_REC_RX);
	struct tks_event ev;

	(void)state;
	rec.r.flags = TKS_RECF_UNSURE | TKS_RECF_CONT;
	assert_int_equal(decode(&rec, &ev), 0);
	assert_int_equal(ev.kind, TKS_EV_DATA);
	assert_int_equal(ev.dir, TKS_RX);
	assert_int_equal(ev.ret_ns, 0);
	assert_true(ev.unsure);
}

static void connection_states(void **state)
{
	struct tks_event ev;
	struct record rec;

	(void)state;
	rec = sane_conn(TKS_CONN_ACCEPTED);
	assert_int_equal(decode(&rec, &ev), 0);
	assert_int_equal(ev.kind, TKS_EV_OPEN);
	assert_int_equal(ev.role, TKS_ROLE_SERVER);
	assert_int_equal(ev.tx_seq, 1000);
	assert_int_equal(ev.rx_seq, 2000);
	assert_int_equal(ev.len, 0);

	rec = sane_conn(TKS_CONN_CONNECTED);
	assert_int_equal(decode(&rec, &ev), 0);
	assert_int_equal(ev.kind, TKS_EV_OPEN);
	assert_int_equal(ev.role, TKS_ROLE_CLIENT);

	rec = sane_conn(TKS_CONN_PEER_FIN);
	assert_int_equal(decode(&rec, &ev), 0);
	assert_int_equal(ev.kind, TKS_EV_FIN);
	assert_int_equal(ev.dir, TKS_RX);
	assert_int_equal(ev.seq, 2000);

	rec = sane_conn(TKS_CONN_LOCAL_FIN);
	assert_int_equal(decode(&rec, &ev), 0);
	assert_int_equal(ev.kind, TKS_EV_FIN);
	assert_int_equal(ev.dir, TKS_TX);
	assert_int_equal(ev.seq, 1000);

	rec = sane_conn(TKS_CONN_CLOSED);
	rec.r.err = ECONNRESET;
	assert_int_equal(decode(&rec, &ev), 0);
	assert_int_equal(ev.kind, TKS_EV_CLOSE);
	assert_true(ev.seq_known);
	assert_int_equal(ev.tx_seq, 1000);
	assert_int_equal(ev.rx_seq, 2000);
	assert_int_equal(ev.err, ECONNRESET);
}

static void assert_bad(const struct record *rec, size_t size)
{
	struct tks_event ev;

	assert_int_equal(tks_event_decode(rec, size, &ev), -EBADMSG);
}

static void sizes_that_contradict(void **state)
{
	struct record rec = sane(TKS_REC_TX);
	size_t whole = rec.r.size;
	struct tks_event ev;

	(void)state;
	for (size_t size = 0; size < whole; size++)
		assert_bad(&rec, size);
	assert_int_equal(tks_event_decode(&rec, whole + 3, &ev), 0); /* padding behind it */

	rec = sane(TKS_REC_TX);
	rec.r.size = sizeof(struct tks_rec) - 1;
	assert_bad(&rec, whole);
	rec = sane(TKS_REC_TX);
	rec.r.size = 0;
	assert_bad(&rec, whole);
	rec = sane(TKS_REC_TX);
	rec.r.cap = 6; /* more than follows */
	assert_bad(&rec, whole);
	rec = sane(TKS_REC_TX);
	rec.r.len = 4; /* less than was captured */
	assert_bad(&rec, whole);
	rec = sane(TKS_REC_TX);
	rec.r.cap = UINT32_MAX;
	rec.r.len = UINT32_MAX;
	assert_bad(&rec, whole);
	rec = sane_conn(TKS_CONN_CLOSED);
	rec.r.len = 1;
	assert_bad(&rec, rec.r.size);
}

static void capture_limit(void **state)
{
	static struct {
		struct tks_rec r;
		uint8_t data[TKS_DATA_CAP + 1];
	} big;
	struct tks_event ev;

	(void)state;
	big.r = sane(TKS_REC_TX).r;
	big.r.len = big.r.cap = TKS_DATA_CAP;
	big.r.size = sizeof(big.r) + TKS_DATA_CAP;
	assert_int_equal(tks_event_decode(&big, big.r.size, &ev), 0);
	big.r.len = big.r.cap = TKS_DATA_CAP + 1;
	big.r.size++;
	assert_int_equal(tks_event_decode(&big, big.r.size, &ev), -EBADMSG);
}

static void fields_out_of_range(void **state)
{
	struct record rec;

	(void)state;
	for (int kind = 0; kind < 3; kind++) {
		static const uint16_t bad[] = { 0, 4, 0xffff };

		rec = sane(bad[kind]);
		assert_bad(&rec, rec.r.size);
	}
	rec = sane_conn(0);
	assert_bad(&rec, rec.r.size);
	rec = sane_conn(TKS_CONN_CLOSED + 1);
	assert_bad(&rec, rec.r.size);
	rec = sane(TKS_REC_TX);
	rec.r.family = 0;
	assert_bad(&rec, rec.r.size);
	rec.r.family = AF_NETLINK;
	assert_bad(&rec, rec.r.size);
	rec = sane(TKS_REC_TX);
	memset(rec.r.comm, 'x', sizeof(rec.r.comm));
	assert_bad(&rec, rec.r.size);
	rec = sane(TKS_REC_TX);
	rec.r.cookie = 0;
	assert_bad(&rec, rec.r.size);
	rec.r.flags = TKS_RECF_LISTENER; /* says nothing of what is sent */
	assert_bad(&rec, rec.r.size);
}

static void unix_sockets(void **state)
{
	static struct {
		struct tks_rec r;
		char name[TKS_UNIX_PATH + 1];
	} rec;
	struct record data = sane(TKS_REC_TX);
	char buf[TKS_ENDPOINT_STR];
	struct tks_event ev;

	(void)state;
	rec.r = sane_conn(TKS_CONN_ACCEPTED).r;
	rec.r.family = AF_UNIX;
	memset(rec.name, 'n', sizeof(rec.name));
	rec.r.len = rec.r.cap = TKS_UNIX_PATH;
	rec.r.size = sizeof(rec.r) + TKS_UNIX_PATH;
	assert_int_equal(tks_event_decode(&rec, sizeof(rec), &ev), 0);
	assert_int_equal(ev.kind, TKS_EV_OPEN);
	assert_int_equal(ev.role, TKS_ROLE_SERVER);
	assert_false(ev.met);
	assert_int_equal(ev.cap, TKS_UNIX_PATH);
	assert_ptr_equal(ev.data, rec.name);
	assert_string_equal(tks_endpoint_str(&ev.local, buf), "unix:"); /* a name is the keeper's */
	rec.r.state = TKS_CONN_MET;
	assert_int_equal(tks_event_decode(&rec, sizeof(rec), &ev), 0);
	assert_int_equal(ev.kind, TKS_EV_OPEN);
	assert_true(ev.met);
	rec.r.state = TKS_CONN_MET + 1;
	assert_int_equal(tks_event_decode(&rec, sizeof(rec), &ev), -EBADMSG);
	rec.r.state = TKS_CONN_CLOSED; /* its name is of no interest any more */
	assert_int_equal(tks_event_decode(&rec, sizeof(rec), &ev), 0);
	assert_int_equal(ev.kind, TKS_EV_CLOSE);
	assert_int_equal(ev.cap, 0);
	rec.r.len = rec.r.cap = TKS_UNIX_PATH + 1;
	rec.r.size++;
	assert_int_equal(tks_event_decode(&rec, sizeof(rec), &ev), -EBADMSG);
	rec.r.len = rec.r.cap = 3;
	rec.r.len++;
	assert_int_equal(tks_event_decode(&rec, sizeof(rec), &ev), -EBADMSG);
	/* Of TCP there is no name, and no middle. */
	rec.r = sane_conn(TKS_CONN_MET).r;
	assert_int_equal(tks_event_decode(&rec, sizeof(rec), &ev), -EBADMSG);
	data.r.family = AF_UNIX;
	assert_int_equal(decode(&data, &ev), 0);
	assert_int_equal(ev.kind, TKS_EV_DATA);
	assert_int_equal(ev.local.family, AF_UNIX);
}

static void assert_name(const char *path, size_t n, const char *text)
{
	char out[32];

	tks_unix_name((const uint8_t *)path, n, out);
	assert_string_equal(out, text);
}

static void names_of_unix_sockets(void **state)
{
	(void)state;
	assert_name("/run/a.sock", 11, "/run/a.sock");
	assert_name("/run/a.sock\0\0x", 14, "/run/a.sock");
	assert_name("\0abstract", 9, "@abstract");
	assert_name("\0a\0b", 4, "@a@b");
	assert_name("/\xc3\xa4\x1b[1m\x7f", 8, "/???[1m?");
	assert_name("", 0, "");
}

static struct record sane_tls(uint16_t kind)
{
	struct record rec = sane(kind);

	rec.r.cookie = rec.r.family = 0;
	rec.r.obj = 0x7f001234;
	rec.r.state = TKS_TLS_NSS;
	return rec;
}

static void fields_of_tls_out_of_range(void **state)
{
	struct tks_event ev;
	struct record rec;

	(void)state;
	for (uint16_t kind = TKS_REC_TLS_TX; kind <= TKS_REC_TLS_OUT; kind++) {
		rec = sane_tls(kind);
		rec.r.cookie = 7; /* of no connection, whatever the record says */
		assert_int_equal(decode(&rec, &ev), 0);
		assert_int_equal(ev.conn, 0);
		rec.r.state = 0;
		assert_bad(&rec, rec.r.size);
		rec.r.state = TKS_TLS_GO + 1;
		assert_bad(&rec, rec.r.size);
		rec = sane_tls(kind);
		rec.r.obj = 0;
		assert_bad(&rec, rec.r.size);
		rec = sane_tls(kind);
		rec.r.pid = 0;
		assert_bad(&rec, rec.r.size);
		rec = sane_tls(kind);
		memset(rec.r.comm, 'x', sizeof(rec.r.comm));
		assert_bad(&rec, rec.r.size);
	}
	rec = sane_tls(TKS_REC_TLS_FREE);
	assert_bad(&rec, rec.r.size); /* nothing is written by it */
	rec.r.size = sizeof(rec.r);
	rec.r.len = rec.r.cap = rec.r.state = 0;
	assert_int_equal(decode(&rec, &ev), 0);
	assert_int_equal(ev.kind, TKS_EV_OBJ_GONE);
	rec = sane_tls(TKS_REC_CODE); /* not an event of a connection's */
	assert_bad(&rec, rec.r.size);
}

/* The fuzzer's first inputs, so that they don't rot into what is refused at once. */
static void the_fuzzers_corpus_is_read(void **state)
{
	static const struct {
		const char *name;
		enum tks_event_kind kind;
	} seeds[] = { { "send", TKS_EV_DATA },	    { "nested", TKS_EV_DATA },
		      { "packet", TKS_EV_DATA },    { "listener", TKS_EV_DATA },
		      { "opened", TKS_EV_OPEN },    { "peer_fin", TKS_EV_FIN },
		      { "local_fin", TKS_EV_FIN },  { "closed", TKS_EV_CLOSE },
		      { "unix_met", TKS_EV_OPEN },  { "unix_send", TKS_EV_DATA },
		      { "tls_tx", TKS_EV_PLAIN },   { "tls_rx", TKS_EV_PLAIN },
		      { "tls_out", TKS_EV_CIPHER }, { "tls_free", TKS_EV_OBJ_GONE } };

	(void)state;
	for (size_t i = 0; i < sizeof(seeds) / sizeof(seeds[0]); i++) {
		uint8_t buf[4096];
		char path[128];
		struct tks_event ev;
		size_t n;
		FILE *f;

		snprintf(path, sizeof(path), "tests/fuzz/corpus/event/%s", seeds[i].name);
		f = fopen(path, "rb");
		assert_non_null(f);
		n = fread(buf, 1, sizeof(buf), f);
		fclose(f);
		assert_int_equal(tks_event_decode(buf, n, &ev), 0);
		assert_int_equal(ev.kind, seeds[i].kind);
	}
}

/* Of a connection that has no socket of its own yet: its addresses are all there is. */
static void a_listeners_packet_has_no_key(void **state)
{
	struct record rec = sane(TKS_REC_RX);
	struct tks_event ev;

	(void)state;
	rec.r.cookie = 0;
	rec.r.flags = TKS_RECF_LISTENER;
	assert_int_equal(decode(&rec, &ev), 0);
	assert_int_equal(ev.conn, 0);
	assert_int_equal(ev.kind, TKS_EV_DATA);
	assert_int_equal(ev.dir, TKS_RX);
}

static void a_record_may_lie_anywhere(void **state)
{
	struct record rec = sane(TKS_REC_TX);
	uint8_t buf[sizeof(rec) + 1];
	struct tks_event ev;

	(void)state;
	memcpy(buf + 1, &rec, sizeof(rec));
	assert_int_equal(tks_event_decode(buf + 1, rec.r.size, &ev), 0);
	assert_int_equal(ev.conn, 77);
	assert_memory_equal(ev.data, "hello", 5);
}

static void only_four_bytes_of_an_ipv4_address(void **state)
{
	struct record rec = sane(TKS_REC_TX);
	static const uint8_t zero[12];
	struct tks_event ev;

	(void)state;
	memset(rec.r.laddr + 4, 0xee, 12);
	assert_int_equal(decode(&rec, &ev), 0);
	assert_memory_equal(ev.local.addr + 4, zero, 12);
}

static void assert_text(int family, const char *addr, uint16_t port, const char *text)
{
	struct tks_endpoint ep = { .family = (uint16_t)family, .port = port };
	char buf[TKS_ENDPOINT_STR];

	assert_int_equal(inet_pton(family, addr, ep.addr), 1);
	assert_ptr_equal(tks_endpoint_str(&ep, buf), buf);
	assert_string_equal(buf, text);
}

static void endpoints_as_text(void **state)
{
	struct tks_endpoint none = { 0 };
	char buf[TKS_ENDPOINT_STR];

	(void)state;
	assert_text(AF_INET, "127.0.0.1", 8000, "127.0.0.1:8000");
	assert_text(AF_INET, "255.255.255.255", 65535, "255.255.255.255:65535");
	assert_text(AF_INET6, "::1", 0, "[::1]:0");
	assert_text(AF_INET6, "2001:db8::7", 443, "[2001:db8::7]:443");
	assert_text(AF_INET6, "::ffff:10.1.2.3", 80, "10.1.2.3:80");
	assert_text(AF_INET6, "fd00:1111:2222:3333:4444:5555:6666:7777", 65535,
		    "[fd00:1111:2222:3333:4444:5555:6666:7777]:65535");
	assert_string_equal(tks_endpoint_str(&none, buf), "?");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_send),
		cmocka_unit_test(a_packet),
		cmocka_unit_test(connection_states),
		cmocka_unit_test(sizes_that_contradict),
		cmocka_unit_test(capture_limit),
		cmocka_unit_test(fields_out_of_range),
		cmocka_unit_test(unix_sockets),
		cmocka_unit_test(names_of_unix_sockets),
		cmocka_unit_test(fields_of_tls_out_of_range),
		cmocka_unit_test(the_fuzzers_corpus_is_read),
		cmocka_unit_test(a_listeners_packet_has_no_key),
		cmocka_unit_test(a_record_may_lie_anywhere),
		cmocka_unit_test(only_four_bytes_of_an_ipv4_address),
		cmocka_unit_test(endpoints_as_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
