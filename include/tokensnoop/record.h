/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The records that cross the ring buffer: the one header shared by the BPF programs and userspace.
 *
 * Every record begins with struct tks_rec; a data record is followed by `cap` captured bytes.
 * Numbers are in host byte order, ports too. Enum values are part of the format: explicit and
 * append-only.
 */
#ifndef TOKENSNOOP_RECORD_H
#define TOKENSNOOP_RECORD_H

#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

enum tks_rec_kind {
	TKS_REC_TX = 1, /* bytes that a send put into the TCP stream */
	TKS_REC_RX = 2, /* bytes that arrived in a packet, before the process reads them */
	TKS_REC_CONN = 3, /* a change of the connection's state */
	TKS_REC_TLS_TX = 4, /* plaintext that a process handed to its TLS library */
	TKS_REC_TLS_RX = 5, /* plaintext that a TLS library handed to its process */
	TKS_REC_TLS_OUT = 6, /* ciphertext that the library made in a call: its first bytes */
	TKS_REC_TLS_FREE = 7, /* a library's object is gone */
	TKS_REC_CODE = 8, /* a process maps a file with code that was not met before */
};

/* Whose call a TLS record is of: what struct tks_rec.state says in it. */
enum tks_tls_lib {
	TKS_TLS_OPENSSL = 1, /* and its kin: LibreSSL, BoringSSL */
	TKS_TLS_GNUTLS = 2,
	TKS_TLS_NSS = 3,
	TKS_TLS_GO = 4,
};

/* What struct tks_rec.state says in a TKS_REC_CONN record. */
enum tks_conn_state {
	TKS_CONN_ACCEPTED =
		1, /* established, passive side; seq and rcv_seq are those of the first bytes */
	TKS_CONN_CONNECTED = 2, /* established, active side; likewise */
	TKS_CONN_PEER_FIN = 3, /* the peer ended its direction */
	TKS_CONN_LOCAL_FIN = 4, /* this side ended its direction */
	TKS_CONN_CLOSED = 5, /* gone; err is the socket's error (ECONNRESET, EPIPE, ...) or 0 */
	TKS_CONN_MET = 6, /* seen first in its middle, as it may be; unix sockets only */
};

enum tks_rec_flags {
	TKS_RECF_CONT = 1 << 0, /* further bytes of the send begun by the record before */
	TKS_RECF_UNSURE =
		1 << 1, /* the kernel could not tell which bytes were accepted: treat as a gap */
	TKS_RECF_AGAIN = 1 << 3, /* TLS_TX: the write before was refused: these bytes come again */
	TKS_RECF_LISTENER = 1 << 2, /* the packet belongs to a connection without a socket of its
				       own yet; cookie 0 */
	TKS_RECF_KERNEL_TLS = 1 << 4, /* TX: the kernel made the bytes, TLS records of what a
					 process sent */
};

/* Per-connection verdict of userspace, the value that the BPF side looks up. */
enum tks_verdict {
	TKS_VERDICT_FULL = 0, /* every byte */
	TKS_VERDICT_HEADERS = 1, /* the first TKS_HEADERS_CAP bytes of each send and packet */
	TKS_VERDICT_IGNORE = 2, /* nothing but the close */
};

enum {
	TKS_HEADERS_CAP = 512,
	TKS_DATA_CAP = 16384, /* captured bytes a record holds at most; longer sends take several */
	TKS_SEND_RECS = 64, /* records a send takes at most: 1 MiB captured, the rest known but not
			       captured */
	TKS_COMM_LEN = 16,
	TKS_UNIX_PATH = 108, /* bytes of a unix socket's name at most (unix(7)) */
	TKS_TLS_OUT_CAP = 64, /* captured bytes of a TLS_OUT record */
};

struct tks_rec {
	__u32 size; /* of the whole record, bytes */
	__u16 kind; /* enum tks_rec_kind */
	__u16 flags; /* enum tks_rec_flags */
	__u64 ts_ns; /* CLOCK_MONOTONIC: entry of the send, arrival of the packet, change of the
			state */
	__u64 ret_ns; /* TX: return of the send, 0 where not known; else 0 */
	__u64 cookie; /* socket cookie; 0 with TKS_RECF_LISTENER, and in TLS records */
	__u64 obj; /* TLS: the library's object (an address in the process). TX: that of the write
		      that the send is nested in, 0 for none */
	__u64 cgroup; /* cgroup v2 id of the sending task; 0 where there is no task */
	__u32 seq; /* TX, RX: TCP sequence number of the first byte (AF_UNIX: bytes seen before);
		      CONN: next to be sent; TLS_TX, TLS_RX: bytes of the object's earlier calls in
		      that direction */
	__u32 rcv_seq; /* CONN: next sequence number to be received; TLS: number of the object's
			  call in that direction, from 1; TX: the call that it is nested in */
	__u32 len; /* TX, RX: bytes of the stream this record stands for */
	__u32 cap; /* bytes that follow, <= len; AF_UNIX, CONN: the server's name */
	__u32 lost; /* records of this connection lost so far (cumulative) */
	__u32 netns; /* inode number of the network namespace */
	__u32 pid; /* process (tgid) of the sending task; 0 where there is no task */
	__u32 tid;
	__u16 family; /* AF_INET, AF_INET6 or AF_UNIX */
	__u16 lport;
	__u16 rport;
	__u16 state; /* CONN: enum tks_conn_state; TLS: enum tks_tls_lib */
	__u32 err; /* CONN: errno of the socket, positive; TLS_RX: bytes that were asked for */
	__u32 pad;
	__u8 laddr[16]; /* the first four bytes for AF_INET; AF_UNIX: the same for sockets of one
			   listener */
	__u8 raddr[16];
	char comm[TKS_COMM_LEN];
};

/* Why a record did not come: the index into the per-CPU loss counters. */
enum tks_loss {
	TKS_LOSS_RING_FULL = 0, /* records that found no room */
	TKS_LOSS_RING_BYTES = 1, /* stream bytes in them */
	TKS_LOSS_CONN_FULL = 2, /* connections that found no place in the table */
	TKS_LOSS_INFLIGHT = 3, /* sends whose entry was seen but not their return, or the reverse */
	TKS_LOSS_UNREADABLE =
		4, /* stream bytes that were not readable (page absent, kind of iterator unknown) */
	TKS_LOSS_MAX = 5,
};

#ifdef __cplusplus
#define TKS_STATIC_ASSERT static_assert
#else
#define TKS_STATIC_ASSERT _Static_assert
#endif
TKS_STATIC_ASSERT(sizeof(struct tks_rec) == 144, "both compilers agree on the record");
TKS_STATIC_ASSERT(__builtin_offsetof(struct tks_rec, laddr) == 96, "no hidden padding");

#endif
