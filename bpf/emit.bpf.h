/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Records out. A record is put together in a scratch buffer and copied to the ring in its exact
 * size.
 *
 * Wakeups cost ten times the record (an interrupt to the reader's CPU), so there is none a record:
 * the reader looks every few tens of milliseconds by itself and is woken early only when
 * cfg_wake_bytes are queued. Time stamps are taken before and do not depend on it.
 *
 * What found no room is counted twice: in all by reason, and per connection, in a table that stays
 * empty as long as nothing is lost. Each later record of the connection carries its count, and the
 * stream offsets show the hole, so that userspace can flag exactly the requests that were hit.
 */
#ifndef TKS_EMIT_BPF_H
#define TKS_EMIT_BPF_H

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 << 20);
} ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, TKS_LOSS_MAX);
	__type(key, __u32);
	__type(value, __u64);
} losses SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, __u32);
} conn_lost SEC(".maps");

/* Set for good by the first loss, so that the table above is asked only when it can have an answer.
 */
__u32 any_loss;

static __always_inline void loss_add(__u32 why, __u64 n)
{
	__u64 *v = bpf_map_lookup_elem(&losses, &why);

	if (v)
		*v += n;
}

static __always_inline void loss_record(__u64 cookie, __u64 bytes)
{
	__u32 one = 1, *v;

	loss_add(TKS_LOSS_RING_FULL, 1);
	loss_add(TKS_LOSS_RING_BYTES, bytes);
	any_loss = 1;
	v = bpf_map_lookup_elem(&conn_lost, &cookie);
	if (v)
		__sync_fetch_and_add(v, 1);
	else
		bpf_map_update_elem(&conn_lost, &cookie, &one, BPF_ANY);
}

static __always_inline __u32 lost_so_far(__u64 cookie)
{
	__u32 *v;

	if (!any_loss)
		return 0;
	v = bpf_map_lookup_elem(&conn_lost, &cookie);
	return v ? *v : 0;
}

static __always_inline __u64 wake_flag(void)
{
	if (bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) >= cfg_wake_bytes)
		return BPF_RB_FORCE_WAKEUP;
	return BPF_RB_NO_WAKEUP;
}

/* size bytes from rec on, the record's head included; the caller has bounded size. */
static __always_inline void emit(struct tks_rec *rec, __u64 size)
{
	rec->size = size;
	rec->lost = lost_so_far(rec->cookie);
	if (bpf_ringbuf_output(&ring, rec, size, wake_flag()))
		loss_record(rec->cookie, rec->len);
}

static __always_inline void rec_task(struct tks_rec *rec)
{
	__u64 id = bpf_get_current_pid_tgid();

	rec->pid = id >> 32;
	rec->tid = (__u32)id;
	rec->cgroup = bpf_get_current_cgroup_id();
	process_comm(rec->comm);
}

/* Family, ports, addresses, namespace and sequence numbers of a socket, by reads that can't fault.
 */
static __always_inline void rec_sock(struct tks_rec *rec, const struct sock *sk)
{
	rec->family = BPF_CORE_READ(sk, __sk_common.skc_family);
	rec->lport = BPF_CORE_READ(sk, __sk_common.skc_num);
	rec->rport = bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport));
	rec->netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	if (rec->family == AF_INET) {
		bpf_core_read(rec->laddr, 4, &sk->__sk_common.skc_rcv_saddr);
		bpf_core_read(rec->raddr, 4, &sk->__sk_common.skc_daddr);
	} else {
		bpf_core_read(rec->laddr, 16, &sk->__sk_common.skc_v6_rcv_saddr);
		bpf_core_read(rec->raddr, 16, &sk->__sk_common.skc_v6_daddr);
	}
}

#endif
