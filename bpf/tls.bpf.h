/* SPDX-License-Identifier: GPL-2.0-only */
/* What is known of TLS libraries' objects and of threads in their calls, for both ends: the probes
 * that fill it and the sends that are nested in a call. */
#ifndef TKS_TLS_BPF_H
#define TKS_TLS_BPF_H

struct tls_key {
	__u64 obj;
	__u32 pid;
	__u32 pad;
};

struct tls_obj {
	__u32 tx_calls, rx_calls;
	__u32 tx_bytes, rx_bytes;
	__u8 verdict; /* enum tks_verdict; userspace writes it once it knows the connection */
	__u8 refused; /* the send in the last write did not take all */
	__u8 in_kernel; /* its records are made by kernel TLS */
	__u8 pad;
	__u32 asked; /* bytes of the last write */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct tls_key);
	__type(value, struct tls_obj);
} tls_objs SEC(".maps");

struct tls_piece {
	__u64 obj, addr, ts_ns;
	__u32 len; /* bytes the record stands for */
	__u32 cap; /* of which to copy */
	__u32 seq, call, asked;
	__u16 kind, lib, flags;
};

/* What a thread is doing in a TLS library. */
struct tls_call {
	__u64 obj; /* of the last call; it may be over */
	__u64 sp, ret; /* the stack at its entry, and where it returns to */
	__u32 call; /* number of the write; 0: it was none */
	__u32 lib;
	__u64 read_obj, read_buf, read_len_at; /* of a read that has not returned */
	__u32 read_size, read_lib;
	struct tls_piece piece; /* what is being told of */
	__u32 rest, parts; /* bytes that no record stands for yet; records written */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64); /* pid and tid */
	__type(value, struct tls_call);
} tls_calls SEC(".maps");

static __always_inline struct tls_call *tls_call_get(bool make)
{
	struct tls_call none = {};
	__u64 id = bpf_get_current_pid_tgid();
	struct tls_call *c = bpf_map_lookup_elem(&tls_calls, &id);

	if (c || !make)
		return c;
	bpf_map_update_elem(&tls_calls, &id, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&tls_calls, &id);
}

/* What a goroutine is doing. Threads run many of them, and a call may end on another thread than it
 * began on. */
struct go_key {
	__u64 g;
	__u32 pid;
	__u32 pad;
};

struct go_call {
	__u64 obj; /* as in struct tls_call */
	__u64 read_obj, read_buf;
	__u32 call, read_size;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct go_key);
	__type(value, struct go_call);
} go_calls SEC(".maps");

/* Set by userspace with the first probe: without one no send asks. */
__u32 tls_on, go_on;

static __always_inline struct go_call *go_call_get(__u64 g, bool make)
{
	struct go_key key = { .g = g, .pid = bpf_get_current_pid_tgid() >> 32 };
	struct go_call none = {};
	struct go_call *c = bpf_map_lookup_elem(&go_calls, &key);

	if (c || !make)
		return c;
	bpf_map_update_elem(&go_calls, &key, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&go_calls, &key);
}

/* The call of the goroutine whose system call this is. */
static __always_inline struct go_call *go_nested(void)
{
	struct pt_regs *regs = (void *)user_regs();

	return regs ? go_call_get(GO_GOROUTINE_CORE(regs), false) : NULL;
}

/*
 * The library's call that is under way where the stack pointer is sp and the frame pointer fp: its
 * frame is still there.
 * What a call that is over left on the stack may lie there for long, above sp: it is none.
 */
static __always_inline struct tls_call *tls_nested_at(__u64 sp, __u64 fp)
{
	struct tls_call *c = tls_call_get(false);

	if (!c || !c->obj || (sp >= c->sp && sp - c->sp < TLS_STACK))
		return NULL;
	return frame_there(fp, c->sp, c->ret) ? c : NULL;
}

/* The call that the current task's send is nested in. */
static __always_inline struct tls_call *tls_nested(void)
{
	struct pt_regs *regs = (void *)user_regs();

	return regs ? tls_nested_at(PT_REGS_SP_CORE(regs), PT_REGS_FP_CORE(regs)) : NULL;
}

static __always_inline void tls_rec(struct tks_rec *r)
{
	struct tls_call *c = tls_nested();
	struct go_call *g;

	if (c) {
		r->obj = c->obj;
		r->rcv_seq = c->call;
		return;
	}
	g = go_on ? go_nested() : NULL;
	if (!g)
		return;
	r->obj = g->obj;
	r->rcv_seq = g->call;
}

/*
 * A send has returned: did it take all that it was given? The last one of a write counts. Kernel
 * TLS keeps what finds no room: a write that comes so far was accepted.
 */
static __always_inline void tls_sent(bool in_kernel, bool all)
{
	struct tls_call *c = tls_nested();
	struct tls_key key = {};
	struct tls_obj *o;

	if (!c || !c->call)
		return;
	key.obj = c->obj;
	key.pid = bpf_get_current_pid_tgid() >> 32;
	o = bpf_map_lookup_elem(&tls_objs, &key);
	if (!o)
		return;
	o->in_kernel = in_kernel;
	o->refused = !in_kernel && !all;
}

#endif
