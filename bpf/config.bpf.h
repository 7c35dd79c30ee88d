/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What userspace sets before load: constants, so that the verifier drops the code of filters that
 * are off.
 */
#ifndef TKS_CONFIG_BPF_H
#define TKS_CONFIG_BPF_H

#define AF_INET 2
#define AF_INET6 10

enum { TKS_PORTS_MAX = 16 };

const volatile __u32 cfg_nports; /* 0: any port */
const volatile __u16 cfg_ports[TKS_PORTS_MAX];
const volatile bool cfg_all; /* connections that this host opened, too */
const volatile __u32 cfg_pid; /* this process or a descendant; 0: any */
const volatile bool cfg_comm_on;
const volatile char cfg_comm[TKS_COMM_LEN];
const volatile __u64 cfg_cgroup; /* id of a cgroup v2 directory; 0: any */
const volatile __u32 cfg_cgroup_level; /* its depth below the root */
const volatile __u32 cfg_self; /* the tracer's own pid: never traced */
const volatile __u64 cfg_wake_bytes; /* queued bytes at which the reader is woken early */
const volatile bool cfg_cookie_helper; /* tracing programs may call bpf_get_socket_cookie (5.12) */
const volatile bool cfg_task_storage; /* BPF_MAP_TYPE_TASK_STORAGE for tracing programs (5.12) */
const volatile bool cfg_attach_cookie; /* a probe can have a number of its own (5.15) */
const volatile bool cfg_preempt_off; /* programs may switch preemption off */
/* Addresses of two variables of the kernel on x86-64, as KASLR moves what they say; 0: absent, and
 * pages are not readable. Not as __ksym: libbpf would read all symbols again for each object. */
const volatile __u64 cfg_page_offset_base;
const volatile __u64 cfg_vmemmap_base;
const volatile bool
	cfg_make_cookies; /* the send hook can only read cookies: make them on arrival */

#endif
