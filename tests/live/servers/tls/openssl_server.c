/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Streams chat completions through OpenSSL.
 *
 * usage: openssl_server [ADDRESS]:PORT|PORT WITNESS-LOG PEM MODE [THREADS]      PEM "-": no TLS
 *
 * blocking: a thread a connection, SSL_write on a blocking socket. retry: the same on a socket that
 * doesn't block and has a small buffer: SSL_write is called again when there is room. bio: THREADS
 * event loops (1); SSL writes to memory, and what it wrote is sent later, when every connection
 * whose time has come has written. ktls: as blocking, and the kernel makes the records. ktls-send:
 * it does, and answers go to the socket past OpenSSL, by send. uring, zerocopy: as bio, but what is
 * sent goes by io_uring's IORING_OP_SEND, or by send with MSG_ZEROCOPY.
 *
 * Besides OpenAI's own fields a request may have gap_ms, prefill_ms, and pad: bytes that each
 * token's text ends with.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#ifndef SSL_OP_ENABLE_KTLS /* OpenSSL 1.1 and BoringSSL have no kernel TLS */
#define SSL_OP_ENABLE_KTLS 0
#define BIO_get_ktls_send(bio) ((void)(bio), 0)
#endif

#include "chat.h"

enum { SMALL_BUFFER = 4096, TICK_NS = 5000000, OUT_MAX = 1 << 20 };

struct connection {
	int fd, peer;
	SSL *ssl;
	/* of event loops */
	struct connection *next;
	int busy, over, unsent;
	char in[CHAT_REQUEST_MAX + 1];
	size_t have, out_from, out_to;
	char *out;
	struct chat chat;
};

static SSL_CTX *context; /* NULL: no TLS */
static int in_kernel, past_ssl; /* ktls; ktls-send */

static void no_blocking(int fd)
{
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

/* --- a thread a connection
 * ------------------------------------------------------------------------- */

static ssize_t plain_read(void *io, void *data, size_t n)
{
	struct connection *c = io;
	ssize_t got;

	while ((got = recv(c->fd, data, n, 0)) < 0 && errno == EAGAIN)
		poll(&(struct pollfd){ c->fd, POLLIN, 0 }, 1, -1);
	return got;
}

static int plain_write(void *io, const char *data, size_t n)
{
	struct connection *c = io;

	while (n) {
		ssize_t sent = send(c->fd, data, n, MSG_NOSIGNAL);

		if (sent < 0 && errno == EAGAIN)
			poll(&(struct pollfd){ c->fd, POLLOUT, 0 }, 1, -1);
		else if (sent < 0)
			return 0;
		else
			data += sent, n -= (size_t)sent;
	}
	return 1;
}

/* Waits for what a call that returned `status` wants; false if it has failed. */
static int again(struct connection *c, int status)
{
	int why = SSL_get_error(c->ssl, status);

	if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE)
		return 0;
	poll(&(struct pollfd){ c->fd, why == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT, 0 }, 1, -1);
	return 1;
}

static ssize_t tls_read(void *io, void *data, size_t n)
{
	struct connection *c = io;
	int got;

	do
		got = SSL_read(c->ssl, data, (int)n);
	while (got <= 0 && again(c, got));
	return got;
}

static int tls_write(void *io, const char *data, size_t n)
{
	struct connection *c = io;
	int sent;

	do
		sent = SSL_write(c->ssl, data, (int)n);
	while (sent <= 0 && again(c, sent));
	return sent == (int)n;
}

static void *serve(void *arg)
{
	static const struct chat_io tls = { tls_read, tls_write },
				    plain = { plain_read, plain_write },
				    mixed = { tls_read, plain_write };
	struct connection *c = arg;
	int status = 1;

	if (context) {
		c->ssl = SSL_new(context);
		SSL_set_fd(c->ssl, c->fd);
		while ((status = SSL_accept(c->ssl)) <= 0 && again(c, status))
			;
	}
	if (status > 0 && in_kernel && !BIO_get_ktls_send(SSL_get_wbio(c->ssl)))
		errx(1, "the kernel does not take %s", SSL_get_cipher(c->ssl));
	if (status > 0)
		chat_serve(past_ssl ? &mixed : context ? &tls : &plain, c, c->peer);
	SSL_free(c->ssl);
	close(c->fd);
	free(c);
	return NULL;
}

/* --- ways out of an event loop
 * ---------------------------------------------------------------------- */

typedef ssize_t send_fn(int fd, const void *data, size_t n);

static ssize_t by_send(int fd, const void *data, size_t n)
{
	return send(fd, data, n, MSG_NOSIGNAL);
}

/* The pages are sent: they are not written to before the kernel has done with them. */
static ssize_t by_zerocopy(int fd, const void *data, size_t n)
{
	char control[128];
	struct msghdr m = { .msg_control = control, .msg_controllen = sizeof(control) };
	ssize_t sent = send(fd, data, n, MSG_NOSIGNAL | MSG_ZEROCOPY);

	while (sent > 0 && recvmsg(fd, &m, MSG_ERRQUEUE) < 0 && errno == EAGAIN)
		poll(&(struct pollfd){ fd, 0, 0 }, 1, -1);
	return sent;
}

struct ring {
	int fd;
	struct io_uring_params p;
	char *sq, *cq;
	struct io_uring_sqe *sqe;
};

static void *ring_map(int fd, size_t size, off_t offset)
{
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);

	if (at == MAP_FAILED)
		err(1, "mmap of io_uring");
	return at;
}

static void ring_open(struct ring *r)
{
	r->fd = (int)syscall(SYS_io_uring_setup, 1, &r->p);
	if (r->fd < 0)
		err(1, "io_uring_setup");
	r->sq = ring_map(r->fd, r->p.sq_off.array + 4 * r->p.sq_entries, IORING_OFF_SQ_RING);
	r->cq = ring_map(r->fd, r->p.cq_off.cqes + sizeof(struct io_uring_cqe) * r->p.cq_entries,
			 IORING_OFF_CQ_RING);
	r->sqe = ring_map(r->fd, sizeof(*r->sqe), IORING_OFF_SQES);
}

/* One request, waited for. */
static ssize_t by_uring(int fd, const void *data, size_t n)
{
	static __thread struct ring r = { .fd = -1 };
	static __thread uint32_t nr;

	if (r.fd < 0)
		ring_open(&r);
	*r.sqe = (struct io_uring_sqe){ .opcode = IORING_OP_SEND,
					.fd = fd,
					.addr = (uintptr_t)data,
					.len = (uint32_t)n,
					.msg_flags = MSG_NOSIGNAL };
	__atomic_store_n((uint32_t *)(r.sq + r.p.sq_off.tail), nr + 1, __ATOMIC_RELEASE);
	if (syscall(SYS_io_uring_enter, r.fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) != 1)
		err(1, "io_uring_enter");
	struct io_uring_cqe *done =
		(struct io_uring_cqe *)(r.cq + r.p.cq_off.cqes) + (nr & (r.p.cq_entries - 1));
	int sent = done->res;

	__atomic_store_n((uint32_t *)(r.cq + r.p.cq_off.head), ++nr, __ATOMIC_RELEASE);
	if (sent >= 0)
		return sent;
	errno = -sent;
	return -1;
}

static send_fn *send_some; /* NULL: no event loops */

/* --- event loops, and OpenSSL in memory
 * -------------------------------------------------------------- */

struct loop {
	int epoll;
	pthread_mutex_t lock; /* of the list's head */
	struct connection *first;
};

static void append(struct connection *c, const void *data, size_t n)
{
	if (c->out_to + n > OUT_MAX)
		errx(1, "too much to send");
	memcpy(c->out + c->out_to, data, n);
	c->out_to += n;
}

/* What OpenSSL wrote to memory, behind what is to be sent. */
static void take_records(struct connection *c)
{
	char data[16384];
	int n;

	while (c->ssl && (n = BIO_read(SSL_get_wbio(c->ssl), data, sizeof(data))) > 0)
		append(c, data, (size_t)n);
}

static void flush(struct connection *c)
{
	while (c->out_from < c->out_to) {
		ssize_t n = send_some(c->fd, c->out + c->out_from, c->out_to - c->out_from);

		if (n < 0 && errno == EAGAIN)
			return; /* the next tick tries again */
		if (n < 0) {
			c->over = 1;
			return;
		}
		c->out_from += (size_t)n;
	}
	c->out_from = c->out_to = 0;
	if (c->unsent) {
		chat_sent(&c->chat);
		c->unsent = 0;
	}
	if (c->busy && chat_done(&c->chat)) {
		chat_end(&c->chat);
		c->busy = 0;
	}
}

/* Bytes of the request, out of the socket and through OpenSSL. */
static void readable(struct connection *c)
{
	char data[16384];
	ssize_t n;

	while ((n = recv(c->fd, data, sizeof(data), 0)) > 0) {
		if (c->ssl) {
			BIO_write(SSL_get_rbio(c->ssl), data, (int)n);
		} else if (c->have + (size_t)n <= CHAT_REQUEST_MAX) {
			memcpy(c->in + c->have, data, (size_t)n);
			c->have += (size_t)n;
		}
	}
	c->over |= n == 0 || errno != EAGAIN;
	if (c->ssl) {
		int got = SSL_is_init_finished(c->ssl) ? 1 : SSL_accept(c->ssl);

		while (got > 0) {
			got = SSL_read(c->ssl, c->in + c->have, (int)(CHAT_REQUEST_MAX - c->have));
			c->have += got > 0 ? (size_t)got : 0;
		}
		take_records(c);
	}
	size_t whole = c->busy ? 0 : chat_whole(c->in, c->have);

	if (whole) {
		chat_begin(&c->chat, c->in, c->peer);
		c->busy = 1;
		memmove(c->in, c->in + whole, c->have -= whole);
	}
}

static void write_due(struct connection *c, int64_t now)
{
	char piece[CHAT_PIECE_MAX + 256];
	size_t n;

	if (!c->busy || c->unsent || chat_done(&c->chat) || c->chat.due > now)
		return;
	n = chat_next(&c->chat, piece);
	if (!c->ssl)
		append(c, piece, n);
	else if (SSL_write(c->ssl, piece, (int)n) != (int)n)
		c->over = 1;
	c->unsent = 1;
}

static void drop(struct loop *l)
{
	pthread_mutex_lock(&l->lock);
	for (struct connection **at = &l->first; *at;) {
		struct connection *c = *at;

		if (c->over) {
			*at = c->next;
			SSL_free(c->ssl);
			close(c->fd);
			free(c->out);
			free(c);
		} else {
			at = &c->next;
		}
	}
	pthread_mutex_unlock(&l->lock);
}

/* A turn every tick: all whose time has come write first, then all is sent. */
static void *turn(void *arg)
{
	struct loop *l = arg;
	struct epoll_event events[64];

	for (int64_t tick = chat_now();; tick += TICK_NS) {
		int n;

		chat_sleep(tick);
		while ((n = epoll_wait(l->epoll, events, 64, 0)) > 0) {
			for (int i = 0; i < n; i++)
				readable(events[i].data.ptr);
			for (int i = 0; i < n; i++)
				if (((struct connection *)events[i].data.ptr)->over)
					epoll_ctl(l->epoll, EPOLL_CTL_DEL,
						  ((struct connection *)events[i].data.ptr)->fd,
						  NULL);
		}
		pthread_mutex_lock(&l->lock);
		struct connection *first = l->first;

		pthread_mutex_unlock(&l->lock);
		int64_t now = chat_now();

		for (struct connection *c = first; c; c = c->next)
			write_due(c, now);
		for (struct connection *c = first; c; c = c->next) {
			take_records(c);
			flush(c);
		}
		drop(l);
	}
	return NULL;
}

static void give(struct loop *l, struct connection *c)
{
	int on = 1;

	no_blocking(c->fd);
	c->out = malloc(OUT_MAX);
	if (!c->out)
		err(1, NULL);
	if (send_some == by_zerocopy && setsockopt(c->fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on)))
		err(1, "SO_ZEROCOPY");
	if (context) {
		c->ssl = SSL_new(context);
		SSL_set_bio(c->ssl, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
		SSL_set_accept_state(c->ssl);
	}
	pthread_mutex_lock(&l->lock);
	c->next = l->first;
	l->first = c;
	pthread_mutex_unlock(&l->lock);
	struct epoll_event e = { .events = EPOLLIN, .data.ptr = c };

	epoll_ctl(l->epoll, EPOLL_CTL_ADD, c->fd, &e);
}

/* --- both
 * ------------------------------------------------------------------------------------------ */

static void start(void *(*function)(void *), void *arg)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, function, arg))
		errx(1, "no thread");
	pthread_detach(thread);
}

static struct loop *make_loops(int count)
{
	struct loop *loops = calloc((size_t)count, sizeof(*loops));

	if (!loops)
		err(1, NULL);
	for (int i = 0; i < count; i++) {
		loops[i].epoll = epoll_create1(0);
		pthread_mutex_init(&loops[i].lock, NULL);
		start(turn, &loops[i]);
	}
	return loops;
}

static const struct {
	const char *mode;
	send_fn *send;
} modes[] = {
	{ "blocking", NULL },	     { "retry", NULL },	 { "ktls", NULL },
	{ "ktls-send", NULL },	     { "bio", by_send }, { "uring", by_uring },
	{ "zerocopy", by_zerocopy },
};

static void choose(const char *mode)
{
	for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
		if (strcmp(mode, modes[i].mode))
			continue;
		send_some = modes[i].send;
		return;
	}
	errx(2, "no mode %s", mode);
}

int main(int argc, char **argv)
{
	if (argc < 5)
		errx(2, "usage: openssl_server [ADDRESS]:PORT|PORT WITNESS-LOG PEM MODE [THREADS]");
	choose(argv[4]);
	int retry = !strcmp(argv[4], "retry"), count = argc > 5 ? atoi(argv[5]) : 1;
	struct loop *loops = send_some ? make_loops(count) : NULL;

	past_ssl = !strcmp(argv[4], "ktls-send");
	in_kernel = past_ssl || !strcmp(argv[4], "ktls");
	if (strcmp(argv[3], "-")) {
		context = SSL_CTX_new(TLS_server_method());
		if (SSL_CTX_use_certificate_chain_file(context, argv[3]) != 1 ||
		    SSL_CTX_use_PrivateKey_file(context, argv[3], SSL_FILETYPE_PEM) != 1)
			errx(1, "%s is no certificate with its key", argv[3]);
		if (in_kernel)
			SSL_CTX_set_options(context, SSL_OP_ENABLE_KTLS);
	}
	int listener = chat_listen(argv[1], argv[2], retry ? SMALL_BUFFER : 0);

	for (int i = 0;; i++) {
		struct connection *c = calloc(1, sizeof(*c));

		if (!c)
			err(1, NULL);
		c->fd = chat_accept(listener, &c->peer);
		if (retry)
			no_blocking(c->fd);
		if (loops)
			give(&loops[i % count], c);
		else
			start(serve, c);
	}
}
