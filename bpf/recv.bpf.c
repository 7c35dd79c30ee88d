// SPDX-License-Identifier: GPL-2.0-only
/*
 * The receive side: when a request's bytes arrived, and the bytes, before the process reads them.
 *
 * cgroup_skb/ingress at the root of the cgroup tree: it runs for each packet that has found its
 * socket, once the packet passed all checks and before it is queued, on every kernel in question;
 * the helpers read paged packets too. It is cheaper than it sounds: a packet without payload (most
 * of what a streaming server receives are acknowledgements) leaves after reading the header, one of
 * another port after comparing two numbers. The tracepoint tcp_probe is no alternative (late when
 * the socket is in use, never for the packet that ends the handshake), nor are the receive calls
 * (they tell when the process came to read).
 */

/* What is read of a packet's headers. */
struct pkt {
	__u8 saddr[16], daddr[16];
	__u16 family, sport, dport;
	__u32 seq;
	__u32 off; /* of the payload in the packet */
	__u32 len; /* of the payload */
};

struct recv_scratch {
	struct tks_rec rec;
	__u8 data[TKS_DATA_CAP];
	struct pkt pkt;
	__u32 limit; /* bytes of the payload to capture */
	__u32 done; /* bytes of the payload that records stand for */
	__u32 parts; /* records written */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set to the number of CPUs */
	__type(key, __u32);
	__type(value, struct recv_scratch);
} recv_scratches SEC(".maps");

enum { TKS_RECV_RECS = 5 }; /* records a packet takes at most: 64 KiB and a bit */

static __always_inline struct recv_scratch *recv_scratch(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&recv_scratches, &cpu);
}

static __always_inline int parse_ip(struct __sk_buff *skb, struct pkt *p, __u32 *l4)
{
	struct ipv6hdr h6;
	struct iphdr h;

	if (skb->protocol == bpf_htons(0x0800)) {
		if (bpf_skb_load_bytes(skb, 0, &h, sizeof(h)) || h.protocol != 6)
			return -1;
		p->family = AF_INET;
		__builtin_memcpy(p->saddr, &h.saddr, 4);
		__builtin_memcpy(p->daddr, &h.daddr, 4);
		*l4 = h.ihl * 4;
		return 0;
	}
	if (skb->protocol == bpf_htons(0x86dd)) {
		if (bpf_skb_load_bytes(skb, 0, &h6, sizeof(h6)) || h6.nexthdr != 6)
			return -1;
		p->family = AF_INET6;
		__builtin_memcpy(p->saddr, &h6.saddr, 16);
		__builtin_memcpy(p->daddr, &h6.daddr, 16);
		*l4 = sizeof(h6);
		return 0;
	}
	return -1;
}

static __always_inline int parse(struct __sk_buff *skb, struct pkt *p)
{
	struct tcphdr th;
	__u32 l4 = 0;

	if (parse_ip(skb, p, &l4) || bpf_skb_load_bytes(skb, l4, &th, sizeof(th)))
		return -1;
	p->sport = bpf_ntohs(th.source);
	p->dport = bpf_ntohs(th.dest);
	/* A SYN counts one; data on it (fast open) begins behind. */
	p->seq = bpf_ntohl(th.seq) + th.syn;
	p->off = l4 + th.doff * 4;
	p->len = skb->len > p->off ? skb->len - p->off : 0;
	return 0;
}

static __always_inline void rec_pkt(struct tks_rec *r, const struct pkt *p, __u64 cookie, __u64 now)
{
	__builtin_memset(r, 0, sizeof(*r));
	r->kind = TKS_REC_RX;
	r->ts_ns = now;
	r->cookie = cookie;
	r->seq = p->seq;
	r->family = p->family;
	r->lport = p->dport;
	r->rport = p->sport;
	__builtin_memcpy(r->laddr, p->daddr, 16);
	__builtin_memcpy(r->raddr, p->saddr, 16);
}

/*
 * A connection not met before. If the socket has neither received nor sent a byte this is its
 * start: said here, too, for kernels where the state's tracepoint can't name a new socket.
 */
static __always_inline void rec_open(struct recv_scratch *s, struct bpf_sock *sk,
				     const struct pkt *p)
{
	struct bpf_tcp_sock *tp = bpf_tcp_sock(sk);

	if (!tp || tp->bytes_received || tp->data_segs_in || tp->rcv_nxt != p->seq ||
	    tp->data_segs_out)
		return;
	s->rec.kind = TKS_REC_CONN;
	s->rec.state = TKS_CONN_ACCEPTED;
	s->rec.seq = tp->snd_nxt;
	s->rec.rcv_seq = p->seq;
	emit(&s->rec, sizeof(s->rec));
}

static __always_inline __u32 recv_limit(__u8 verdict, __u32 len)
{
	if (verdict == TKS_VERDICT_HEADERS && len > TKS_HEADERS_CAP)
		return TKS_HEADERS_CAP;
	return len;
}

/* One record from the scratch; 1: it was the last. */
__noinline int emit_pkt_part(struct __sk_buff *skb)
{
	struct recv_scratch *s = recv_scratch();
	__u32 n;

	if (!s)
		return 1;
	s->parts++;
	n = s->limit > s->done ? s->limit - s->done : 0;
	if (n > TKS_DATA_CAP)
		n = TKS_DATA_CAP;
	if (n) {
		/* Before 6.3 the verifier does not conclude from n != 0 that n is at least 1. */
		n--;
		barrier_var(n);
		n = (n & (TKS_DATA_CAP - 1)) + 1;
		if (bpf_skb_load_bytes(skb, s->pkt.off + s->done, s->data, n)) {
			loss_add(TKS_LOSS_UNREADABLE, n);
			n = 0;
		}
	}
	s->rec.seq = s->pkt.seq + s->done;
	s->rec.cap = n;
	s->rec.len = n;
	if (!n || s->done + n >= s->limit || s->parts == TKS_RECV_RECS)
		s->rec.len = s->pkt.len - s->done;
	s->done += s->rec.len;
	emit(&s->rec, sizeof(s->rec) + n);
	s->rec.flags |= TKS_RECF_CONT;
	return s->done >= s->pkt.len;
}

static __always_inline void emit_pkt(struct __sk_buff *skb, struct recv_scratch *s, __u32 limit)
{
	s->limit = limit;
	s->done = 0;
	s->parts = 0;
	for (int i = 0; i < TKS_RECV_RECS; i++) {
		if (emit_pkt_part(skb))
			break;
	}
}

SEC("?cgroup_skb/ingress")
int rx_skb(struct __sk_buff *skb)
{
	struct recv_scratch *s;
	struct bpf_sock *sk;
	struct pkt p = {};
	struct conn *c;
	__u64 cookie;

	if (parse(skb, &p) || (!p.len && !cfg_make_cookies) || !ports_wanted(p.dport, p.sport))
		return 1;
	sk = skb->sk;
	if (!sk)
		return 1;
	sk = bpf_sk_fullsock(sk);
	if (!sk)
		return 1;
	cookie = bpf_get_socket_cookie(skb);
	if (!p.len)
		return 1;
	s = recv_scratch();
	if (!s)
		return 1;
	s->pkt = p;
	/* The handshake's last packet brought data: its socket is still the listener's. */
	if (sk->state == BPF_TCP_LISTEN) {
		rec_pkt(&s->rec, &p, 0, bpf_ktime_get_ns());
		s->rec.flags = TKS_RECF_LISTENER;
		emit_pkt(skb, s, p.len);
		return 1;
	}
	c = bpf_map_lookup_elem(&conns, &cookie);
	if (c && c->verdict == TKS_VERDICT_IGNORE)
		return 1;
	rec_pkt(&s->rec, &p, cookie, bpf_ktime_get_ns());
	if (c)
		bulk_over(c, TKS_CONN_ACCEPTED);
	if (!c) {
		c = conn_make(cookie, 0);
		if (!c) {
			loss_add(TKS_LOSS_CONN_FULL, 1);
			return 1;
		}
		rec_open(s, sk, &p);
		rec_pkt(&s->rec, &p, cookie, s->rec.ts_ns);
	}
	emit_pkt(skb, s, recv_limit(c->verdict, p.len));
	return 1;
}
