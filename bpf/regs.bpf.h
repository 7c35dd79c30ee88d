/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where each architecture keeps what functions are called with: Go's internal ABI (the receiver in
 * its first register, a slice in the next three, results from the first on, and the goroutine), and
 * the place of a C function's frame.
 */
#ifndef TKS_REGS_BPF_H
#define TKS_REGS_BPF_H

enum { TLS_STACK = 8 << 20 }; /* further apart stack pointers are of different stacks */

#if defined(__TARGET_ARCH_x86)
#define GO_REG1(ctx) ((ctx)->ax)
#define GO_REG2(ctx) ((ctx)->bx)
#define GO_REG3(ctx) ((ctx)->cx)
#define GO_GOROUTINE(ctx) ((ctx)->r14)
#define GO_GOROUTINE_CORE(regs) BPF_CORE_READ(regs, r14)

/* Where a function that was entered with the stack pointer sp returns to: the call pushed it. */
static __always_inline __u64 return_address(struct pt_regs *ctx, __u64 sp)
{
	__u64 ret = 0;

	(void)ctx;
	bpf_probe_read_user(&ret, sizeof(ret), (void *)sp);
	return ret;
}

/* The frame of a function that was entered with sp and returns to ret is on the stack, still; fp is
 * the frame pointer there is now. */
static __always_inline bool frame_there(__u64 fp, __u64 sp, __u64 ret)
{
	__u64 at = 0;

	(void)fp;
	return !bpf_probe_read_user(&at, sizeof(at), (void *)sp) && at == ret;
}

#elif defined(__TARGET_ARCH_arm64)
#define GO_REG1(ctx) ((ctx)->regs[0])
#define GO_REG2(ctx) ((ctx)->regs[1])
#define GO_REG3(ctx) ((ctx)->regs[2])
#define GO_GOROUTINE(ctx) ((ctx)->regs[28])
#define GO_GOROUTINE_CORE(regs) BPF_CORE_READ(regs, regs[28])

enum {
	FRAMES = 32,
	ADDRESS_BITS = 48
}; /* above these is the signature of pointer authentication */

static __always_inline __u64 return_address(struct pt_regs *ctx, __u64 sp)
{
	(void)sp;
	return ctx->regs[30] << (64 - ADDRESS_BITS);
}

/* By the chain of frame records (AAPCS64, 6.4.6): the one below sp that returns to ret. */
static __always_inline bool frame_there(__u64 fp, __u64 sp, __u64 ret)
{
	struct {
		__u64 next, lr;
	} record;
	__u64 at = fp;

	for (int i = 0; i < FRAMES; i++) {
		if (at >= sp || sp - at > TLS_STACK ||
		    bpf_probe_read_user(&record, sizeof(record), (void *)at))
			return false;
		if (record.lr << (64 - ADDRESS_BITS) == ret)
			return true;
		/* The stack grows downwards. */
		if (record.next <= at)
			return false;
		at = record.next;
	}
	return false;
}
#endif

#endif
