// SPDX-License-Identifier: GPL-2.0-only
/*
 * Files with code that come into use: at exec, and when a loader maps them. Told once a file, so
 * that a storm of short-lived processes tells nothing; userspace looks into the process's maps.
 */

struct code_key {
	__u64 ino;
	__u64 dev;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct code_key);
	__type(value, __u32); /* code_round when it was told of */
} code_seen SEC(".maps");

/* Counted on by userspace, which forgets files that nobody maps, and misses those of a process that
 * was gone before it was looked at: each file is told of once a round. */
__u32 code_round;

static __always_inline void code_of(const struct file *file)
{
	struct code_key key = {};
	__u32 round = code_round, *told;
	struct tks_rec *r;

	key.ino = BPF_CORE_READ(file, f_inode, i_ino);
	key.dev = BPF_CORE_READ(file, f_inode, i_sb, s_dev);
	told = bpf_map_lookup_elem(&code_seen, &key);
	if (told && *told == round)
		return;
	bpf_map_update_elem(&code_seen, &key, &round, BPF_ANY);
	r = bpf_ringbuf_reserve(&ring, sizeof(*r), 0);
	if (!r) {
		bpf_map_delete_elem(&code_seen, &key);
		return;
	}
	__builtin_memset(r, 0, sizeof(*r));
	r->size = sizeof(*r);
	r->kind = TKS_REC_CODE;
	r->ts_ns = bpf_ktime_get_ns();
	rec_task(r);
	/* It may write soon. */
	bpf_ringbuf_submit(r, BPF_RB_FORCE_WAKEUP);
}

SEC("?tp_btf/sched_process_exec")
int BPF_PROG(code_exec, struct task_struct *p, pid_t old_pid, struct linux_binprm *bprm)
{
	code_of(BPF_CORE_READ(bprm, file));
	return 0;
}

SEC("?tracepoint/syscalls/sys_enter_mmap")
int code_mmap(struct trace_event_raw_sys_enter *ctx)
{
	const struct file *file;

	/* PROT_EXEC, MAP_ANONYMOUS */
	if (!(ctx->args[2] & 4) || ctx->args[3] & 0x20)
		return 0;
	file = file_of_fd(ctx->args[4]);
	if (file)
		code_of(file);
	return 0;
}
