/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The parts of tls.c that have files of their own: what is remembered of ciphertext (tls_mark.c),
 * objects and the plaintext that waits (tls_object.c), records that were seen and how plaintext
 * fits into them (tls_seen.c).
 */
#ifndef TKS_TLS_INT_H
#define TKS_TLS_INT_H

#include "list.h"
#include "tls.h"
#include "tls_record.h"

enum {
	TKS_TLS_BUCKETS = 4096,
	TKS_TLS_OVERHEAD_MIN = 8, /* what a record's payload has more than its plaintext: CCM_8 */
	TKS_TLS_OVERHEAD_MAX =
		16 + 64 + 256, /* CBC: the vector, a SHA-512 and the longest padding */
};

/* Plaintext that waits: to be sent, or for its connection to be known. */
struct tks_tls_piece {
	struct tks_list list;
	enum tks_dir dir;
	bool cont;
	uint32_t call, len, cap, asked, at; /* at: bytes of it that were handed on */
	uint32_t last; /* the call that handed it over last, after refusals */
	uint32_t missing; /* bytes that are missing before it */
	uint64_t ts_ns;
	uint8_t data[];
};

struct tks_tls_object {
	struct tks_tls_object *hash_next;
	struct tks_list lru, waiting; /* waiting: in the list of those that have no connection */
	uint32_t pid;
	uint64_t id;
	uint16_t lib;
	struct tks_process proc;
	struct tks_tls_conn *conn; /* tied */
	void *own; /* untied: what stands for its connection */
	bool whole; /* seen from its first byte on */
	bool started[2]; /* by direction: the first piece has come */
	bool marked; /* its ciphertext is */
	bool marks_writes; /* that of its writes, too */
	bool dead; /* of no interest */
	bool closed; /* its connection is over */
	bool given_up; /* nothing was found once */
	uint64_t untied_bytes; /* of plaintext that came while no connection was known */
	bool written; /* waits, and not only with what was read */
	uint32_t expect[2]; /* the count that the next piece should have */
	uint32_t out[2]; /* number of the next byte handed on */
	struct tks_list pieces[2];
	size_t pending;
	uint32_t npieces;
	uint64_t since_ns; /* of the oldest piece while untied */
	struct tks_list marks;
	unsigned int nmarks;
};

/* The beginning of ciphertext that an object made. */
struct tks_tls_mark {
	struct tks_tls_mark *hash_next;
	struct tks_list list; /* of the object's */
	struct tks_tls_object *obj;
	uint32_t call;
	uint8_t nhead;
	uint8_t head[TKS_TLS_HEAD];
};

/* A record that was seen on the wire. */
struct tks_tls_seen {
	uint64_t ts_ns, ret_ns; /* of its last byte; what arrived has in ret_ns when data was sent
				 * last */
	uint64_t obj; /* that its send was nested in a call of */
	uint32_t pid, call, len;
	uint8_t type, nhead;
	uint8_t head[TKS_TLS_HEAD];
};

struct tks_tls_ring {
	struct tks_tls_seen *at;
	uint32_t size, head, count; /* size: a power of two, or 0 */
};

struct tks_tls_conn {
	struct tks_tls *tls;
	void *owner;
	struct tks_tls_object *obj;
	struct tks_stream stream[2];
	struct tks_tls_framer framer[2];
	struct tks_tls_ring records[2];
	int overhead; /* of a record; 0: not known */
	uint32_t finished; /* TLS 1.3: length of the client's Finished, which is still to come */
	bool from_start;
	bool torn; /* sends were lost */
	bool in_kernel; /* kernel TLS makes what is sent now */
	uint32_t rx_left; /* bytes of the record read last that were not read yet */
	uint64_t rx_ns; /* when it arrived */
	bool rx_begun; /* a read of the object has been looked up */
	uint64_t tx_data_ns; /* when data was sent last */
	uint64_t rx_read_ns; /* of the last read whose record was not there: what came before it and
			      * is told of later has been read */
	uint32_t tx_pid; /* who sent last; 0: not known */
	uint64_t nested; /* the object that the last nested send was in a call of */
	uint32_t nested_pid;
};

struct tks_tls {
	struct tks_mem *mem;
	const struct tks_tls_ops *ops;
	void *ctx;
	struct tks_tls_object *objects[TKS_TLS_BUCKETS];
	struct tks_tls_mark *marks[TKS_TLS_BUCKETS];
	struct tks_list lru, waiting, unwritten; /* the last two: by since_ns */
	uint32_t nobjects, nmarks;
	struct tks_tls_counters counters;
};

/* A bucket for a number that is as good as random in some of its bits. */
static inline uint32_t tks_tls_mix(uint64_t v)
{
	v ^= v >> 33;
	v *= 0xff51afd7ed558ccdull;
	return (uint32_t)(v >> 40) & (TKS_TLS_BUCKETS - 1);
}

/* --- tls_mark.c --- */

/* The mark of the record that begins so, or NULL. */
struct tks_tls_mark *tks_tls_mark_find(struct tks_tls *t, const uint8_t *head, uint8_t nhead);

/* Of the CIPHER event; one that is there already stays. 0 or -ENOMEM. */
int tks_tls_mark_add(struct tks_tls *t, struct tks_tls_object *o, const struct tks_event *ev);
void tks_tls_mark_remove(struct tks_tls *t, struct tks_tls_mark *m);

/* --- tls_object.c --- */

/* The object of the event; a new one where it has none, or where its address is used again. NULL
 * without memory. */
struct tks_tls_object *tks_tls_object_of(struct tks_tls *t, const struct tks_event *ev);
struct tks_tls_object *tks_tls_object_find(struct tks_tls *t, uint32_t pid, uint64_t id);
void tks_tls_object_free(struct tks_tls *t, struct tks_tls_object *o);

/* Its connection is over, or another's: what is written or read from now on belongs to none, until
 * it shows up on one again. */
void tks_tls_untie(struct tks_tls *t, struct tks_tls_object *o);

/* The oldest that waits, or NULL. */
struct tks_tls_piece *tks_tls_first_piece(const struct tks_tls_object *o, enum tks_dir dir);
void tks_tls_piece_free(struct tks_tls *t, struct tks_tls_object *o, struct tks_tls_piece *p);

/* What waits is not handed on: its bytes are missing. */
void tks_tls_drop_pieces(struct tks_tls *t, struct tks_tls_object *o);

/* Hands on up to n bytes of the piece, stamped. */
void tks_tls_hand_on(struct tks_tls *t, struct tks_tls_object *o, struct tks_tls_piece *p,
		     uint32_t n, const struct tks_stamp *st);

/* --- tls_seen.c --- */

/* The i-th oldest. */
struct tks_tls_seen *tks_tls_nth(const struct tks_tls_ring *r, uint32_t i);
void tks_tls_ring_drop(struct tks_tls_ring *r, uint32_t n);

/* The newest; a full ring loses its oldest. 0 or -ENOMEM. */
int tks_tls_ring_push(struct tks_tls_ring *r, struct tks_mem *mem, const struct tks_tls_seen *s);

/* How much plaintext a record may have that has this much payload, if it was to hold `want`; 0: it
 * can't be. */
uint32_t tks_tls_plain_of(const struct tks_tls_conn *c, uint32_t len, uint32_t want);

/* Authenticated encryption adds the same to every record: the tag, in TLS 1.2 the nonce's visible
 * part, in TLS 1.3 the type. With CBC it differs and stays not known. */
void tks_tls_learn_overhead(struct tks_tls_conn *c, uint32_t len, uint32_t plain);

/*
 * The server's hello (RFC 8446, 4.1.3) says by its cipher suite what a record has more than its
 * plaintext: TLS 1.3's suites (B.4) the type and the tag; of TLS 1.2's, those with ChaCha20 the tag
 * (RFC 7905), with GCM the tag and the visible part of the nonce (RFC 5288). Others are not known
 * here.
 */
void tks_tls_read_hello(struct tks_tls_conn *c, const struct tks_tls_record *r);

/* When the n bytes arrived that a read into `asked` bytes of room gave at read_ns. */
uint64_t tks_tls_arrival(struct tks_tls_conn *c, uint32_t n, uint32_t asked, uint64_t read_ns);

#endif
