/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which connections are wanted. The table holds a word a connection, by socket cookie: the verdict
 * (userspace writes it), whether the process filters have been asked, and which side this host is.
 * The cheap filters come first: ports need no look-up, an ignored connection needs one.
 */
#ifndef TKS_CONN_BPF_H
#define TKS_CONN_BPF_H

struct conn {
	__u8 verdict; /* enum tks_verdict */
	__u8 admitted; /* the process filters said yes */
	__u8 role; /* 0 not known, TKS_CONN_ACCEPTED, TKS_CONN_CONNECTED */
	__u8 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, struct conn);
} conns SEC(".maps");

static __always_inline bool port_listed(__u16 port)
{
	for (__u32 i = 0; i < TKS_PORTS_MAX; i++) {
		if (i < cfg_nports && cfg_ports[i] == port)
			return true;
	}
	return false;
}

static __always_inline bool ports_wanted(__u16 lport, __u16 rport)
{
	if (!cfg_nports)
		return true;
	return port_listed(lport) || (cfg_all && port_listed(rport));
}

static __always_inline bool in_tree(__u32 pid)
{
	struct task_struct *t = (void *)bpf_get_current_task();

	for (int i = 0; i < 16; i++) {
		__u32 tgid = BPF_CORE_READ(t, tgid);

		if (tgid == pid)
			return true;
		if (tgid <= 1)
			return false;
		t = BPF_CORE_READ(t, real_parent);
	}
	return false;
}

/* The process's name, whatever its threads call themselves. */
static __always_inline void process_comm(char *comm)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct task_struct *leader = BPF_CORE_READ(task, group_leader);

	bpf_core_read(comm, TKS_COMM_LEN, &leader->comm);
}

static __always_inline bool comm_wanted(void)
{
	char comm[TKS_COMM_LEN] = {};

	process_comm(comm);
	for (int i = 0; i < TKS_COMM_LEN; i++) {
		if (comm[i] != cfg_comm[i])
			return false;
		if (!comm[i])
			break;
	}
	return true;
}

/* Asked once a connection, in the context of the first task that sends on it. */
static __always_inline bool process_wanted(void)
{
	if ((__u32)(bpf_get_current_pid_tgid() >> 32) == cfg_self)
		return false;
	if (cfg_pid && !in_tree(cfg_pid))
		return false;
	if (cfg_comm_on && !comm_wanted())
		return false;
	if (cfg_cgroup && bpf_get_current_ancestor_cgroup_id(cfg_cgroup_level) != cfg_cgroup)
		return false;
	return true;
}

/* What a descriptor of the current task is of, or NULL. */
static __always_inline struct file *file_of_fd(int fd)
{
	struct task_struct *t = (void *)bpf_get_current_task();
	struct fdtable *fdt = BPF_CORE_READ(t, files, fdt);
	struct file *file = NULL, **fds;

	if (fd < 0 || (unsigned int)fd >= BPF_CORE_READ(fdt, max_fds))
		return NULL;
	fds = BPF_CORE_READ(fdt, fd);
	bpf_probe_read_kernel(&file, sizeof(file), fds + fd);
	return file;
}

/*
 * A request comes after an answer of which only the heads were wanted: all is wanted again. side:
 * which this host is if the bytes are a request's.
 */
static __always_inline void bulk_over(struct conn *c, __u8 side)
{
	bool client = c->role == TKS_CONN_CONNECTED;

	if (c->verdict == TKS_VERDICT_HEADERS && client == (side == TKS_CONN_CONNECTED))
		c->verdict = TKS_VERDICT_FULL;
}

static __always_inline struct conn *conn_make(__u64 cookie, __u8 role)
{
	struct conn c = { .verdict = TKS_VERDICT_FULL, .role = role };

	if (role == TKS_CONN_CONNECTED && !cfg_all)
		c.verdict = TKS_VERDICT_IGNORE;
	bpf_map_update_elem(&conns, &cookie, &c, BPF_NOEXIST);
	return bpf_map_lookup_elem(&conns, &cookie);
}

#endif
