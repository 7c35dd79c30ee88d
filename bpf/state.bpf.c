// SPDX-License-Identifier: GPL-2.0-only
/*
 * Connections opening, half-closing and closing: the tracepoint inet_sock_set_state (4.16), as
 * tp_btf. It runs a few times a connection, never a packet.
 */

/* What a step from one TCP state to the next means to us; 0: nothing. */
static __always_inline __u16 state_of(int from, int to)
{
	switch (to) {
	case TCP_ESTABLISHED:
		return from == TCP_SYN_SENT ? TKS_CONN_CONNECTED : TKS_CONN_ACCEPTED;
	case TCP_CLOSE_WAIT:
		return TKS_CONN_PEER_FIN;
	case TCP_FIN_WAIT1:
	case TCP_LAST_ACK:
		return TKS_CONN_LOCAL_FIN;
	case TCP_CLOSE:
		return TKS_CONN_CLOSED;
	default:
		return 0;
	}
}

static __always_inline void emit_state(const struct sock *sk, __u64 cookie, __u16 state)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;
	struct tks_rec *r;

	/* Straight into the ring: a change in a packet's wake may interrupt one in a process's. */
	r = bpf_ringbuf_reserve(&ring, sizeof(*r), 0);
	if (!r) {
		loss_record(cookie, 0);
		return;
	}
	__builtin_memset(r, 0, sizeof(*r));
	r->size = sizeof(*r);
	r->lost = lost_so_far(cookie);
	r->kind = TKS_REC_CONN;
	r->state = state;
	r->ts_ns = bpf_ktime_get_ns();
	r->cookie = cookie;
	r->seq = BPF_CORE_READ(tp, write_seq);
	r->rcv_seq = BPF_CORE_READ(tp, rcv_nxt);
	r->err = BPF_CORE_READ(sk, sk_err);
	/* The peer's FIN has been counted already. */
	if (state == TKS_CONN_PEER_FIN)
		r->rcv_seq--;
	rec_sock(r, sk);
	bpf_ringbuf_submit(r, wake_flag());
}

SEC("?tp_btf/inet_sock_set_state")
int BPF_PROG(conn_state, const struct sock *sk, int from, int to)
{
	__u16 state = from == to ? 0 : state_of(from, to);
	struct conn *c;
	__u64 cookie;

	/* 6: IPPROTO_TCP. A socket that closes has given back its port already. */
	if (!state || BPF_CORE_READ(sk, sk_protocol) != 6 ||
	    (state != TKS_CONN_CLOSED && !sock_wanted(sk)))
		return 0;
	cookie = cfg_cookie_helper ? bpf_get_socket_cookie((void *)sk) : cookie_read(sk);
	if (!cookie)
		return 0;
	c = bpf_map_lookup_elem(&conns, &cookie);
	if (!c && state <= TKS_CONN_CONNECTED)
		c = conn_make(cookie, state);
	if (!c)
		return 0;
	/* Userspace may know of an ignored connection, unless it was so from the start. */
	if (c->verdict != TKS_VERDICT_IGNORE ||
	    (state == TKS_CONN_CLOSED && c->role != TKS_CONN_CONNECTED))
		emit_state(sk, cookie, state);
	if (state == TKS_CONN_CLOSED) {
		bpf_map_delete_elem(&conns, &cookie);
		if (any_loss)
			bpf_map_delete_elem(&conn_lost, &cookie);
	}
	return 0;
}
