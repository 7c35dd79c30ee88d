// SPDX-License-Identifier: GPL-2.0-only
/*
 * Unix stream sockets. A send on either end is a record of the one connection that both make up, as
 * the server has it: what the server's process sends is sent, what the client sends has arrived.
 * Such a socket has no sequence numbers; the bytes are counted here.
 *
 * The server's end is the one with an address that it shares with a listener; two ends without (a
 * socketpair) are nobody's server.
 *
 *   fentry, kprobe   unix_stream_sendmsg, entry and return (until 6.5 unix_stream_sendpage, too),
 *                    unix_shutdown and unix_release
 *   tp_btf           sock_send_length and sock_recv_length (6.3), which see the return only: the
 *                    time is the return's, the bytes are found through the system call's arguments,
 *                    and an end is known when the other side reads it
 */

enum { AF_UNIX = 1, EPIPE = 32, ECONNRESET = 104 };
enum { TKS_SOCK_STREAM = 1, TKS_RCV_SHUTDOWN = 1, TKS_SHUTDOWN_BOTH = 3 };

struct unix_conn {
	__u64 id; /* its key everywhere else */
	__u64 client; /* the other end */
	__u64 stamp; /* the server's cookie, where one can be made: addresses of sockets come again
		      */
	__u32 bytes[2]; /* so far, 0: from the client, 1: to it */
	__u32 err; /* of a send that found the other end gone */
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64); /* the server's end */
	__type(value, struct unix_conn);
} unix_conns SEC(".maps");

struct unix_ends {
	const struct sock *server, *client;
	bool by_server; /* the socket that was asked about */
};

static __always_inline const struct unix_address *unix_addr(const struct sock *sk)
{
	return BPF_CORE_READ((const struct unix_sock *)sk, addr);
}

/* Other sockets have the address too: the listener that sk was accepted from. */
static __always_inline bool addr_shared(const struct unix_address *addr)
{
	return addr && BPF_CORE_READ(addr, refcnt.refs.counter) > 1;
}

static __always_inline bool is_unix(const struct sock *sk)
{
	return !cfg_nports && BPF_CORE_READ(sk, __sk_common.skc_family) == AF_UNIX &&
	       BPF_CORE_READ(sk, sk_type) == TKS_SOCK_STREAM;
}

static __always_inline bool unix_ends(const struct sock *sk, struct unix_ends *e)
{
	const struct unix_address *own, *others;
	const struct sock *peer;

	if (!is_unix(sk))
		return false;
	peer = BPF_CORE_READ((const struct unix_sock *)sk, peer);
	if (!peer)
		return false;
	own = unix_addr(sk);
	others = unix_addr(peer);
	if (!own && !others)
		return false;
	e->by_server = !others || (own && addr_shared(own) && !addr_shared(others));
	if (!e->by_server && own && !addr_shared(others))
		return false; /* both have a name, and of none a listener is left to tell */
	e->server = e->by_server ? sk : peer;
	e->client = e->by_server ? peer : sk;
	return true;
}

/* --- records --- */

static __always_inline void unix_addresses(struct tks_rec *r, const struct sock *server)
{
	__u64 addr = (__u64)unix_addr(server);

	r->family = AF_UNIX;
	r->netns = BPF_CORE_READ(server, __sk_common.skc_net.net, ns.inum);
	/* Only its being the same or not means something. */
	__builtin_memcpy(r->laddr, &addr, sizeof(addr));
}

/* A change of the connection, with its path behind. */
static __always_inline void unix_state(const struct unix_conn *u, const struct sock *server,
				       __u16 state)
{
	const struct unix_address *addr = unix_addr(server);
	struct {
		struct tks_rec rec;
		char path[TKS_UNIX_PATH];
	} * e;
	struct tks_rec *r;
	__u32 n;

	e = bpf_ringbuf_reserve(&ring, sizeof(*e), 0);
	if (!e) {
		loss_record(u->id, 0);
		return;
	}
	r = &e->rec;
	__builtin_memset(r, 0, sizeof(*r));
	r->kind = TKS_REC_CONN;
	r->state = state;
	r->ts_ns = bpf_ktime_get_ns();
	r->cookie = u->id;
	r->lost = lost_so_far(u->id);
	r->seq = u->bytes[1];
	r->rcv_seq = u->bytes[0];
	r->err = u->err;
	unix_addresses(r, server);
	n = addr ? BPF_CORE_READ(addr, len) - sizeof(__kernel_sa_family_t) : 0;
	barrier_var(n);
	n &= 127;
	if (n > TKS_UNIX_PATH)
		n = TKS_UNIX_PATH;
	if (n && bpf_core_read(e->path, n, &addr->name[0].sun_path))
		n = 0;
	r->len = r->cap = n;
	r->size = sizeof(*r) + n;
	bpf_ringbuf_submit(e, wake_flag());
}

static __always_inline void unix_over(const struct unix_conn *u, const struct sock *server)
{
	struct conn *c = bpf_map_lookup_elem(&conns, &u->id);
	__u64 key = (__u64)server, id = u->id;

	if (c)
		unix_state(u, server, TKS_CONN_CLOSED);
	bpf_map_delete_elem(&unix_conns, &key);
	bpf_map_delete_elem(&conns, &id);
	if (any_loss)
		bpf_map_delete_elem(&conn_lost, &id);
}

static __always_inline struct unix_conn *unix_find(const struct unix_ends *e, __u64 stamp)
{
	__u64 key = (__u64)e->server;
	struct unix_conn *u = bpf_map_lookup_elem(&unix_conns, &key);

	if (!u || u->client != (__u64)e->client || (u->stamp && u->stamp != stamp))
		return NULL;
	u->stamp = stamp;
	return u;
}

/*
 * A connection not met before. It is so from its beginning if it was not accepted yet: the server's
 * end gets its struct socket then. Both ends may come here at once.
 */
static __always_inline struct unix_conn *unix_make(const struct unix_ends *e, __u64 stamp)
{
	struct unix_conn fresh = { .client = (__u64)e->client, .stamp = stamp };
	const struct sock *server = e->server;
	__u64 key = (__u64)server;
	struct unix_conn *u = bpf_map_lookup_elem(&unix_conns, &key);

	if (u)
		unix_over(u, server);
	/* Socket cookies are small numbers. */
	fresh.id = 1ull << 63 | bpf_ktime_get_ns() << 8 | (__u8)bpf_get_smp_processor_id();
	bpf_map_update_elem(&unix_conns, &key, &fresh, BPF_NOEXIST);
	u = bpf_map_lookup_elem(&unix_conns, &key);
	if (!u || (u->id == fresh.id && !conn_make(u->id, TKS_CONN_ACCEPTED))) {
		loss_add(TKS_LOSS_CONN_FULL, 1);
		return NULL;
	}
	if (u->id == fresh.id)
		unix_state(u, server,
			   BPF_CORE_READ(server, sk_socket) ? TKS_CONN_MET : TKS_CONN_ACCEPTED);
	return u;
}

/* The note of a send on one of the ends, if it is wanted. */
static __always_inline struct inflight *unix_begin(const struct unix_ends *e, const struct sock *sk,
						   __u64 stamp)
{
	struct unix_conn *u = unix_find(e, stamp);
	__u64 now = bpf_ktime_get_ns();
	struct inflight *f;
	struct conn *c;
	__u8 verdict;

	if (!u)
		u = unix_make(e, stamp);
	if (!u)
		return NULL;
	if (e->by_server) {
		verdict = send_verdict(u->id);
	} else {
		c = bpf_map_lookup_elem(&conns, &u->id);
		if (c)
			bulk_over(c, TKS_CONN_ACCEPTED);
		verdict = c ? c->verdict : TKS_VERDICT_IGNORE;
	}
	if (verdict == TKS_VERDICT_IGNORE)
		return NULL;
	f = inflight_get(true);
	if (!f) {
		loss_add(TKS_LOSS_INFLIGHT, 1);
		return NULL;
	}
	__builtin_memset(f, 0, sizeof(*f));
	f->sk = (__u64)sk;
	f->server = (__u64)e->server;
	f->ts_ns = now;
	f->cookie = u->id;
	f->to_client = e->by_server;
	f->seq = u->bytes[e->by_server];
	f->verdict = verdict;
	f->active = 1;
	return f;
}

static __always_inline void unix_rec(struct tks_rec *r, const struct inflight *f)
{
	__builtin_memset(r, 0, sizeof(*r));
	r->kind = f->to_client ? TKS_REC_TX : TKS_REC_RX;
	r->ts_ns = f->ts_ns;
	r->cookie = f->cookie;
	r->seq = f->seq;
	unix_addresses(r, (const struct sock *)f->server);
	/* Of what arrives the process is not the server's. */
	if (f->to_client)
		rec_task(r);
}

/* timed: the entry was seen. */
static __always_inline void unix_sent(struct inflight *f, long ret, bool timed, __u32 whose)
{
	__u64 key = f->server;
	struct unix_conn *u = bpf_map_lookup_elem(&unix_conns, &key);
	struct send_scratch *s = send_scratch(whose);
	__u32 *bytes;

	f->active = 0;
	if (!u || !s || u->id != f->cookie)
		return;
	if (ret <= 0) {
		if (ret == -EPIPE || ret == -ECONNRESET)
			u->err = -ret;
		return;
	}
	if (ret > f->size)
		ret = f->size;
	/* Each with a constant index, for the verifier. */
	bytes = f->to_client ? &u->bytes[1] : &u->bytes[0];
	if (*bytes != f->seq)
		f->unsure = 1; /* another thread sent in between */
	f->seq = *bytes;
	__sync_fetch_and_add(bytes, (__u32)ret);
	unix_rec(&s->rec, f);
	if (timed && f->to_client)
		s->rec.ret_ns = bpf_ktime_get_ns();
	emit_send(s, whose, f, ret);
}

/* --- fentry, kprobe --- */

static __always_inline void unix_enter(const struct sock *sk, const struct msghdr *msg)
{
	struct unix_ends e;
	struct inflight *f;

	if (!unix_ends(sk, &e))
		return;
	f = unix_begin(&e, sk, 0);
	if (f)
		inflight_iter(f, msg);
}

static __always_inline void unix_page(const struct sock *sk, __u64 page, __u32 offset, __u32 size)
{
	struct unix_ends e;
	struct inflight *f;

	if (!unix_ends(sk, &e))
		return;
	f = unix_begin(&e, sk, 0);
	if (f)
		inflight_page(f, page, offset, size);
}

static __always_inline void unix_exit(long ret, __u32 whose)
{
	struct inflight *f = inflight_get(false);

	if (!f || !f->active || !f->server)
		return;
	preempt_off();
	unix_sent(f, ret, true, whose);
	preempt_on();
}

/* An end stops sending; gone: and receiving. */
static __always_inline void unix_end(const struct sock *sk, bool gone)
{
	struct unix_ends e;
	struct unix_conn *u;

	if (!sk || !unix_ends(sk, &e))
		return;
	u = unix_find(&e, 0);
	if (!u || !bpf_map_lookup_elem(&conns, &u->id))
		return;
	if (e.by_server && gone)
		unix_over(u, e.server);
	else
		unix_state(u, e.server, e.by_server ? TKS_CONN_LOCAL_FIN : TKS_CONN_PEER_FIN);
}

SEC("?fentry/unix_stream_sendmsg")
int BPF_PROG(ux_fentry, struct socket *sock, struct msghdr *msg, size_t size)
{
	preempt_off();
	unix_enter(BPF_CORE_READ(sock, sk), msg);
	preempt_on();
	return 0;
}

SEC("?fexit/unix_stream_sendmsg")
int BPF_PROG(ux_fexit, struct socket *sock, struct msghdr *msg, size_t size, int ret)
{
	unix_exit(ret, TKS_SCRATCH_UNIX);
	return 0;
}

SEC("?fentry/unix_stream_sendpage")
int BPF_PROG(ux_page, struct socket *sock, struct page *page, int offset, size_t size)
{
	__u64 number = 0;

	/* As a number: see tx_page. */
	bpf_probe_read_kernel(&number, sizeof(number), &ctx[1]);
	unix_page(BPF_CORE_READ(sock, sk), number, offset, size);
	return 0;
}

SEC("?fexit/unix_stream_sendpage")
int BPF_PROG(ux_page_r, struct socket *sock, struct page *page, int offset, size_t size, int flags,
	     int ret)
{
	unix_exit(ret, TKS_SCRATCH_UNIX_PAGE);
	return 0;
}

SEC("?fentry/unix_release")
int BPF_PROG(ux_release, struct socket *sock)
{
	unix_end(BPF_CORE_READ(sock, sk), true);
	return 0;
}

SEC("?fentry/unix_shutdown")
int BPF_PROG(ux_shutdown, struct socket *sock, int mode)
{
	if (mode)
		unix_end(BPF_CORE_READ(sock, sk), false);
	return 0;
}

SEC("?kprobe/unix_stream_sendmsg")
int BPF_KPROBE(ux_kprobe, struct socket *sock, struct msghdr *msg, size_t size)
{
	unix_enter(BPF_CORE_READ(sock, sk), msg);
	return 0;
}

SEC("?kretprobe/unix_stream_sendmsg")
int BPF_KRETPROBE(ux_kret, int ret)
{
	unix_exit(ret, TKS_SCRATCH_UNIX);
	return 0;
}

SEC("?kprobe/unix_stream_sendpage")
int BPF_KPROBE(ux_page_kp, struct socket *sock, struct page *page, int offset, size_t size)
{
	unix_page(BPF_CORE_READ(sock, sk), (__u64)page, offset, size);
	return 0;
}

SEC("?kretprobe/unix_stream_sendpage")
int BPF_KRETPROBE(ux_page_kret, int ret)
{
	unix_exit(ret, TKS_SCRATCH_UNIX_PAGE);
	return 0;
}

SEC("?kprobe/unix_release")
int BPF_KPROBE(ux_release_kp, struct socket *sock)
{
	unix_end(BPF_CORE_READ(sock, sk), true);
	return 0;
}

SEC("?kprobe/unix_shutdown")
int BPF_KPROBE(ux_shutdown_kp, struct socket *sock, int mode)
{
	if (mode)
		unix_end(BPF_CORE_READ(sock, sk), false);
	return 0;
}

/* --- tp_btf --- */

/* Where the bytes lie that the current task's system call sends on sk; size stays 0 if its
 * arguments don't tell (io_uring, splice, sendmmsg). */
static __always_inline void cursor_of_call(struct inflight *f, const struct sock *sk)
{
	struct pt_regs *regs = (void *)user_regs();
	struct user_msghdr m;
	struct socket *so;
	struct file *file;
	__u64 arg;

	if (!regs)
		return;
	file = file_of_fd((int)PT_REGS_PARM1_CORE_SYSCALL(regs));
	if (!file || (BPF_CORE_READ(file, f_inode, i_mode) & 0170000) != 0140000)
		return;
	so = BPF_CORE_READ(file, private_data);
	if (BPF_CORE_READ(so, sk) != sk)
		return;
	arg = PT_REGS_PARM2_CORE_SYSCALL(regs);
	switch (user_syscall(regs)) {
	case TKS_NR_WRITE:
	case TKS_NR_SENDTO:
		f->at.kind = TKS_ITER_UBUF;
		f->at.base = arg;
		f->at.nr_segs = 1;
		break;
	case TKS_NR_SENDMSG:
		if (bpf_probe_read_user(&m, sizeof(m), (void *)arg))
			return;
		f->at.kind = TKS_ITER_IOVEC;
		f->at.base = (__u64)m.msg_iov;
		f->at.nr_segs = m.msg_iovlen;
		break;
	case TKS_NR_WRITEV:
		f->at.kind = TKS_ITER_IOVEC;
		f->at.base = arg;
		f->at.nr_segs = PT_REGS_PARM3_CORE_SYSCALL(regs);
		break;
	default:
		return;
	}
	f->at.user_descs = 1;
}

/*
 * The client's cookie. It can be made for the socket that the hook is called with only, but the
 * client is the one that sends first.
 */
static __always_inline __u64 unix_stamp(struct sock *sk, const struct unix_ends *e)
{
	return e->by_server ? cookie_read(e->client) : bpf_get_socket_cookie(sk);
}

static __always_inline void unix_returned(struct sock *sk, int ret)
{
	struct unix_ends e;
	struct inflight *f;
	__u64 stamp;

	if (!unix_ends(sk, &e))
		return;
	stamp = unix_stamp(sk, &e);
	if (ret <= 0 && !unix_find(&e, stamp))
		return;
	f = unix_begin(&e, sk, stamp);
	if (!f)
		return;
	f->size = TKS_SIZE_UNKNOWN;
	f->at.kind = TKS_ITER_OTHER;
	cursor_of_call(f, sk);
	unix_sent(f, ret, false, TKS_SCRATCH_UNIX);
}

SEC("?tp_btf/sock_send_length")
int BPF_PROG(ux_tp, struct sock *sk, int ret, int flags)
{
	preempt_off();
	if (is_unix(sk))
		unix_returned(sk, ret);
	preempt_on();
	return 0;
}

/* An end reads that the other has stopped sending, or is gone. */
SEC("?tp_btf/sock_recv_length")
int BPF_PROG(ux_tp_recv, struct sock *sk, int ret, int flags)
{
	struct unix_ends e;
	struct unix_conn *u;
	__u8 shut;

	if (ret || !unix_ends(sk, &e))
		return 0;
	shut = BPF_CORE_READ(sk, sk_shutdown);
	if (!(shut & TKS_RCV_SHUTDOWN))
		return 0;
	u = unix_find(&e, unix_stamp(sk, &e));
	if (!u || !bpf_map_lookup_elem(&conns, &u->id))
		return 0;
	unix_state(u, e.server, e.by_server ? TKS_CONN_PEER_FIN : TKS_CONN_LOCAL_FIN);
	/* Whose answers have ended is not heard of again. */
	if (!e.by_server || shut == TKS_SHUTDOWN_BOTH)
		unix_over(u, e.server);
	return 0;
}
