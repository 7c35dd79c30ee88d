/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Events: what the pipeline eats. They come from ring records (event.c) or from packet files
 * (pcap_in.c); from here on nobody knows which.
 */
#ifndef TOKENSNOOP_EVENT_H
#define TOKENSNOOP_EVENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tks_event_kind {
	TKS_EV_OPEN = 1, /* the connection was seen being established: tx_seq and rx_seq number its
			    first bytes (with met: it may be in its middle, they number the next) */
	TKS_EV_DATA = 2,
	TKS_EV_FIN = 3, /* direction dir ends after what was sent before */
	TKS_EV_CLOSE = 4, /* nothing more will come; err tells a reset (ECONNRESET, EPIPE, ...) from
			     a clean end (0) */
	TKS_EV_PLAIN = 5, /* plaintext that went into (TX) or came out of (RX) a TLS library */
	TKS_EV_CIPHER = 6, /* ciphertext that the library made in a call: its first bytes */
	TKS_EV_OBJ_GONE = 7, /* the library's object was freed */
};

/* Seen from the traced host's socket (in packet files: from the server). */
enum tks_dir { TKS_RX = 0, TKS_TX = 1 };

enum tks_role { TKS_ROLE_UNKNOWN = 0, TKS_ROLE_SERVER = 1, TKS_ROLE_CLIENT = 2 };

struct tks_endpoint {
	uint16_t family; /* AF_INET, AF_INET6, AF_UNIX */
	uint16_t port; /* host byte order */
	uint8_t addr[16]; /* network byte order; the first four bytes for AF_INET; AF_UNIX: the same
			     for connections to the same listener */
	const char *name; /* AF_UNIX: printable, as tks_unix_name() makes it; NULL: none, or not
			     known. Whoever keeps an endpoint keeps the text */
};

struct tks_process {
	uint32_t pid; /* 0: not known */
	uint32_t tid;
	uint64_t cgroup; /* cgroup v2 id; 0: not known */
	char comm[16]; /* always terminated */
};

struct tks_event {
	enum tks_event_kind kind;
	enum tks_dir dir; /* DATA, FIN */
	enum tks_role role; /* OPEN; for other kinds a hint, or unknown */
	uint64_t ts_ns; /* when the boundary was crossed */
	uint64_t ret_ns; /* DATA, TX: return of the send, else 0 */
	uint64_t conn; /* the connection's key: socket cookie, or a number of the packet reader's.
			  0: DATA, RX that came before the connection had a socket of its own, to be
			  known by its addresses */
	uint32_t netns;
	struct tks_endpoint local, peer;
	struct tks_process proc;
	uint32_t seq; /* DATA: sequence number of the first byte; FIN: of the byte that would come
			 next */
	uint32_t tx_seq,
		rx_seq; /* OPEN; CLOSE: next to be sent and to be received, where seq_known */
	bool seq_known; /* CLOSE: tx_seq and rx_seq are valid */
	bool met; /* OPEN: seen first, but perhaps not from its beginning */
	bool unsure; /* DATA: which bytes were accepted is not known: a gap */
	bool kernel_tls; /* DATA, TX: records that the kernel made of what the process sent */
	uint32_t len; /* DATA: bytes of the stream */
	uint32_t cap; /* DATA: of which data holds the first cap */
	const uint8_t
		*data; /* valid during the call only. OPEN, AF_UNIX: the server's name, cap bytes */
	uint32_t lost; /* records of this connection lost so far, cumulative */
	uint32_t err; /* CLOSE */
	/*
	 * PLAIN, CIPHER, OBJ_GONE are of an object of a TLS library in proc's process; conn, role
	 * and addresses are not known, ts_ns is that of the call (RX: of its return).
	 */
	uint64_t obj; /* DATA, TX: that of the write that the send is nested in; 0: of none */
	uint32_t call; /* number of the object's call in that direction, from 1; DATA, CIPHER: of
			  the write, 0 for none */
	uint32_t asked; /* PLAIN, RX: size of the reader's buffer */
	uint16_t lib; /* PLAIN, CIPHER: enum tks_tls_lib */
	bool again; /* PLAIN, TX: of a write that was refused before */
	bool cont; /* PLAIN: further bytes of the call begun by the event before */
};

struct tks_rec;

/*
 * Decodes one ring record of size bytes. 0, or -EBADMSG when sizes contradict each other or a field
 * is out of its range (the record is then to be counted and skipped). ev->data points into rec.
 */
int tks_event_decode(const void *rec, size_t size, struct tks_event *ev);

/*
 * Writes "ADDR:PORT", IPv6 in brackets (v4-mapped shown as IPv4), or "unix:NAME" into buf of at
 * least TKS_ENDPOINT_STR bytes; returns buf.
 */
enum { TKS_ENDPOINT_STR = 120 };
char *tks_endpoint_str(const struct tks_endpoint *ep, char *buf);

/*
 * The name of a unix socket (unix(7): a path, or abstract with a 0 first) as text: abstract ones
 * with
 * '@' for each 0, as ss(8) shows them; what is not printable is '?'. path: n bytes of sun_path. out
 * has room for n + 1 bytes.
 */
void tks_unix_name(const uint8_t *path, size_t n, char *out);

#endif
