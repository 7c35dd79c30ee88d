// SPDX-License-Identifier: GPL-2.0-only
/*
 * The send side: what a process put into a TCP stream, when, and how much of it was accepted.
 *
 * One body for all hooks, in two halves. At entry the time, the stream's sequence number and the
 * iterator are noted for the task. At the return, when the accepted length is known, the bytes are
 * copied and one record leaves: no record a refused send has to be taken back for, no second record
 * to correct the first, and the pages have just been touched by the kernel's own copy, so that they
 * are there to be read.
 *
 *   fentry   tcp_sendmsg_locked, entry and return, under the socket's lock; and, where there is one
 *            (until 6.5), do_tcp_sendpages, by which sendfile, splice and kernel TLS went
 *   tp_btf   tcp_sendmsg_locked, once for each turn of the copy loop, and sock_send_length for the
 * return kprobe   tcp_sendmsg_locked, entry and return syscall  write, writev, sendto, sendmsg,
 * sendmmsg: the socket is found through the descriptor
 */

enum { TKS_SIZE_UNKNOWN = 0x7fffffff };

struct inflight {
	__u64 sk, msg;
	__u64 ts_ns;
	__u64 cookie;
	__u64 server; /* AF_UNIX: that end of the connection; else 0 */
	struct cursor at;
	__u32 seq;
	__u32 size; /* bytes asked for */
	__u32 left; /* of which the kernel had not taken at the last look (tp_btf) */
	__u8 verdict;
	__u8 active;
	__u8 unsure; /* another thread sent on the socket in between */
	__u8 exact; /* the return is seen under the socket's lock */
	__u8 to_client; /* AF_UNIX: which of the ends sends */
	__u8 kernel_tls; /* the bytes are records that the kernel made */
	__u16 lport; /* a socket that is reset meanwhile forgets it */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct inflight);
} inflight_task SEC(".maps");

/* Before 5.12. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct inflight);
} inflight_hash SEC(".maps");

static __always_inline struct inflight *inflight_get(bool make)
{
	struct inflight none = {};
	struct inflight *f;
	__u64 id;

	if (cfg_task_storage)
		return bpf_task_storage_get(&inflight_task, bpf_get_current_task_btf(), 0,
					    make ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);
	id = bpf_get_current_pid_tgid();
	f = bpf_map_lookup_elem(&inflight_hash, &id);
	if (f || !make)
		return f;
	bpf_map_update_elem(&inflight_hash, &id, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&inflight_hash, &id);
}

static __always_inline __u32 write_seq(const struct sock *sk)
{
	return BPF_CORE_READ((const struct tcp_sock *)sk, write_seq);
}

/* The connection's verdict for a send by the current task, IGNORE where it is not wanted. */
static __always_inline __u8 send_verdict(__u64 cookie)
{
	struct conn *c = bpf_map_lookup_elem(&conns, &cookie);

	if (!c)
		c = conn_make(cookie, 0);
	if (!c) {
		loss_add(TKS_LOSS_CONN_FULL, 1);
		return TKS_VERDICT_IGNORE;
	}
	bulk_over(c, TKS_CONN_CONNECTED);
	if (c->verdict == TKS_VERDICT_IGNORE || c->admitted)
		return c->verdict;
	if (!process_wanted()) {
		c->verdict = TKS_VERDICT_IGNORE;
		return TKS_VERDICT_IGNORE;
	}
	c->admitted = 1;
	return c->verdict;
}

static __always_inline bool sock_wanted(const struct sock *sk)
{
	__u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);

	if (family != AF_INET && family != AF_INET6)
		return false;
	return ports_wanted(
		BPF_CORE_READ(sk, __sk_common.skc_num),
		cfg_nports && cfg_all ? bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport)) : 0);
}

static __always_inline __u64 cookie_read(const struct sock *sk)
{
	return BPF_CORE_READ(sk, __sk_common.skc_cookie.counter);
}

static __always_inline void inflight_begin(struct inflight *f, const struct sock *sk,
					   const void *msg, __u64 cookie, __u8 verdict, __u64 now)
{
	f->sk = (__u64)sk;
	f->msg = (__u64)msg;
	f->ts_ns = now;
	f->cookie = cookie;
	f->server = 0;
	f->seq = write_seq(sk);
	f->lport = BPF_CORE_READ(sk, __sk_common.skc_num);
	f->verdict = verdict;
	f->unsure = 0;
	f->exact = 0;
	f->kernel_tls = 0;
	f->active = 1;
}

/* Records of kernel TLS go into the stream as pages: others need not be asked. */
static __always_inline bool is_kernel_tls(const struct sock *sk)
{
	const struct tcp_ulp_ops *ulp =
		BPF_CORE_READ((const struct inet_connection_sock *)sk, icsk_ulp_ops);
	char name[4] = {};

	return ulp && !bpf_core_read(name, sizeof(name), &ulp->name) && name[0] == 't' &&
	       name[1] == 'l' && name[2] == 's' && !name[3];
}

static __always_inline void inflight_iter(struct inflight *f, const struct msghdr *msg)
{
	const struct iov_iter *it = &msg->msg_iter;
	enum tks_iter kind = iter_kind(it);

	f->at.kind = kind;
	f->at.base = iter_base(it, kind);
	f->at.seg = 0;
	f->at.seg_off = BPF_CORE_READ(it, iov_offset);
	f->at.nr_segs = kind == TKS_ITER_UBUF ? 1 : (__u32)BPF_CORE_READ(it, nr_segs);
	f->at.user_descs = 0;
	f->size = BPF_CORE_READ(it, count);
	f->left = f->size;
}

/* The note of a send that is wanted, begun; or NULL. cookie: 0 where the hook can't make one and
 * none was made yet. */
static __always_inline struct inflight *send_begin(const struct sock *sk, const void *msg,
						   __u64 cookie)
{
	__u64 now = bpf_ktime_get_ns();
	struct inflight *f;
	__u8 verdict;

	if (!cookie)
		return NULL;
	verdict = send_verdict(cookie);
	if (verdict == TKS_VERDICT_IGNORE)
		return NULL;
	f = inflight_get(true);
	if (!f) {
		loss_add(TKS_LOSS_INFLIGHT, 1);
		return NULL;
	}
	inflight_begin(f, sk, msg, cookie, verdict, now);
	return f;
}

static __always_inline void send_enter(const struct sock *sk, const struct msghdr *msg,
				       __u64 cookie)
{
	struct inflight *f = send_begin(sk, msg, cookie);

	if (!f)
		return;
	inflight_iter(f, msg);
	f->kernel_tls = f->at.kind == TKS_ITER_BVEC && is_kernel_tls(sk);
}

static __always_inline void inflight_page(struct inflight *f, __u64 page, __u32 offset, __u32 size)
{
	__u64 addr = page_address_of(page);

	f->at.kind = addr ? TKS_ITER_KBUF : TKS_ITER_OTHER;
	f->at.base = addr + offset;
	f->at.seg = 0;
	f->at.seg_off = 0;
	f->at.nr_segs = 1;
	f->at.user_descs = 0;
	f->size = f->left = size;
}

/* A page goes out as it is (sendfile, splice, kernel TLS): do_tcp_sendpages, until 6.5. */
static __always_inline void send_page(const struct sock *sk, __u64 page, __u32 offset, __u32 size,
				      __u64 cookie)
{
	struct inflight *f = send_begin(sk, NULL, cookie);

	if (!f)
		return;
	inflight_page(f, page, offset, size);
	f->kernel_tls = is_kernel_tls(sk);
}

static __always_inline __u64 cookie_of(struct sock *sk)
{
	return cfg_cookie_helper ? bpf_get_socket_cookie(sk) : cookie_read(sk);
}

static __always_inline void rec_send(struct tks_rec *r, const struct inflight *f)
{
	__builtin_memset(r, 0, sizeof(*r));
	r->kind = TKS_REC_TX;
	r->ts_ns = f->ts_ns;
	r->ret_ns = bpf_ktime_get_ns();
	r->cookie = f->cookie;
	r->seq = f->seq;
	rec_sock(r, (const struct sock *)f->sk);
	r->lport = f->lport;
	rec_task(r);
	if (f->kernel_tls) {
		r->flags = TKS_RECF_KERNEL_TLS;
		/* What found no room is sent later, by a worker. */
		if (BPF_CORE_READ((struct task_struct *)bpf_get_current_task(), mm) == NULL)
			r->pid = 0;
	}
	if (tls_on)
		tls_rec(r);
}

/* One record from the scratch; 1: it was the last. */
__noinline int emit_send_part(__u32 whose)
{
	struct send_scratch *s = send_scratch(whose);
	__u32 cap;

	if (!s)
		return 1;
	s->pos = 0;
	s->bad = 0;
	s->parts++;
	if (s->left)
		fill_record(whose);
	if (s->bad)
		loss_add(TKS_LOSS_UNREADABLE, s->bad);
	cap = s->pos;
	if (cap > TKS_DATA_CAP)
		cap = TKS_DATA_CAP;
	s->rec.cap = cap;
	s->rec.len = cap + s->bad;
	/* Nothing is left to capture, or no record to hold it: this one stands for all the rest. */
	if (!s->left || s->parts == TKS_SEND_RECS || !s->rec.len)
		s->rec.len = s->rest;
	emit(&s->rec, sizeof(s->rec) + cap);
	s->rest -= s->rec.len;
	s->rec.seq += s->rec.len;
	s->rec.flags |= TKS_RECF_CONT;
	return !s->rest;
}

/* The records of a send; s: the scratch of whose, with the first one's head filled in. */
static __always_inline void emit_send(struct send_scratch *s, __u32 whose, const struct inflight *f,
				      __u32 accepted)
{
	if (f->unsure) {
		s->rec.flags |= TKS_RECF_UNSURE;
		s->rec.len = accepted;
		emit(&s->rec, sizeof(s->rec));
		return;
	}
	s->at = f->at;
	s->left = accepted;
	s->rest = accepted;
	s->parts = 0;
	s->limit = TKS_DATA_CAP;
	if (f->verdict == TKS_VERDICT_HEADERS) {
		s->limit = TKS_HEADERS_CAP;
		if (s->left > TKS_HEADERS_CAP)
			s->left = TKS_HEADERS_CAP;
	}
	for (int i = 0; i < TKS_SEND_RECS; i++) {
		if (emit_send_part(whose))
			break;
	}
}

/* The send has returned. */
static __always_inline void send_done(struct inflight *f, long ret, __u32 whose)
{
	struct send_scratch *s;

	f->active = 0;
	if (tls_on)
		tls_sent(f->kernel_tls, ret > 0 && (ret >= f->size || f->size == TKS_SIZE_UNKNOWN));
	if (ret <= 0)
		return;
	if (ret > f->size)
		ret = f->size;
	/* Under the lock the stream has grown by exactly what was accepted, or somebody else has
	 * sent too. */
	if (f->exact && write_seq((const struct sock *)f->sk) - f->seq != (__u32)ret)
		f->unsure = 1;
	s = send_scratch(whose);
	if (!s) {
		loss_add(TKS_LOSS_INFLIGHT, 1);
		return;
	}
	rec_send(&s->rec, f);
	emit_send(s, whose, f, ret);
}

static __always_inline void send_exit(const struct sock *sk, long ret, __u32 whose)
{
	struct inflight *f = inflight_get(false);

	if (!f || !f->active || f->server || (sk && f->sk != (__u64)sk))
		return;
	preempt_off();
	send_done(f, ret, whose);
	preempt_on();
}

/* --- fentry --- */

SEC("?fentry/tcp_sendmsg_locked")
int BPF_PROG(tx_fentry, struct sock *sk, struct msghdr *msg, size_t size)
{
	if (!sock_wanted(sk))
		return 0;
	preempt_off();
	send_enter(sk, msg, cookie_of(sk));
	preempt_on();
	return 0;
}

SEC("?fexit/tcp_sendmsg_locked")
int BPF_PROG(tx_fexit, struct sock *sk, struct msghdr *msg, size_t size, int ret)
{
	send_exit(sk, ret, TKS_SCRATCH_SEND);
	return 0;
}

SEC("?fentry/do_tcp_sendpages")
int BPF_PROG(tx_page, struct sock *sk, struct page *page, int offset, size_t size)
{
	__u64 number = 0;

	if (!sock_wanted(sk))
		return 0;
	/* As a number, which may be calculated with; the verifier knows the argument as a pointer.
	 */
	bpf_probe_read_kernel(&number, sizeof(number), &ctx[1]);
	send_page(sk, number, offset, size, cookie_of(sk));
	return 0;
}

SEC("?fexit/do_tcp_sendpages")
int BPF_PROG(tx_page_r, struct sock *sk, struct page *page, int offset, size_t size, int flags,
	     int ret)
{
	send_exit(sk, ret, TKS_SCRATCH_PAGE);
	return 0;
}

/* --- tp_btf --- */

/* A later turn of the copy loop of the send that is under way: has anybody sent in between? */
static __always_inline bool same_send(struct inflight *f, const struct sock *sk,
				      const struct msghdr *msg)
{
	__u32 left;

	if (!f || !f->active || f->sk != (__u64)sk || f->msg != (__u64)msg)
		return false;
	left = BPF_CORE_READ(msg, msg_iter.count);
	if (left > f->left)
		return false;
	f->left = left;
	if (write_seq(sk) != f->seq + (f->size - left))
		f->unsure = 1;
	return true;
}

SEC("?tp_btf/tcp_sendmsg_locked")
int BPF_PROG(tx_tp, const struct sock *sk, const struct msghdr *msg, const struct sk_buff *skb,
	     int size_goal)
{
	struct inflight *f;

	if (!sock_wanted(sk))
		return 0;
	preempt_off();
	if (!same_send(inflight_get(false), sk, msg))
		send_enter(sk, msg, bpf_get_socket_cookie((void *)sk));
	preempt_on();
	/* The return is that of the send of plaintext, and what this message is made of is gone by
	 * then. What it doesn't put into the stream comes again, at the same place. */
	f = inflight_get(false);
	if (f && f->active && f->sk == (__u64)sk && f->kernel_tls)
		send_exit(sk, f->size, TKS_SCRATCH_SEND);
	return 0;
}

/* Since 6.3; the return of every sock_sendmsg, of whatever family. */
SEC("?tp_btf/sock_send_length")
int BPF_PROG(tx_tpret, struct sock *sk, int ret, int flags)
{
	send_exit(sk, ret, TKS_SCRATCH_SEND);
	return 0;
}

/* --- kprobe --- */

SEC("?kprobe/tcp_sendmsg_locked")
int BPF_KPROBE(tx_kprobe, struct sock *sk, struct msghdr *msg, size_t size)
{
	if (sock_wanted(sk))
		send_enter(sk, msg, cookie_read(sk));
	return 0;
}

SEC("?kretprobe/tcp_sendmsg_locked")
int BPF_KRETPROBE(tx_kret, int ret)
{
	send_exit(NULL, ret, TKS_SCRATCH_SEND);
	return 0;
}

SEC("?kprobe/do_tcp_sendpages")
int BPF_KPROBE(tx_page_kp, struct sock *sk, struct page *page, int offset, size_t size)
{
	if (sock_wanted(sk))
		send_page(sk, (__u64)page, offset, size, cookie_read(sk));
	return 0;
}

SEC("?kretprobe/do_tcp_sendpages")
int BPF_KRETPROBE(tx_page_kret, int ret)
{
	send_exit(NULL, ret, TKS_SCRATCH_PAGE);
	return 0;
}

/* --- system calls --- */

/* The TCP socket behind a descriptor of the current task, or NULL. */
static __always_inline struct sock *sock_of_fd(int fd)
{
	struct file *file = file_of_fd(fd);
	struct socket *so;
	struct sock *sk;

	if (!file || (BPF_CORE_READ(file, f_inode, i_mode) & 0170000) != 0140000)
		return NULL;
	so = BPF_CORE_READ(file, private_data);
	sk = BPF_CORE_READ(so, sk);
	/* IPPROTO_TCP, and one of the two families: anything else is no struct tcp_sock. */
	if (!sk || BPF_CORE_READ(sk, sk_protocol) != 6 || !sock_wanted(sk))
		return NULL;
	return sk;
}

static __always_inline struct inflight *syscall_enter(int fd)
{
	struct sock *sk = sock_of_fd(fd);
	struct inflight *f;

	if (!sk)
		return NULL;
	f = send_begin(sk, NULL, cookie_read(sk));
	if (!f)
		return NULL;
	f->at.seg = 0;
	f->at.seg_off = 0;
	f->at.user_descs = 1;
	f->exact = 1;
	f->size = TKS_SIZE_UNKNOWN;
	return f;
}

static __always_inline void syscall_buf(int fd, __u64 buf)
{
	struct inflight *f = syscall_enter(fd);

	if (!f)
		return;
	f->at.kind = TKS_ITER_UBUF;
	f->at.base = buf;
	f->at.nr_segs = 1;
}

static __always_inline void syscall_iov(int fd, __u64 iov, __u64 n)
{
	struct inflight *f = syscall_enter(fd);

	if (!f)
		return;
	f->at.kind = TKS_ITER_IOVEC;
	f->at.base = iov;
	f->at.nr_segs = n;
}

SEC("?tracepoint/syscalls/sys_enter_write")
int sc_write(struct trace_event_raw_sys_enter *ctx)
{
	syscall_buf(ctx->args[0], ctx->args[1]);
	return 0;
}

SEC("?tracepoint/syscalls/sys_enter_sendto")
int sc_sendto(struct trace_event_raw_sys_enter *ctx)
{
	syscall_buf(ctx->args[0], ctx->args[1]);
	return 0;
}

SEC("?tracepoint/syscalls/sys_enter_writev")
int sc_writev(struct trace_event_raw_sys_enter *ctx)
{
	syscall_iov(ctx->args[0], ctx->args[1], ctx->args[2]);
	return 0;
}

SEC("?tracepoint/syscalls/sys_enter_sendmsg")
int sc_sendmsg(struct trace_event_raw_sys_enter *ctx)
{
	struct user_msghdr m;

	if (bpf_probe_read_user(&m, sizeof(m), (void *)ctx->args[1]))
		return 0;
	syscall_iov(ctx->args[0], (__u64)m.msg_iov, m.msg_iovlen);
	return 0;
}

/* The return is a number of messages, not of bytes: how much of which was taken is not known here.
 */
SEC("?tracepoint/syscalls/sys_enter_sendmmsg")
int sc_sendmmsg(struct trace_event_raw_sys_enter *ctx)
{
	struct inflight *f = syscall_enter(ctx->args[0]);

	if (f)
		f->unsure = 1;
	return 0;
}

/* File to socket: the bytes never are in user memory, the length is known. */
SEC("?tracepoint/syscalls/sys_enter_sendfile64")
int sc_sendfile(struct trace_event_raw_sys_enter *ctx)
{
	struct inflight *f = syscall_enter(ctx->args[0]);

	if (f)
		f->at.kind = TKS_ITER_OTHER;
	return 0;
}

/* write, sendto, writev, sendmsg, sendfile: the return is what was accepted. */
#define TKS_SYSCALL_EXIT(name, call)                                                               \
	SEC("?tracepoint/syscalls/sys_exit_" #call)                                                \
	int name(struct trace_event_raw_sys_exit *ctx)                                             \
	{                                                                                          \
		send_exit(NULL, ctx->ret, TKS_SCRATCH_SEND);                                       \
		return 0;                                                                          \
	}

TKS_SYSCALL_EXIT(sc_write_r, write)
TKS_SYSCALL_EXIT(sc_sendto_r, sendto)
TKS_SYSCALL_EXIT(sc_writev_r, writev)
TKS_SYSCALL_EXIT(sc_sendmsg_r, sendmsg)
TKS_SYSCALL_EXIT(sc_sendfile_r, sendfile64)

SEC("?tracepoint/syscalls/sys_exit_sendmmsg")
int sc_sendmmsg_r(struct trace_event_raw_sys_exit *ctx)
{
	struct inflight *f = inflight_get(false);

	if (f && f->active && ctx->ret > 0)
		send_exit(NULL, write_seq((const struct sock *)f->sk) - f->seq, TKS_SCRATCH_SEND);
	else if (f)
		f->active = 0;
	return 0;
}
