/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Every difference between kernels, in one place. Each shim names the change it bridges and when it
 * may go.
 */
#ifndef TKS_COMPAT_BPF_H
#define TKS_COMPAT_BPF_H

/* What an iterator's segments are, whatever the kernel numbers them. */
enum tks_iter {
	TKS_ITER_UBUF = 1,
	TKS_ITER_IOVEC,
	TKS_ITER_KVEC,
	TKS_ITER_BVEC,
	TKS_ITER_KBUF, /* one kernel buffer: not an iterator's kind, but what a page is made into */
	TKS_ITER_OTHER,
};

/*
 * 5.14 (8cd54c1c8480, "iov_iter: separate direction from flavour"): `type`, flavour bits with the
 * direction in bit 0, became `iter_type`, an enum. May go with 5.10.
 */
struct iov_iter___v510 {
	unsigned int type;
} __attribute__((preserve_access_index));

/* 6.4 (de4f5fed3f23, "iov_iter: add iter_iovec() helper"): `iov` became `__iov`. May go with 6.1.
 */
struct iov_iter___v61 {
	const struct iovec *iov;
} __attribute__((preserve_access_index));

/* 6.0 (fcb14cb1bdac, "new iov_iter flavour - ITER_UBUF"): renumbered since, so it is asked for by
 * name. */
struct iov_iter___ubuf {
	void *ubuf;
} __attribute__((preserve_access_index));

/* The flavours' numbers before 5.14. */
enum { TKS_V510_IOVEC = 4, TKS_V510_KVEC = 8, TKS_V510_BVEC = 16 };

static __always_inline enum tks_iter iter_kind(const struct iov_iter *it)
{
	if (bpf_core_field_exists(it->iter_type)) {
		__u8 type = BPF_CORE_READ(it, iter_type);

		if (bpf_core_enum_value_exists(enum iter_type, ITER_UBUF) &&
		    type == bpf_core_enum_value(enum iter_type, ITER_UBUF))
			return TKS_ITER_UBUF;
		if (type == bpf_core_enum_value(enum iter_type, ITER_IOVEC))
			return TKS_ITER_IOVEC;
		if (type == bpf_core_enum_value(enum iter_type, ITER_KVEC))
			return TKS_ITER_KVEC;
		if (type == bpf_core_enum_value(enum iter_type, ITER_BVEC))
			return TKS_ITER_BVEC;
		return TKS_ITER_OTHER;
	}
	switch (BPF_CORE_READ((const struct iov_iter___v510 *)it, type) & ~1U) {
	case TKS_V510_IOVEC:
		return TKS_ITER_IOVEC;
	case TKS_V510_KVEC:
		return TKS_ITER_KVEC;
	case TKS_V510_BVEC:
		return TKS_ITER_BVEC;
	default:
		return TKS_ITER_OTHER;
	}
}

/* The address of the first segment's descriptor, or of the bytes themselves for UBUF. */
static __always_inline __u64 iter_base(const struct iov_iter *it, enum tks_iter kind)
{
	if (kind == TKS_ITER_UBUF)
		return (__u64)BPF_CORE_READ((const struct iov_iter___ubuf *)it, ubuf);
	if (kind == TKS_ITER_KVEC)
		return (__u64)BPF_CORE_READ(it, kvec);
	if (kind == TKS_ITER_BVEC)
		return (__u64)BPF_CORE_READ(it, bvec);
	if (bpf_core_field_exists(it->__iov))
		return (__u64)BPF_CORE_READ(it, __iov);
	return (__u64)BPF_CORE_READ((const struct iov_iter___v61 *)it, iov);
}

/* A page's address, from where the kernel keeps all pages and their descriptors (asm/page_64.h,
 * __page_address with SPARSEMEM_VMEMMAP). */
static __always_inline __u64 page_address_of(__u64 page)
{
	__u64 base = 0, map = 0;

	if (!cfg_page_offset_base || !cfg_vmemmap_base)
		return 0;
	bpf_probe_read_kernel(&base, sizeof(base), (void *)cfg_page_offset_base);
	bpf_probe_read_kernel(&map, sizeof(map), (void *)cfg_vmemmap_base);
	if (!base || !map || page < map)
		return 0;
	return base + ((page - map) / bpf_core_type_size(struct page) << 12);
}

/*
 * While a program runs on a CPU the kernel refuses other runs of it there. Where tasks are
 * preempted in the kernel (7.x does nothing else) a program may be left half done for milliseconds,
 * and the sends of whoever has the CPU meanwhile are missed. cfg_preempt_off: these kfuncs are
 * there (6.10) and may be held over calls of global functions (6.15).
 */
#ifdef TKS_NO_KFUNCS
static __always_inline void bpf_preempt_disable(void)
{
}
static __always_inline void bpf_preempt_enable(void)
{
}
#else
extern void bpf_preempt_disable(void) __ksym __weak;
extern void bpf_preempt_enable(void) __ksym __weak;
#endif

static __always_inline void preempt_off(void)
{
	if (cfg_preempt_off)
		bpf_preempt_disable();
}

static __always_inline void preempt_on(void)
{
	if (cfg_preempt_off)
		bpf_preempt_enable();
}

/*
 * The registers that the current task entered the kernel with: by the helper (5.15), else from
 * where they lie at the top of its stack (x86-64, THREAD_SIZE 16 KiB). May go with 5.10.
 */
static __always_inline unsigned long user_regs(void)
{
	struct task_struct *t;

	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs) &&
	    bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_get_current_task_btf))
		return (unsigned long)bpf_task_pt_regs(bpf_get_current_task_btf());
	t = (void *)bpf_get_current_task();
	return (unsigned long)BPF_CORE_READ(t, stack) + 16384 - sizeof(struct pt_regs);
}

/* The number of the system call with those registers; -1 where it is of another ABI (32 bits). */
#if defined(__TARGET_ARCH_x86)
enum { TKS_NR_WRITE = 1, TKS_NR_WRITEV = 20, TKS_NR_SENDTO = 44, TKS_NR_SENDMSG = 46 };

static __always_inline long user_syscall(const struct pt_regs *regs)
{
	struct task_struct *t = (void *)bpf_get_current_task();

	/* TS_COMPAT, asm/thread_info.h */
	return BPF_CORE_READ(t, thread_info.status) & 2 ? -1 : (long)BPF_CORE_READ(regs, orig_ax);
}
#elif defined(__TARGET_ARCH_arm64)
enum { TKS_NR_WRITE = 64, TKS_NR_WRITEV = 66, TKS_NR_SENDTO = 206, TKS_NR_SENDMSG = 211 };

static __always_inline long user_syscall(const struct pt_regs *regs)
{
	struct task_struct *t = (void *)bpf_get_current_task();

	/* TIF_32BIT, asm/thread_info.h */
	return BPF_CORE_READ(t, thread_info.flags) >> 22 & 1 ? -1
							     : (long)BPF_CORE_READ(regs, syscallno);
}
#endif

#endif
