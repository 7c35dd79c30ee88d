// SPDX-License-Identifier: GPL-2.0-only
/*
 * Plaintext at the TLS library's door, by uprobes: what is written, taken at the entry of the write
 * and never at its return; what was read, at the return of the read, for before it is not there.
 *
 * Nothing of a library's structures is looked into. An object (SSL *, gnutls_session_t, ...) is a
 * number. To which connection it belongs is found out behind the ring: for OpenSSL and its kin by
 * the ciphertext that the library hands to its BIO within a call (BIO_write is a function of its
 * own), the same bytes that some socket sends next; for the others by the send that is nested in
 * the write.
 *
 * These programs may be preempted (5.19), so that nothing here uses scratch memory of the CPU:
 * records are reserved in the ring, in a few sizes.
 */

/* The object's entry, or NULL where it is not wanted. */
static __always_inline struct tls_obj *tls_obj_get(__u64 obj)
{
	struct tls_key key = { .obj = obj, .pid = bpf_get_current_pid_tgid() >> 32 };
	struct tls_obj *o = bpf_map_lookup_elem(&tls_objs, &key);
	struct tls_obj fresh = {};

	if (!o) {
		fresh.verdict = process_wanted() ? TKS_VERDICT_FULL : TKS_VERDICT_IGNORE;
		bpf_map_update_elem(&tls_objs, &key, &fresh, BPF_NOEXIST);
		o = bpf_map_lookup_elem(&tls_objs, &key);
	}
	if (!o) {
		loss_add(TKS_LOSS_CONN_FULL, 1);
		return NULL;
	}
	return o->verdict == TKS_VERDICT_IGNORE ? NULL : o;
}

/* --- records --- */

static __always_inline void tls_head(struct tks_rec *r, const struct tls_piece *p)
{
	__builtin_memset(r, 0, sizeof(*r));
	r->kind = p->kind;
	r->flags = p->flags;
	r->ts_ns = p->ts_ns;
	r->obj = p->obj;
	r->seq = p->seq;
	r->rcv_seq = p->call;
	r->len = p->len;
	r->err = p->asked;
	r->state = p->lib;
	rec_task(r);
}

/* A record with room for `room` bytes; what it really has is in its head. */
#define TLS_EMIT(room)                                                                             \
	do {                                                                                       \
		struct {                                                                           \
			struct tks_rec rec;                                                        \
			__u8 data[room];                                                           \
		} *e = bpf_ringbuf_reserve(&ring, sizeof(*e), 0);                                  \
		__u32 n = p->cap;                                                                  \
		if (!e) {                                                                          \
			loss_record(0, p->len);                                                    \
			return;                                                                    \
		}                                                                                  \
		tls_head(&e->rec, p);                                                              \
		barrier_var(n);                                                                    \
		n &= 0x7fff;                                                                       \
		if (n > (room))                                                                    \
			n = (room);                                                                \
		if (bpf_probe_read_user(e->data, n, (void *)p->addr)) {                            \
			loss_add(TKS_LOSS_UNREADABLE, n);                                          \
			n = 0;                                                                     \
		}                                                                                  \
		e->rec.cap = n;                                                                    \
		e->rec.size = sizeof(e->rec) + n;                                                  \
		bpf_ringbuf_submit(e, wake_flag());                                                \
		return;                                                                            \
	} while (0)

static __always_inline void tls_emit(const struct tls_piece *p)
{
	if (p->cap <= 64)
		TLS_EMIT(64);
	if (p->cap <= 368)
		TLS_EMIT(368);
	if (p->cap <= 1024)
		TLS_EMIT(1024);
	if (p->cap <= 4096)
		TLS_EMIT(4096);
	TLS_EMIT(TKS_DATA_CAP);
}

/* One record of the thread's call; 1: it was the last. A global function, which the verifier looks
 * at once. */
__noinline int tls_emit_part(void)
{
	struct tls_call *c = tls_call_get(false);
	struct tls_piece *p;

	if (!c || !c->rest)
		return 1;
	p = &c->piece;
	p->cap = c->rest < TKS_DATA_CAP ? c->rest : TKS_DATA_CAP;
	p->len = ++c->parts == TKS_SEND_RECS ? c->rest : p->cap;
	tls_emit(p);
	p->addr += p->len;
	p->seq += p->len;
	p->flags |= TKS_RECF_CONT;
	c->rest -= p->len;
	return 0;
}

/* All of a call's bytes, in as many records as it takes. */
static __always_inline void tls_emit_all(struct tls_call *c, const struct tls_piece *p, __u32 len)
{
	c->piece = *p;
	c->rest = len;
	c->parts = 0;
	for (int i = 0; i < TKS_SEND_RECS; i++) {
		if (tls_emit_part())
			break;
	}
}

/* One more write of the object. */
static __always_inline void tls_count(struct tls_obj *o, struct tls_piece *p, __u32 len)
{
	p->seq = o->tx_bytes;
	p->call = ++o->tx_calls;
	o->tx_bytes += len;
}

static __always_inline void tls_was_read(struct tls_call *c, struct tls_obj *o, struct tls_piece *p,
					 __u32 len)
{
	p->seq = o->rx_bytes;
	p->call = ++o->rx_calls;
	o->rx_bytes += len;
	tls_emit_all(c, p, len);
}

/* --- writes --- */

/* The stack pointer at the function's entry, behind which the probe may sit. */
static __always_inline __u64 entry_sp(struct pt_regs *ctx)
{
	return PT_REGS_SP(ctx) + (cfg_attach_cookie ? bpf_get_attach_cookie(ctx) : 0);
}

static __always_inline void tls_enter(struct tls_call *c, struct pt_regs *ctx, __u64 obj,
				      __u32 call, __u32 lib)
{
	c->obj = obj;
	c->call = call;
	c->lib = lib;
	c->sp = entry_sp(ctx);
	c->ret = return_address(ctx, c->sp);
}

static __always_inline int tls_write(struct pt_regs *ctx, __u64 obj, __u64 buf, __u64 len,
				     __u32 lib)
{
	struct tls_piece p = { .obj = obj, .addr = buf, .kind = TKS_REC_TLS_TX, .lib = lib };
	struct tls_call *c;
	struct tls_obj *o;
	__u32 again = 0;

	p.ts_ns = bpf_ktime_get_ns();
	if (!obj || !buf || !len || len > 0x7fffffff)
		return 0;
	/* gnutls_record_uncork writes what it was given before. */
	c = tls_nested_at(entry_sp(ctx), PT_REGS_FP(ctx));
	if (c && c->obj == obj)
		return 0;
	o = tls_obj_get(obj);
	c = tls_call_get(true);
	if (!c) {
		loss_add(TKS_LOSS_INFLIGHT, 1);
		return 0;
	}
	tls_enter(c, ctx, obj, o ? o->tx_calls + 1 : 0, lib);
	if (!o)
		return 0;
	if (o->refused) {
		/* What is handed over again may have grown: what is behind it is new. */
		again = len < o->asked ? len : o->asked;
		p.flags = TKS_RECF_AGAIN;
	}
	/* Kernel TLS sends nothing of a write that it refuses. */
	o->refused = o->in_kernel;
	o->asked = len;
	tls_count(o, &p, len);
	if (again) {
		tls_emit_all(c, &p, again);
		p.flags = TKS_RECF_CONT;
		p.seq += again;
		p.addr += again;
	}
	if (len > again)
		tls_emit_all(c, &p, len - again);
	return 0;
}

/* SSL_write, SSL_write_ex, SSL_write_ex2, SSL_write_early_data. */
SEC("?uprobe")
int BPF_KPROBE(tls_write_openssl, __u64 ssl, __u64 buf, __u64 num)
{
	/* SSL_write's is an int: what is above it in the register is anything. */
	return tls_write(ctx, ssl, buf, (__u32)num, TKS_TLS_OPENSSL);
}

/* gnutls_record_send, gnutls_record_send2, gnutls_record_send_early_data. */
SEC("?uprobe")
int BPF_KPROBE(tls_write_gnutls, __u64 session, __u64 buf, __u64 num)
{
	return tls_write(ctx, session, buf, num, TKS_TLS_GNUTLS);
}

/* PR_Write, PR_Send: of files and plain sockets too, which is found out behind. */
SEC("?uprobe")
int BPF_KPROBE(tls_write_nss, __u64 fd, __u64 buf, __u64 num)
{
	return tls_write(ctx, fd, buf, (__u32)num, TKS_TLS_NSS);
}

/* Calls in which a library may send without being written to. */
static __always_inline int tls_other(struct pt_regs *ctx, __u64 obj, __u32 lib)
{
	struct tls_call *c = tls_nested_at(entry_sp(ctx), PT_REGS_FP(ctx));

	/* Within a write (SSL_write_early_data connects first) it is the write's. */
	if (c && c->obj == obj && c->call)
		return 0;
	c = tls_call_get(true);
	if (c && tls_obj_get(obj))
		tls_enter(c, ctx, obj, 0, lib);
	else if (c)
		c->obj = 0;
	return 0;
}

/* SSL_do_handshake, SSL_accept, SSL_connect, SSL_shutdown. */
SEC("?uprobe")
int BPF_KPROBE(tls_other_openssl, __u64 ssl)
{
	return tls_other(ctx, ssl, TKS_TLS_OPENSSL);
}

/* gnutls_handshake, gnutls_record_uncork, gnutls_bye. */
SEC("?uprobe")
int BPF_KPROBE(tls_other_gnutls, __u64 session)
{
	return tls_other(ctx, session, TKS_TLS_GNUTLS);
}

static __always_inline int tls_obj_free(__u64 obj)
{
	struct tls_key key = { .obj = obj, .pid = bpf_get_current_pid_tgid() >> 32 };
	struct tls_piece p = { .obj = obj, .kind = TKS_REC_TLS_FREE };
	struct tls_obj *o = bpf_map_lookup_elem(&tls_objs, &key);
	bool wanted;

	if (!o)
		return 0;
	wanted = o->verdict != TKS_VERDICT_IGNORE;
	bpf_map_delete_elem(&tls_objs, &key);
	p.ts_ns = bpf_ktime_get_ns();
	if (wanted)
		tls_emit(&p);
	return 0;
}

/* SSL_free, gnutls_deinit, PR_Close: the next object may get its address. */
SEC("?uprobe")
int BPF_KPROBE(tls_free, __u64 obj)
{
	return tls_obj_free(obj);
}

/* BIO_write, BIO_write_ex: the ciphertext that a call has made, on its way out. */
SEC("?uprobe")
int BPF_KPROBE(tls_out_openssl, __u64 bio, __u64 buf, __u64 num)
{
	struct tls_piece p = { .addr = buf, .kind = TKS_REC_TLS_OUT, .lib = TKS_TLS_OPENSSL };
	/* Not what an application puts into a BIO by itself: what has arrived, in memory BIOs. */
	struct tls_call *c = tls_nested_at(entry_sp(ctx), PT_REGS_FP(ctx));
	__u8 type = 0;

	if (!c || !c->obj || c->lib != TKS_TLS_OPENSSL || (__s32)num <= 0 || !tls_obj_get(c->obj))
		return 0;
	/* Handshake or application data: whatever else is put into a BIO is nobody's ciphertext. */
	if (bpf_probe_read_user(&type, 1, (void *)buf) || type < 20 || type > 23)
		return 0;
	p.ts_ns = bpf_ktime_get_ns();
	p.obj = c->obj;
	p.call = c->call;
	p.len = num;
	p.cap = p.len < TKS_TLS_OUT_CAP ? p.len : TKS_TLS_OUT_CAP;
	tls_emit(&p);
	return 0;
}

/* --- reads --- */

static __always_inline int tls_read(struct pt_regs *ctx, __u64 obj, __u64 buf, __u32 size,
				    __u64 len_at, __u32 lib)
{
	struct tls_call *c = tls_call_get(true);

	if (!c)
		return 0;
	c->read_obj = 0;
	if (!obj || !buf || !tls_obj_get(obj)) {
		c->obj = 0;
		return 0;
	}
	tls_enter(c, ctx, obj, 0, lib);
	c->read_obj = obj;
	c->read_buf = buf;
	c->read_size = size;
	c->read_len_at = len_at;
	c->read_lib = lib;
	return 0;
}

SEC("?uprobe")
int BPF_KPROBE(tls_read_openssl, __u64 ssl, __u64 buf, __u64 num)
{
	return tls_read(ctx, ssl, buf, num, 0, TKS_TLS_OPENSSL);
}

/* SSL_read_ex, SSL_read_early_data: how much it was is written to where the fourth argument says.
 */
SEC("?uprobe")
int BPF_KPROBE(tls_read_ex_openssl, __u64 ssl, __u64 buf, __u64 num, __u64 len_at)
{
	return tls_read(ctx, ssl, buf, num, len_at, TKS_TLS_OPENSSL);
}

SEC("?uprobe")
int BPF_KPROBE(tls_read_gnutls, __u64 session, __u64 buf, __u64 num)
{
	return tls_read(ctx, session, buf, num, 0, TKS_TLS_GNUTLS);
}

SEC("?uprobe")
int BPF_KPROBE(tls_read_nss, __u64 fd, __u64 buf, __u64 num)
{
	return tls_read(ctx, fd, buf, num, 0, TKS_TLS_NSS);
}

SEC("?uretprobe")
int BPF_KRETPROBE(tls_read_ret, long ret)
{
	struct tls_piece p = { .kind = TKS_REC_TLS_RX };
	struct tls_call *c = tls_call_get(false);
	struct tls_obj *o;
	__u64 len = 0;

	if (!c || !c->read_obj)
		return 0;
	p.obj = c->read_obj;
	c->read_obj = 0;
	c->obj = 0;
	/* An int, or a ssize_t that is one. */
	if ((__s32)ret <= 0)
		return 0;
	len = (__u32)ret;
	if (c->read_len_at && bpf_probe_read_user(&len, sizeof(len), (void *)c->read_len_at))
		return 0;
	o = tls_obj_get(p.obj);
	if (!o || !len || len > c->read_size)
		return 0;
	p.ts_ns = bpf_ktime_get_ns();
	p.addr = c->read_buf;
	p.lib = c->read_lib;
	p.asked = c->read_size;
	tls_was_read(c, o, &p, len);
	return 0;
}
