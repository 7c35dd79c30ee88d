// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Packets -> connections -> events.
 *
 * A connection is one incarnation of a 4-tuple. Its life, as far as packets tell:
 *
 * - SYN, SYN-ACK: an OPEN, once both first sequence numbers are known. The SYN-ACK alone gives
 *   both; without it the client's first ACK does, as a client speaks first.
 * - Payload: a DATA, in file order; to put segments in order is stream.c's. Without a SYN,
 *   payloads are held until one tells which end is the server; past a limit, or at the end,
 *   the lower port is taken for it.
 * - FIN: held until the other end acknowledges it. What lies before a FIN in the stream may
 *   come behind it in the file (reordered, retransmitted), but not behind its acknowledgement,
 *   unless the capture lost it. If nobody acknowledges: FIN_WAIT_NS later, or with the end.
 * - Both acknowledged: a CLOSE. So does a RST whose sequence number can be its sender's.
 * - An ACK of bytes that were never seen proves that the capture lost them. That is told with the
 *   connection's end, or the file's, as then they will not come any more.
 *
 * An ended connection stays in the table, so that late copies of its packets do not start a new
 * one. A SYN with another initial sequence number does. All is bounded: connections by number (the
 * longest idle is forgotten), held payload per connection, and memory in all by the budget.
 */
#include "pcap_in.h"

#include <errno.h>
#include <pcap/pcap.h>
#include <string.h>
#include <sys/random.h>

#include "http1.h"
#include "list.h"

enum {
	CONNECTIONS_DEFAULT = 65536,
	RST_BEHIND = 64 * 1024, /* how far a believable RST's number may lie behind what its sender
				   has sent, */
	LOSS_MAX = 16 << 20, /* and ahead of what was seen of it; an ACK's, too */
	JUMP_MAX = 1 << 30, /* numbers further ahead than this are not believed */
	LATE_SYN_MAX = 1 << 20, /* data seen before its SYN (packets in the wrong order) is this
				   near to it */
};

static const uint64_t FIN_WAIT_NS = 200000000;

enum { NOBODY = 2 };

/* One end, and what it sent. */
struct end {
	struct tks_endpoint ep;
	uint32_t isn; /* initial sequence number */
	uint32_t first, next; /* of the first byte seen, and behind the highest one */
	uint32_t acked; /* behind the highest byte that the other end took, if that is past next */
	uint64_t acked_ns;
	uint32_t fin_seq;
	uint64_t fin_ns;
	bool isn_known, seen; /* seen: first and next are valid */
	bool fin, fin_told, fin_acked;
};

struct held {
	struct held *next;
	uint64_t ts_ns;
	uint32_t seq, len, cap;
	uint8_t from; /* index of the end */
	uint8_t data[];
};

struct flow {
	struct flow *hash_next;
	struct tks_list lru;
	uint64_t key;
	struct end end[2]; /* the lower endpoint, by memcmp, first */
	struct held *held, **held_tail;
	uint32_t nheld, held_bytes;
	uint8_t server; /* index of the end, or NOBODY: not known yet */
	bool opening; /* SYN seen, OPEN not told */
	bool told; /* at least one event went out */
	bool ignored; /* not a port that was asked for */
	bool closed;
};

struct tks_pcap_in {
	struct tks_pcap_in_config cfg;
	uint16_t ports[TKS_PCAP_PORTS_MAX];
	struct tks_mem *mem;
	struct flow **buckets;
	uint32_t nbuckets, count;
	struct tks_list lru; /* longest idle first */
	uint64_t seed[2];
	uint64_t last_key, now_ns;
	struct tks_pcap_counters counters;
	pcap_t *file;
	int link;
	/* The packet read last. ahead: it has not been taken yet. */
	bool ahead;
	int got; /* what reading it returned */
	struct pcap_pkthdr *header;
	const uint8_t *data;
};

/* Distance from b to a in sequence space. */
static int32_t seq_diff(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b);
}

/* --- events --- */

static enum tks_dir dir_of(const struct flow *f, int from)
{
	return from == f->server ? TKS_TX : TKS_RX;
}

static struct tks_event event_of(const struct flow *f, enum tks_event_kind kind, uint64_t ts_ns)
{
	return (struct tks_event){
		.kind = kind,
		.role = TKS_ROLE_SERVER,
		.ts_ns = ts_ns,
		.conn = f->key,
		.local = f->end[f->server].ep,
		.peer = f->end[!f->server].ep,
	};
}

static void tell(struct tks_pcap_in *in, struct flow *f, const struct tks_event *ev)
{
	if (f->ignored)
		return;
	f->told = true;
	in->cfg.on_event(in->cfg.ctx, ev);
}

static void tell_data(struct tks_pcap_in *in, struct flow *f, const struct held *h,
		      const uint8_t *data)
{
	struct tks_event ev = event_of(f, TKS_EV_DATA, h->ts_ns);

	ev.dir = dir_of(f, h->from);
	ev.seq = h->seq;
	ev.len = h->len;
	ev.cap = h->cap;
	ev.data = data;
	tell(in, f, &ev);
}

static void tell_open(struct tks_pcap_in *in, struct flow *f, uint64_t ts_ns)
{
	struct tks_event ev = event_of(f, TKS_EV_OPEN, ts_ns);

	ev.tx_seq = f->end[f->server].isn + 1;
	ev.rx_seq = f->end[!f->server].isn + 1;
	f->opening = false;
	tell(in, f, &ev);
}

static void tell_fin(struct tks_pcap_in *in, struct flow *f, int from)
{
	struct end *e = &f->end[from];
	struct tks_event ev;

	if (!e->fin || e->fin_told)
		return;
	e->fin_told = true;
	ev = event_of(f, TKS_EV_FIN, e->fin_ns);
	ev.dir = dir_of(f, from);
	ev.seq = e->fin_seq;
	if (f->told)
		tell(in, f, &ev);
}

/* Both FINs, where they are, in their order. */
static void tell_fins(struct tks_pcap_in *in, struct flow *f)
{
	int first = f->end[1].fin && f->end[1].fin_ns < f->end[0].fin_ns;

	tell_fin(in, f, first);
	tell_fin(in, f, !first);
}

/* Bytes that the other end has acknowledged behind the last one seen. */
static uint32_t unseen(const struct end *e)
{
	return e->acked_ns && seq_diff(e->acked, e->next) > 0 ? e->acked - e->next : 0;
}

/* from: who reset it, else NOBODY. As the server's socket saw it: its own reset is no error there.
 */
static void tell_close(struct tks_pcap_in *in, struct flow *f, uint64_t ts_ns, int reset_by)
{
	struct tks_event ev = event_of(f, TKS_EV_CLOSE, ts_ns);
	const struct end *tx = &f->end[f->server], *rx = &f->end[!f->server];

	f->closed = true;
	if (!f->told)
		return;
	ev.err = reset_by == !f->server ? ECONNRESET : 0;
	ev.dir = reset_by == f->server ? TKS_TX : TKS_RX;
	ev.seq_known = tx->seen && rx->seen;
	ev.tx_seq = tx->fin ? tx->fin_seq : tx->next + unseen(tx);
	ev.rx_seq = rx->fin ? rx->fin_seq : rx->next + unseen(rx);
	tell(in, f, &ev);
}

/* --- held payloads, and which end is the server --- */

static void free_held(struct tks_pcap_in *in, struct flow *f, struct held *h)
{
	f->held = h->next;
	f->nheld--;
	f->held_bytes -= h->cap;
	tks_mem_free(in->mem, h, sizeof(*h) + h->cap);
}

static void release_held(struct tks_pcap_in *in, struct flow *f)
{
	while (f->held) {
		struct held *h = f->held;

		tell_data(in, f, h, h->data);
		free_held(in, f, h);
	}
	f->held_tail = &f->held;
}

/* False when there is no room. */
static bool hold(struct tks_pcap_in *in, struct flow *f, const struct held *head,
		 const uint8_t *data)
{
	struct held *h;

	if (f->nheld == TKS_PCAP_HOLD_SEGMENTS || head->cap > TKS_PCAP_HOLD_BYTES - f->held_bytes)
		return false;
	h = tks_mem_alloc(in->mem, sizeof(*h) + head->cap);
	if (!h)
		return false;
	*h = *head;
	if (h->cap)
		memcpy(h->data, data, h->cap);
	*f->held_tail = h;
	f->held_tail = &h->next;
	f->nheld++;
	f->held_bytes += h->cap;
	return true;
}

static bool port_wanted(const struct tks_pcap_in *in, uint16_t port)
{
	for (size_t i = 0; i < in->cfg.nports; i++)
		if (in->ports[i] == port)
			return true;
	return in->cfg.nports == 0;
}

static void set_server(struct tks_pcap_in *in, struct flow *f, int server)
{
	f->server = (uint8_t)server;
	f->ignored = !port_wanted(in, f->end[server].ep.port);
}

static int server_by_port(const struct flow *f)
{
	return f->end[1].ep.port < f->end[0].ep.port;
}

/* The end that is the server, as far as the ports asked for and this payload tell, or NOBODY. */
static int find_server(const struct tks_pcap_in *in, const struct flow *f, const struct held *h,
		       const uint8_t *data)
{
	bool wanted = port_wanted(in, f->end[1].ep.port);

	if (wanted != port_wanted(in, f->end[0].ep.port))
		return wanted;
	if (!h->cap)
		return NOBODY;
	if (tks_http1_sniff(TKS_REQUEST, data, h->cap) == 1)
		return !h->from;
	return tks_http1_sniff(TKS_RESPONSE, data, h->cap) == 1 ? h->from : NOBODY;
}

/* It has to be decided now. */
static void settle(struct tks_pcap_in *in, struct flow *f)
{
	if (f->server == NOBODY)
		set_server(in, f, server_by_port(f));
	f->opening = false;
	release_held(in, f);
}

/* --- the table --- */

/* SipHash-1-3 (Aumasson, Bernstein 2012) over whole words: whoever wrote the file must not choose
 * the buckets. */
static void sip_round(uint64_t v[4])
{
	v[0] += v[1];
	v[1] = (v[1] << 13 | v[1] >> 51) ^ v[0];
	v[0] = v[0] << 32 | v[0] >> 32;
	v[2] += v[3];
	v[3] = (v[3] << 16 | v[3] >> 48) ^ v[2];
	v[0] += v[3];
	v[3] = (v[3] << 21 | v[3] >> 43) ^ v[0];
	v[2] += v[1];
	v[1] = (v[1] << 17 | v[1] >> 47) ^ v[2];
	v[2] = v[2] << 32 | v[2] >> 32;
}

static uint64_t hash(const uint64_t seed[2], const struct tks_endpoint ep[2])
{
	uint64_t v[4] = { seed[0] ^ 0x736f6d6570736575, seed[1] ^ 0x646f72616e646f6d,
			  seed[0] ^ 0x6c7967656e657261, seed[1] ^ 0x7465646279746573 };
	uint64_t words[5];

	memcpy(words, ep[0].addr, 16);
	memcpy(words + 2, ep[1].addr, 16);
	words[4] = (uint64_t)ep[0].port << 32 | (uint64_t)ep[1].port << 16 | ep[0].family;
	for (int i = 0; i < 5; i++) {
		v[3] ^= words[i];
		sip_round(v);
		v[0] ^= words[i];
	}
	v[2] ^= 0xff;
	sip_round(v);
	sip_round(v);
	sip_round(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

static int endpoint_cmp(const struct tks_endpoint *a, const struct tks_endpoint *b)
{
	int d = memcmp(a->addr, b->addr, sizeof(a->addr));

	if (!d)
		d = (a->port > b->port) - (a->port < b->port);
	return d ? d : (a->family > b->family) - (a->family < b->family);
}

static struct flow **find_slot(struct tks_pcap_in *in, const struct tks_endpoint ep[2])
{
	struct flow **f = &in->buckets[hash(in->seed, ep) & (in->nbuckets - 1)];

	while (*f &&
	       (endpoint_cmp(&(*f)->end[0].ep, &ep[0]) || endpoint_cmp(&(*f)->end[1].ep, &ep[1])))
		f = &(*f)->hash_next;
	return f;
}

static void forget(struct tks_pcap_in *in, struct flow *f)
{
	const struct tks_endpoint ep[2] = { f->end[0].ep, f->end[1].ep };

	while (f->held)
		free_held(in, f, f->held);
	*find_slot(in, ep) = f->hash_next;
	tks_list_remove(&f->lru);
	in->count--;
	tks_mem_free(in->mem, f, sizeof(*f));
}

static struct flow *oldest(struct tks_pcap_in *in)
{
	return tks_list_entry(in->lru.next, struct flow, lru);
}

static void tell_unseen(struct tks_pcap_in *in, struct flow *f, int from)
{
	const struct end *e = &f->end[from];
	const struct held h = {
		.ts_ns = e->acked_ns,
		.seq = e->next,
		.len = unseen(e),
		.from = (uint8_t)from,
	};

	if (h.len && !e->fin)
		tell_data(in, f, &h, NULL);
}

/* Nothing more will be heard of it: tells what was held back. */
static void expire(struct tks_pcap_in *in, struct flow *f)
{
	settle(in, f);
	if (!f->closed) {
		tell_unseen(in, f, 0);
		tell_unseen(in, f, 1);
	}
	tell_fins(in, f);
	forget(in, f);
}

static struct flow *add_flow(struct tks_pcap_in *in, const struct tks_endpoint ep[2])
{
	struct flow *f, **slot;

	if (in->count == in->cfg.max_connections) {
		in->counters.evicted++;
		expire(in, oldest(in));
	}
	f = tks_mem_alloc(in->mem, sizeof(*f));
	if (!f)
		return NULL;
	f->key = ++in->last_key;
	f->end[0].ep = ep[0];
	f->end[1].ep = ep[1];
	f->held_tail = &f->held;
	f->server = NOBODY;
	slot = find_slot(in, ep);
	*slot = f;
	tks_list_append(&in->lru, &f->lru);
	in->count++;
	in->counters.connections++;
	return f;
}

/* --- SYN --- */

/* Is seq close in front of what was seen of e? Then they belong together, in the wrong order. */
static bool just_before(const struct end *e, uint32_t seq)
{
	return e->seen && seq_diff(e->first, seq) >= 0 && seq_diff(e->first, seq) < LATE_SYN_MAX;
}

/* Does this SYN belong to the connection that is known, rather than begin a new one? */
static bool same_incarnation(const struct flow *f, const struct tks_packet *p, int from)
{
	const struct end *e = &f->end[from], *other = &f->end[!from];

	if (e->isn_known)
		return e->isn == p->seq;
	if (f->closed)
		return false;
	/* An answer to the other end's SYN, and to the data in it (RFC 7413). */
	if ((p->flags & TKS_TCP_ACK) && other->isn_known)
		return seq_diff(p->ack, other->isn + 1) >= 0 && seq_diff(other->next, p->ack) >= 0;
	if (just_before(e, p->seq + 1))
		return true;
	return (p->flags & TKS_TCP_ACK) && just_before(other, p->ack);
}

static void learn_isn(struct end *e, uint32_t isn)
{
	if (e->isn_known)
		return;
	e->isn = isn;
	e->isn_known = true;
	if (!e->seen)
		e->first = e->next = isn + 1;
	e->seen = true;
}

static void on_syn(struct tks_pcap_in *in, struct flow *f, const struct tks_packet *p, int from,
		   uint64_t ts_ns)
{
	bool ack = p->flags & TKS_TCP_ACK;

	if (f->server != NOBODY && !f->opening) /* a copy, or too late to be of use */
		return;
	learn_isn(&f->end[from], p->seq);
	if (ack)
		learn_isn(&f->end[!from], p->ack - 1);
	if (f->server == NOBODY)
		set_server(in, f, ack ? from : !from);
	f->opening = true;
	if (f->end[0].isn_known && f->end[1].isn_known) {
		tell_open(in, f, ts_ns);
		release_held(in, f);
	}
}

/* A SYN was seen, and now not its SYN-ACK but another packet. An ACK alone of the server's answers
 * an older connection. */
static void open_without_synack(struct tks_pcap_in *in, struct flow *f, const struct tks_packet *p,
				int from, uint64_t ts_ns)
{
	struct end *client = &f->end[!f->server];

	if (from != f->server && (p->flags & TKS_TCP_ACK) && p->seq == client->isn + 1) {
		learn_isn(&f->end[f->server], p->ack - 1);
		tell_open(in, f, ts_ns);
		release_held(in, f);
	} else if (p->len) {
		settle(in, f);
	}
}

/* --- the rest of a connection's life --- */

static void saw(struct end *e, uint32_t seq, uint32_t len)
{
	if (!e->seen)
		e->first = e->next = seq;
	e->seen = true;
	if (seq_diff(seq + len, e->next) > 0 && seq_diff(seq + len, e->next) < JUMP_MAX)
		e->next = seq + len;
}

static void on_payload(struct tks_pcap_in *in, struct flow *f, const struct tks_packet *p, int from,
		       uint64_t ts_ns)
{
	const struct held h = {
		.ts_ns = ts_ns,
		.seq = p->seq + !!(p->flags & TKS_TCP_SYN),
		.len = p->len,
		.cap = p->cap,
		.from = (uint8_t)from,
	};
	int server = f->server;

	saw(&f->end[from], h.seq, h.len);
	if (server == NOBODY) {
		server = find_server(in, f, &h, p->data);
		if (server != NOBODY)
			set_server(in, f, server);
	}
	if ((server == NOBODY || f->opening) && hold(in, f, &h, p->data))
		return;
	settle(in, f);
	tell_data(in, f, &h, p->data);
}

static void on_fin(struct flow *f, const struct tks_packet *p, int from, uint64_t ts_ns)
{
	struct end *e = &f->end[from];
	uint32_t seq = p->seq + p->len;

	if (e->fin || !e->seen || seq_diff(seq, e->next) < 0 || seq_diff(seq, e->next) >= JUMP_MAX)
		return;
	e->fin = true;
	e->fin_seq = seq;
	e->fin_ns = ts_ns;
}

static void note_ack(struct end *e, uint32_t ack, uint64_t ts_ns)
{
	int32_t ahead = seq_diff(ack, e->next);

	if (e->seen && ahead > (int32_t)unseen(e) && ahead <= LOSS_MAX) {
		e->acked = ack;
		e->acked_ns = ts_ns;
	}
}

static void on_ack(struct tks_pcap_in *in, struct flow *f, const struct tks_packet *p, int from,
		   uint64_t ts_ns)
{
	struct end *e = &f->end[!from];

	note_ack(e, p->ack, ts_ns);
	if (!e->fin || e->fin_acked || p->ack != e->fin_seq + 1)
		return;
	e->fin_acked = true;
	settle(in, f);
	tell_fin(in, f, !from);
	if (f->end[from].fin_acked)
		tell_close(in, f, ts_ns, NOBODY);
}

static void on_rst(struct tks_pcap_in *in, struct flow *f, const struct tks_packet *p, int from,
		   uint64_t ts_ns)
{
	struct end *e = &f->end[from];
	int32_t ahead = seq_diff(p->seq, e->next);

	if (e->seen && (ahead < -RST_BEHIND || ahead > LOSS_MAX))
		return;
	settle(in, f);
	tell_fins(in, f);
	if (e->seen && ahead > 0) /* its sender had sent more than was captured */
		e->next = p->seq;
	if (p->flags & TKS_TCP_ACK)
		note_ack(&f->end[!from], p->ack, ts_ns);
	tell_close(in, f, ts_ns, from);
}

static void release_late_fins(struct tks_pcap_in *in, struct flow *f, uint64_t ts_ns)
{
	for (int i = 0; i < 2; i++) {
		const struct end *e = &f->end[i];

		if (e->fin && !e->fin_told && ts_ns > e->fin_ns &&
		    ts_ns - e->fin_ns > FIN_WAIT_NS) {
			settle(in, f);
			tell_fin(in, f, i);
		}
	}
}

/* What a segment does to a connection that is open. */
static void on_segment(struct tks_pcap_in *in, struct flow *f, const struct tks_packet *p, int from,
		       uint64_t ts_ns)
{
	release_late_fins(in, f, ts_ns);
	if (p->flags & TKS_TCP_RST) {
		on_rst(in, f, p, from, ts_ns);
		return;
	}
	if (p->flags & TKS_TCP_SYN)
		on_syn(in, f, p, from, ts_ns);
	else if (f->opening)
		open_without_synack(in, f, p, from, ts_ns);
	if (p->len)
		on_payload(in, f, p, from, ts_ns);
	if (p->flags & TKS_TCP_FIN)
		on_fin(f, p, from, ts_ns);
	if (p->flags & TKS_TCP_ACK)
		on_ack(in, f, p, from, ts_ns);
}

/* A SYN that is no copy of the one known begins a new connection: the old one's end was not seen.
 */
static void end_incarnation(struct tks_pcap_in *in, struct flow *f, uint64_t ts_ns)
{
	settle(in, f);
	tell_fins(in, f);
	if (!f->closed)
		tell_close(in, f, ts_ns, NOBODY);
	forget(in, f);
}

/* *f: the segment's connection. Why it brings nothing, or TKS_SKIP_NONE; with *f NULL then, there
 * is no memory. */
static enum tks_skip flow_of(struct tks_pcap_in *in, const struct tks_packet *p, int from,
			     uint64_t ts_ns, struct flow **f)
{
	const struct tks_endpoint ep[2] = { from ? p->dst : p->src, from ? p->src : p->dst };
	bool syn = (p->flags & TKS_TCP_SYN) && !(p->flags & TKS_TCP_RST);

	if (!port_wanted(in, p->src.port) && !port_wanted(in, p->dst.port))
		return TKS_SKIP_FILTERED;
	*f = *find_slot(in, ep);
	if (*f && syn && !same_incarnation(*f, p, from)) {
		end_incarnation(in, *f, ts_ns);
		*f = NULL;
	}
	if (*f) {
		tks_list_remove(&(*f)->lru);
		tks_list_append(&in->lru, &(*f)->lru);
		return (*f)->closed ? TKS_SKIP_LATE : TKS_SKIP_NONE;
	}
	if (!syn && !p->len)
		return TKS_SKIP_EMPTY;
	*f = add_flow(in, ep);
	return TKS_SKIP_NONE;
}

int tks_pcap_in_packet(struct tks_pcap_in *in, int link, uint64_t ts_ns, const uint8_t *data,
		       uint32_t cap, uint32_t len)
{
	struct tks_packet p;
	struct flow *f = NULL;
	enum tks_skip why = tks_packet_parse(link, data, cap, len, &p);
	int from = 0;

	in->counters.packets++;
	if (ts_ns > in->now_ns)
		in->now_ns = ts_ns;
	if (!why) {
		from = endpoint_cmp(&p.src, &p.dst) > 0;
		why = flow_of(in, &p, from, ts_ns, &f);
	}
	if (!why && !f) {
		in->counters.no_memory++;
		return -ENOMEM;
	}
	if (!why) {
		on_segment(in, f, &p, from, ts_ns);
		if (f->ignored)
			why = TKS_SKIP_FILTERED;
	}
	in->counters.skipped[why]++;
	return 0;
}

/* --- files --- */

int tks_pcap_in_open(struct tks_pcap_in *in, FILE *f, char *why, size_t why_len)
{
	char error[PCAP_ERRBUF_SIZE] = "";

	tks_pcap_in_close(in);
	in->file = pcap_fopen_offline_with_tstamp_precision(f, PCAP_TSTAMP_PRECISION_NANO, error);
	if (!in->file) {
		fclose(f);
		snprintf(why, why_len, "%s", error);
		return -EBADMSG;
	}
	in->link = pcap_datalink(in->file);
	if (tks_packet_link_known(in->link)) {
		in->got = pcap_next_ex(in->file, &in->header, &in->data);
		in->ahead = true;
		return 0;
	}
	snprintf(why, why_len, "link type %s can't be read here",
		 pcap_datalink_val_to_description_or_dlt(in->link));
	tks_pcap_in_close(in);
	return -EPROTONOSUPPORT;
}

/* Nanoseconds since the epoch, as far as a signed 64-bit number has them. */
static bool packet_time(const struct pcap_pkthdr *h, uint64_t *ts_ns)
{
	if (h->ts.tv_sec < 0 || h->ts.tv_sec >= INT64_MAX / 1000000000 || h->ts.tv_usec < 0 ||
	    h->ts.tv_usec >= 1000000000)
		return false;
	*ts_ns = (uint64_t)h->ts.tv_sec * 1000000000 + (uint64_t)h->ts.tv_usec;
	return true;
}

uint64_t tks_pcap_in_ahead(const struct tks_pcap_in *in)
{
	uint64_t ts_ns;

	if (!in->file || !in->ahead || in->got != 1 || !packet_time(in->header, &ts_ns))
		return UINT64_MAX;
	return ts_ns;
}

int tks_pcap_in_next(struct tks_pcap_in *in, char *why, size_t why_len)
{
	uint64_t ts_ns;
	int err;

	if (!in->file)
		return 0;
	if (!in->ahead)
		in->got = pcap_next_ex(in->file, &in->header, &in->data);
	in->ahead = false;
	if (in->got == PCAP_ERROR_BREAK)
		return 0;
	if (in->got != 1) {
		snprintf(why, why_len, "%s", pcap_geterr(in->file));
		return strncmp(why, "truncated", 9) == 0 ? -ENODATA : -EBADMSG;
	}
	if (!packet_time(in->header, &ts_ns)) {
		in->counters.packets++;
		in->counters.skipped[TKS_SKIP_BAD]++;
		return 1;
	}
	err = tks_pcap_in_packet(in, in->link, ts_ns, in->data, in->header->caplen,
				 in->header->len);
	return err ? err : 1;
}

void tks_pcap_in_close(struct tks_pcap_in *in)
{
	if (in->file)
		pcap_close(in->file);
	in->file = NULL;
	in->ahead = false;
}

/* --- the object --- */

static uint32_t power_of_two(uint32_t n)
{
	uint32_t p = 1;

	while (p < n && p < 1u << 31)
		p *= 2;
	return p;
}

struct tks_pcap_in *tks_pcap_in_new(const struct tks_pcap_in_config *cfg)
{
	struct tks_pcap_in *in;

	if (cfg->nports > TKS_PCAP_PORTS_MAX)
		return NULL;
	in = tks_mem_alloc(cfg->mem, sizeof(*in));
	if (!in)
		return NULL;
	in->cfg = *cfg;
	in->mem = cfg->mem;
	if (!in->cfg.max_connections)
		in->cfg.max_connections = CONNECTIONS_DEFAULT;
	for (size_t i = 0; i < cfg->nports; i++)
		in->ports[i] = cfg->ports[i];
	in->nbuckets = power_of_two(in->cfg.max_connections);
	in->buckets = tks_mem_alloc(in->mem, in->nbuckets * sizeof(struct flow *));
	if (!in->buckets) {
		tks_mem_free(in->mem, in, sizeof(*in));
		return NULL;
	}
	tks_list_init(&in->lru);
	/* Short reads leave the seed partly zero, which only makes it easier to guess. */
	if (getrandom(in->seed, sizeof(in->seed), GRND_NONBLOCK) < 0)
		in->seed[0] = (uintptr_t)in;
	return in;
}

void tks_pcap_in_finish(struct tks_pcap_in *in)
{
	while (!tks_list_empty(&in->lru))
		expire(in, oldest(in));
	in->now_ns = 0;
}

void tks_pcap_in_free(struct tks_pcap_in *in)
{
	if (!in)
		return;
	while (!tks_list_empty(&in->lru))
		forget(in, oldest(in));
	tks_pcap_in_close(in);
	tks_mem_free(in->mem, in->buckets, in->nbuckets * sizeof(struct flow *));
	tks_mem_free(in->mem, in, sizeof(*in));
}

uint64_t tks_pcap_in_now(const struct tks_pcap_in *in)
{
	return in->now_ns;
}

void tks_pcap_in_counters(const struct tks_pcap_in *in, struct tks_pcap_counters *out)
{
	*out = in->counters;
}
