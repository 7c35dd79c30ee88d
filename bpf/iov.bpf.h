/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Copying what an iov_iter describes, whatever its kind and however many segments it has.
 *
 * The state lies in the scratch buffer, not in registers: the copying of one segment and the
 * filling of one record are global functions, which the verifier looks at once each, so that 1024
 * segments x 64 records cost it nothing and load on 5.10, which has no bpf_loop.
 *
 * A scratch belongs to a CPU and to a pair of programs, entry and return. Another task's program
 * may run on the CPU in the midst of one (preemption, interrupts), but not the same one: the kernel
 * refuses that (and counts it, `recursion_misses`).
 */
#ifndef TKS_IOV_BPF_H
#define TKS_IOV_BPF_H

/* A place in an iterator. */
struct cursor {
	__u64 base; /* descriptors of the segments; UBUF: the bytes */
	__u64 seg_off; /* in the current segment */
	__u32 seg, nr_segs;
	__u32 kind; /* enum tks_iter */
	__u32 user_descs; /* the descriptors lie in user memory (system call hooks) */
};

struct send_scratch {
	struct tks_rec rec;
	__u8 data[2 * TKS_DATA_CAP]; /* the second half only lets the verifier see that no copy
					passes the end */
	struct cursor at;
	__u32 left; /* bytes still to be captured of this send */
	__u32 limit; /* bytes to capture into this record */
	__u32 pos; /* captured into it */
	__u32 bad; /* bytes behind them that were not readable: they end the record */
	__u32 rest; /* of the stream's bytes that no record stands for yet */
	__u32 parts; /* records written */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set to the number of CPUs x TKS_SCRATCHES */
	__type(key, __u32);
	__type(value, struct send_scratch);
} send_scratches SEC(".maps");

/* Whose; the calls that userspace chooses one of (system calls, kprobes) share the first. */
enum tks_scratch {
	TKS_SCRATCH_SEND = 0,
	TKS_SCRATCH_PAGE,
	TKS_SCRATCH_UNIX,
	TKS_SCRATCH_UNIX_PAGE,
	TKS_SCRATCH_MPTCP,
	TKS_SCRATCHES
};

static __always_inline struct send_scratch *send_scratch(__u32 whose)
{
	__u32 slot = bpf_get_smp_processor_id() * TKS_SCRATCHES + whose;

	return bpf_map_lookup_elem(&send_scratches, &slot);
}

/* Address and length of the current segment, and whether it is user memory. */
static __always_inline int segment(const struct cursor *c, __u64 left, __u64 *addr, __u64 *len,
				   bool *user)
{
	struct iovec iov;
	struct bio_vec bv;

	*user = c->kind == TKS_ITER_UBUF || c->kind == TKS_ITER_IOVEC;
	if (c->kind == TKS_ITER_UBUF || c->kind == TKS_ITER_KBUF) {
		*addr = c->base;
		*len = c->seg_off + left;
		return 0;
	}
	if (c->kind == TKS_ITER_BVEC) {
		if (bpf_probe_read_kernel(&bv, sizeof(bv), (void *)(c->base + c->seg * sizeof(bv))))
			return -1;
		*addr = page_address_of((__u64)bv.bv_page) + bv.bv_offset;
		*len = bv.bv_len;
		return 0;
	}
	if (c->user_descs ? bpf_probe_read_user(&iov, sizeof(iov),
						(void *)(c->base + c->seg * sizeof(iov)))
			  : bpf_probe_read_kernel(&iov, sizeof(iov),
						  (void *)(c->base + c->seg * sizeof(iov))))
		return -1;
	*addr = (__u64)iov.iov_base;
	*len = iov.iov_len;
	return 0;
}

/* Copies from one segment; 0: go on, 1: the record is full, or all is copied, or nothing more is
 * readable. */
__noinline int copy_segment(__u32 whose)
{
	struct send_scratch *s = send_scratch(whose);
	__u64 addr, len, n;
	__u32 pos;
	bool user;

	if (!s || !s->left || s->pos >= s->limit || s->bad)
		return 1;
	if (s->at.kind == TKS_ITER_OTHER || s->at.seg >= s->at.nr_segs ||
	    segment(&s->at, s->left, &addr, &len, &user)) {
		s->bad = s->left;
		return 1;
	}
	if (len <= s->at.seg_off) {
		s->at.seg++;
		s->at.seg_off = 0;
		return 0;
	}
	n = len - s->at.seg_off;
	if (n > s->left)
		n = s->left;
	if (n > s->limit - s->pos)
		n = s->limit - s->pos;
	n &= 2 * TKS_DATA_CAP - 1;
	if (n > TKS_DATA_CAP)
		n = TKS_DATA_CAP;
	pos = s->pos & (TKS_DATA_CAP - 1);
	addr += s->at.seg_off;
	s->at.seg_off += n;
	s->left -= n;
	if (user ? bpf_probe_read_user(s->data + pos, n, (void *)addr)
		 : bpf_probe_read_kernel(s->data + pos, n, (void *)addr)) {
		s->bad = n;
		return 1;
	}
	s->pos += n;
	return 0;
}

/* Fills the record's data from the cursor. */
__noinline int fill_record(__u32 whose)
{
	for (int i = 0; i < 1024; i++) {
		if (copy_segment(whose))
			break;
	}
	return 0;
}

#endif
