// SPDX-License-Identifier: GPL-2.0-only
/*
 * Multipath TCP: the process sends on a socket of its own kind, and the kernel puts the bytes onto
 * one or several TCP connections below (subflows). They are recorded as sent on the first subflow,
 * at the place that they have in the whole stream: with one subflow, which is nearly always so,
 * that is where they go. Its packets, its opening and its end are seen as those of any TCP
 * connection.
 *
 *   fentry, kprobe   mptcp_sendmsg, entry and return
 *   tp_btf           sock_send_length (6.3), the return only: see unix.bpf.c
 */

enum { TKS_IPPROTO_MPTCP = 262 };

/* The first subflow of a socket that is MPTCP's and wanted, or NULL. */
static __always_inline struct sock *mp_first(const struct sock *sk)
{
	struct sock *first;

	if (BPF_CORE_READ(sk, sk_protocol) != TKS_IPPROTO_MPTCP || !sock_wanted(sk))
		return NULL;
	first = BPF_CORE_READ((const struct mptcp_sock *)sk, first);
	return first;
}

/*
 * The sequence number on the first subflow of what the socket is to send next. The subflow counts
 * its own bytes from 1 (rel_write_seq), the socket from the subflow's initial data sequence number
 * (RFC 8684, 3.3.1).
 */
static __always_inline __u32 mp_seq(const struct sock *sk, const struct sock *first)
{
	const struct mptcp_subflow_context *ctx =
		BPF_CORE_READ((const struct inet_connection_sock *)first, icsk_ulp_data);
	__u64 sent = BPF_CORE_READ((const struct mptcp_sock *)sk, write_seq);
	__u32 begin = 0;

	/* The two change together, under a lock that is not ours. */
	for (int i = 0; i < 3; i++) {
		__u32 seq = write_seq(first);

		begin = seq - BPF_CORE_READ(ctx, rel_write_seq) + 1;
		if (write_seq(first) == seq)
			break;
	}
	return begin + (__u32)(sent - BPF_CORE_READ(ctx, idsn) - 1);
}

static __always_inline void mp_enter(const struct sock *sk, const struct msghdr *msg)
{
	struct sock *first = mp_first(sk);
	struct inflight *f;

	if (!first)
		return;
	f = send_begin(first, msg, cookie_read(first));
	if (!f)
		return;
	inflight_iter(f, msg);
	f->seq = mp_seq(sk, first);
}

SEC("?fentry/mptcp_sendmsg")
int BPF_PROG(mp_fentry, struct sock *sk, struct msghdr *msg, size_t size)
{
	preempt_off();
	mp_enter(sk, msg);
	preempt_on();
	return 0;
}

SEC("?fexit/mptcp_sendmsg")
int BPF_PROG(mp_fexit, struct sock *sk, struct msghdr *msg, size_t size, int ret)
{
	send_exit(mp_first(sk), ret, TKS_SCRATCH_MPTCP);
	return 0;
}

SEC("?kprobe/mptcp_sendmsg")
int BPF_KPROBE(mp_kprobe, struct sock *sk, struct msghdr *msg, size_t size)
{
	mp_enter(sk, msg);
	return 0;
}

SEC("?kretprobe/mptcp_sendmsg")
int BPF_KRETPROBE(mp_kret, int ret)
{
	send_exit(NULL, ret, TKS_SCRATCH_MPTCP);
	return 0;
}

SEC("?tp_btf/sock_send_length")
int BPF_PROG(mp_tp, struct sock *sk, int ret, int flags)
{
	struct sock *first;
	struct inflight *f;

	if (ret <= 0)
		return 0;
	first = mp_first(sk);
	if (!first)
		return 0;
	f = send_begin(first, NULL, cookie_read(first));
	if (!f)
		return 0;
	f->size = TKS_SIZE_UNKNOWN;
	f->at.seg = 0;
	f->at.seg_off = 0;
	f->at.kind = TKS_ITER_OTHER;
	cursor_of_call(f, sk);
	f->seq = mp_seq(sk, first) - (__u32)ret;
	send_exit(first, ret, TKS_SCRATCH_MPTCP);
	return 0;
}
