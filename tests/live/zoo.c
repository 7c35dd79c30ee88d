// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The sender zoo: sends known bytes over loopback by every call and kind of iterator, and holds
 * what the capture says against them: every byte at its offset, no byte twice, the length exact,
 * times around the call's.
 *
 * The sender is a child (the tracer never traces itself); the parent reads the socket and the ring.
 * The byte at stream offset i is pattern(i), so a captured record proves itself.
 *
 * usage: zoo [MODE...]; TAP on standard output. Needs root. TOKENSNOOP_HOOK_SEND and
 * TOKENSNOOP_HOOK_UNIX force a hook.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "capture.h"

enum { MAX_BYTES = 4 << 20 };

static uint8_t pattern(uint64_t i)
{
	return (uint8_t)(i * 131 + (i >> 8) * 7 + (i >> 16));
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static void die(const char *what)
{
	perror(what);
	_exit(1);
}

/* --- senders; each returns the bytes that were accepted --- */

static uint8_t *bytes(size_t n)
{
	uint8_t *b = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (b == MAP_FAILED)
		die("mmap");
	for (size_t i = 0; i < n; i++)
		b[i] = pattern(i);
	return b;
}

static size_t check(ssize_t n, const char *what)
{
	if (n < 0)
		die(what);
	return (size_t)n;
}

static size_t by_write(int fd)
{
	uint8_t *b = bytes(250 * 23);

	for (size_t i = 0; i < 23; i++)
		check(write(fd, b + i * 250, 250), "write");
	return 250 * 23;
}

static size_t by_single_bytes(int fd)
{
	uint8_t *b = bytes(509);

	for (size_t i = 0; i < 509; i++)
		check(write(fd, b + i, 1), "write");
	return 509;
}

static size_t by_sendto(int fd)
{
	return check(sendto(fd, bytes(16384), 16384, MSG_NOSIGNAL, NULL, 0), "sendto");
}

/* n segments of sizes 0, 1, 2, ... modulo 41. */
static size_t segments(struct iovec *iov, size_t n)
{
	size_t off = 0;
	uint8_t *b = bytes(n * 41);

	for (size_t i = 0; i < n; i++) {
		iov[i].iov_base = b + off;
		iov[i].iov_len = i % 41;
		off += i % 41;
	}
	return off;
}

static size_t by_writev(int fd, size_t n)
{
	struct iovec iov[1024];
	size_t len = segments(iov, n);

	if (check(writev(fd, iov, (int)n), "writev") != len)
		die("writev");
	return len;
}

static size_t by_writev3(int fd)
{
	return by_writev(fd, 3);
}

static size_t by_writev33(int fd)
{
	return by_writev(fd, 33);
}

static size_t by_writev1024(int fd)
{
	return by_writev(fd, 1024);
}

static size_t by_sendmsg(int fd)
{
	struct iovec iov[300];
	size_t len = segments(iov, 300);
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = 300 };

	if (check(sendmsg(fd, &m, MSG_NOSIGNAL), "sendmsg") != len)
		die("sendmsg");
	return len;
}

static size_t by_sendmmsg(int fd)
{
	struct iovec iov[3];
	struct mmsghdr m[3] = { 0 };
	uint8_t *b = bytes(3000);

	for (int i = 0; i < 3; i++) {
		iov[i] = (struct iovec){ b + i * 1000, 1000 };
		m[i].msg_hdr.msg_iov = &iov[i];
		m[i].msg_hdr.msg_iovlen = 1;
	}
	if (check(sendmmsg(fd, m, 3, 0), "sendmmsg") != 3)
		die("sendmmsg");
	return 3000;
}

static size_t by_more(int fd)
{
	uint8_t *b = bytes(900);

	check(send(fd, b, 300, MSG_MORE), "send");
	check(send(fd, b + 300, 300, MSG_MORE), "send");
	check(send(fd, b + 600, 300, 0), "send");
	return 900;
}

/* One blocking call that has to wait for the reader many times. */
static size_t by_large(int fd)
{
	return check(write(fd, bytes(1 << 20), 1 << 20), "write");
}

/* Non-blocking: short counts and EAGAIN, and the rest again. */
static size_t by_partial(int fd)
{
	size_t off = 0, n = 2 << 20;
	uint8_t *b = bytes(n);

	fcntl(fd, F_SETFL, O_NONBLOCK);
	while (off < n) {
		ssize_t r = write(fd, b + off, n - off > 700000 ? 700000 : n - off);
		struct pollfd p = { .fd = fd, .events = POLLOUT };

		if (r > 0)
			off += (size_t)r;
		else if (errno == EAGAIN)
			poll(&p, 1, 1000);
		else
			die("write");
	}
	return off;
}

static int file_of(size_t n)
{
	int fd = (int)syscall(SYS_memfd_create, "zoo", 0);

	if (fd < 0 || write(fd, bytes(n), n) != (ssize_t)n)
		die("memfd");
	return fd;
}

static size_t by_sendfile(int fd)
{
	off_t off = 0;

	return check(sendfile(fd, file_of(50000), &off, 50000), "sendfile");
}

static size_t by_splice(int fd)
{
	int file = file_of(30000), p[2];
	loff_t off = 0;

	if (pipe(p))
		die("pipe");
	if (check(splice(file, &off, p[1], NULL, 30000, 0), "splice") != 30000)
		die("splice");
	return check(splice(p[0], NULL, fd, NULL, 30000, 0), "splice");
}

static size_t by_zerocopy(int fd)
{
	int one = 1;

	check(setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof(one)), "SO_ZEROCOPY");
	return check(send(fd, bytes(60000), 60000, MSG_ZEROCOPY), "send");
}

/* IORING_OP_SEND with the raw interface: one entry, one wait. */
static size_t by_io_uring(int fd)
{
	struct io_uring_params p = { 0 };
	int ring = (int)syscall(SYS_io_uring_setup, 4, &p);
	struct io_uring_sqe *sqes;
	uint8_t *sq, *cq;
	struct io_uring_cqe *cqe;

	if (ring < 0)
		die("io_uring_setup");
	sq = mmap(NULL, p.sq_off.array + p.sq_entries * 4, PROT_READ | PROT_WRITE, MAP_SHARED, ring,
		  IORING_OFF_SQ_RING);
	cq = mmap(NULL, p.cq_off.cqes + p.cq_entries * sizeof(*cqe), PROT_READ | PROT_WRITE,
		  MAP_SHARED, ring, IORING_OFF_CQ_RING);
	sqes = mmap(NULL, p.sq_entries * sizeof(*sqes), PROT_READ | PROT_WRITE, MAP_SHARED, ring,
		    IORING_OFF_SQES);
	if (sq == MAP_FAILED || cq == MAP_FAILED || (void *)sqes == MAP_FAILED)
		die("mmap");
	memset(sqes, 0, sizeof(*sqes));
	sqes[0].opcode = IORING_OP_SEND;
	sqes[0].fd = fd;
	sqes[0].addr = (uintptr_t)bytes(5000);
	sqes[0].len = 5000;
	*(uint32_t *)(sq + p.sq_off.array) = 0;
	atomic_store((_Atomic uint32_t *)(sq + p.sq_off.tail), 1);
	check(syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0),
	      "io_uring_enter");
	cqe = (struct io_uring_cqe *)(cq + p.cq_off.cqes);
	if (cqe->res != 5000) {
		errno = -cqe->res;
		die("io_uring send");
	}
	return 5000;
}

struct sender {
	const char *name;
	size_t (*send)(int fd);
	int family;
	const char *blind; /* hooks that can't see the bytes */
	const char *absent; /* hooks that don't see the call at all */
	bool pages; /* the bytes are pages, never user memory */
	bool mptcp;
};

static const struct sender senders[] = {
	{ "write", by_write, AF_INET, "", "", false, false },
	{ "single_bytes", by_single_bytes, AF_INET, "", "", false, false },
	{ "ipv6", by_write, AF_INET6, "", "", false, false },
	{ "sendto", by_sendto, AF_INET, "", "", false, false },
	{ "writev3", by_writev3, AF_INET, "", "", false, false },
	{ "writev33", by_writev33, AF_INET, "", "", false, false },
	{ "writev1024", by_writev1024, AF_INET, "", "", false, false },
	{ "sendmsg300", by_sendmsg, AF_INET, "", "", false, false },
	{ "sendmmsg", by_sendmmsg, AF_INET, "syscall", "", false, false },
	{ "msg_more", by_more, AF_INET, "", "", false, false },
	{ "large", by_large, AF_INET, "", "", false, false },
	{ "partial", by_partial, AF_INET, "", "", false, false },
	{ "sendfile", by_sendfile, AF_INET, "syscall", "", true, false },
	{ "splice", by_splice, AF_INET, "", "syscall", true, false },
	{ "zerocopy", by_zerocopy, AF_INET, "", "", false, false },
	{ "io_uring", by_io_uring, AF_INET, "", "syscall", false, false },
	{ "mptcp_write", by_write, AF_INET, "", "syscall", false, true },
	{ "mptcp_writev1024", by_writev1024, AF_INET6, "", "syscall", false, true },
	{ "mptcp_large", by_large, AF_INET, "", "syscall", false, true },
	{ "mptcp_partial", by_partial, AF_INET, "", "syscall", false, true },
	{ "unix_write", by_write, AF_UNIX, "", "", false, false },
	{ "unix_sendto", by_sendto, AF_UNIX, "", "", false, false },
	{ "unix_writev1024", by_writev1024, AF_UNIX, "", "", false, false },
	{ "unix_sendmsg300", by_sendmsg, AF_UNIX, "", "", false, false },
	{ "unix_sendmmsg", by_sendmmsg, AF_UNIX, "tp_btf", "", false, false },
	{ "unix_large", by_large, AF_UNIX, "", "", false, false },
	{ "unix_partial", by_partial, AF_UNIX, "", "", false, false },
	{ "unix_sendfile", by_sendfile, AF_UNIX, "tp_btf", "", true, false },
	{ "unix_splice", by_splice, AF_UNIX, "tp_btf", "", true, false },
	{ "unix_io_uring", by_io_uring, AF_UNIX, "tp_btf", "", false, false },
};

/* --- the child --- */

/* What the child says of itself, in shared memory. */
struct word {
	uint64_t before_ns, after_ns;
	size_t sent;
};

/* One with a 0 within, and abstract: no file is left behind. */
static const struct sockaddr_un unix_address = { .sun_family = AF_UNIX, .sun_path = "\0zoo\0name" };
enum { UNIX_ADDRESS_LEN = sizeof(sa_family_t) + 9 };

static int listen_unix(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (const void *)&unix_address, UNIX_ADDRESS_LEN) || listen(fd, 1))
		die("listen");
	return fd;
}

static int listen_on(int family, int protocol, uint16_t *port)
{
	struct sockaddr_in6 a = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	struct sockaddr_in a4 = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr *sa = family == AF_INET6 ? (void *)&a : (void *)&a4;
	socklen_t len = family == AF_INET6 ? sizeof(a) : sizeof(a4);
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, protocol), one = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (fd < 0 || bind(fd, sa, len) || listen(fd, 1) || getsockname(fd, sa, &len))
		die("listen");
	*port = ntohs(family == AF_INET6 ? a.sin6_port : a4.sin_port);
	return fd;
}

static void child(int listener, const struct sender *s, struct word *w)
{
	int fd = accept(listener, NULL, NULL), one = 1;
	char c;

	if (fd < 0)
		die("accept");
	if (s->family != AF_UNIX)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	/* The request: one byte. */
	if (read(fd, &c, 1) != 1)
		die("read");
	w->before_ns = now_ns();
	w->sent = s->send(fd);
	w->after_ns = now_ns();
	shutdown(fd, SHUT_WR);
	while (read(fd, &c, 1) > 0)
		;
	_exit(0);
}

/* --- the parent --- */

struct seen {
	uint8_t *got; /* per stream byte: times it was captured */
	uint8_t *known; /* ... times a record stood for it */
	uint64_t cookie;
	uint32_t first_seq;
	bool unix_name, open, closed;
	unsigned int wrong, twice, outside, records, unsure, early, late;
	pid_t child;
	unsigned int foreign;
	uint64_t min_ns, max_ns;
};

static const uint8_t *data_of(const struct tks_rec *r)
{
	return (const uint8_t *)(r + 1);
}

static void see_bytes(struct seen *s, const struct tks_rec *r)
{
	const uint8_t *data = data_of(r);
	uint32_t off = r->seq - s->first_seq;

	if (off > MAX_BYTES || r->len > MAX_BYTES - off) {
		s->outside++;
		return;
	}
	for (uint32_t i = 0; i < r->len; i++) {
		s->twice += s->known[off + i]++ > 0;
		if (i >= r->cap)
			continue;
		s->got[off + i] = 1;
		s->wrong += data[i] != pattern(off + i);
	}
}

/* The beginning of the connection that is looked at. */
static bool is_ours(const struct seen *s, const struct tks_rec *r)
{
	if (r->state != TKS_CONN_ACCEPTED && r->state != TKS_CONN_MET)
		return false;
	if (!s->unix_name)
		return r->family != AF_UNIX;
	return r->family == AF_UNIX && r->cap == UNIX_ADDRESS_LEN - sizeof(sa_family_t) &&
	       !memcmp(data_of(r), unix_address.sun_path, r->cap);
}

static void on_record(void *ctx, const void *data, size_t size)
{
	const struct tks_rec *r = data;
	struct seen *s = ctx;

	/* What says a unix socket's name may have room behind it. */
	if (size < sizeof(*r) || r->size > size || (r->kind != TKS_REC_CONN && r->size != size))
		s->wrong++;
	if (r->kind == TKS_REC_CONN && !s->open && is_ours(s, r)) {
		s->first_seq = r->seq;
		s->cookie = r->cookie;
		s->open = true;
	}
	/* Without a port there are others' connections, too. */
	if (r->cookie != s->cookie)
		return;
	if (r->kind == TKS_REC_CONN && r->state == TKS_CONN_CLOSED)
		s->closed = true;
	if (r->kind != TKS_REC_TX)
		return;
	s->records++;
	s->unsure += !!(r->flags & TKS_RECF_UNSURE);
	s->foreign += r->pid != (uint32_t)s->child;
	if (!s->min_ns || r->ts_ns < s->min_ns)
		s->min_ns = r->ts_ns;
	if (r->ret_ns > s->max_ns)
		s->max_ns = r->ret_ns;
	see_bytes(s, r);
}

static int connect_unix(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || connect(fd, (const void *)&unix_address, UNIX_ADDRESS_LEN))
		die("connect");
	return fd;
}

static int connect_to(int family, int protocol, uint16_t port)
{
	struct sockaddr_in6 a = { .sin6_family = AF_INET6,
				  .sin6_addr = IN6ADDR_LOOPBACK_INIT,
				  .sin6_port = htons(port) };
	struct sockaddr_in a4 = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				  .sin_port = htons(port) };
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, protocol);

	if (fd < 0 || connect(fd, family == AF_INET6 ? (void *)&a : (void *)&a4,
			      family == AF_INET6 ? sizeof(a) : sizeof(a4)))
		die("connect");
	return fd;
}

/* Reads as the peer would, slowly, with the ring in between; the bytes must be the pattern too. */
static size_t drain(int fd, struct tks_capture *c, struct seen *s)
{
	static uint8_t buf[65536];
	size_t total = 0;
	ssize_t n;

	while ((n = read(fd, buf, sizeof(buf))) > 0) {
		for (ssize_t i = 0; i < n; i++)
			s->wrong += buf[i] != pattern(total + (size_t)i);
		total += (size_t)n;
		tks_capture_poll(c, 0, on_record, s);
	}
	close(fd);
	return total;
}

static bool named(const char *list, const char *hook)
{
	return *list && !strcmp(list, hook);
}

/* Pages have an address only on kernels that tell where they are mapped (CONFIG_KALLSYMS_ALL). */
static bool pages_readable(void)
{
	FILE *f = fopen("/proc/kallsyms", "r");
	char line[256];
	bool found = false;

	while (f && !found && fgets(line, sizeof(line), f))
		found = strstr(line, " vmemmap_base\n") != NULL;
	if (f)
		fclose(f);
	return found;
}

static bool judge(const struct sender *sd, const struct seen *s, const struct word *w,
		  const char *hook)
{
	size_t known = 0, got = 0;

	for (size_t i = 0; i < w->sent; i++) {
		known += s->known[i] == 1;
		got += s->got[i];
	}
	printf("# %s: sent %zu known %zu captured %zu records %u wrong %u twice %u outside %u unsure %u foreign %u%s\n",
	       sd->name, w->sent, known, got, s->records, s->wrong, s->twice, s->outside, s->unsure,
	       s->foreign, s->closed ? "" : " not closed");
	if (!w->sent || s->wrong || s->twice || s->outside || s->foreign || !s->closed)
		return false;
	if (named(sd->absent, hook))
		return !s->records;
	if (s->min_ns < w->before_ns || s->max_ns > w->after_ns || known != w->sent)
		return false;
	return named(sd->blind, hook) || (sd->pages && !pages_readable())
		       ? got == 0
		       : got == w->sent && !s->unsure;
}

/* missed: the kernel refused runs of our programs meanwhile (they were preempted on that CPU). */
static bool run_once(const struct sender *sd, char hook[16], bool *missed)
{
	bool local = sd->family == AF_UNIX;
	struct tks_capture_config cfg = { .nports = !local,
					  .pid = local ? (uint32_t)getpid() : 0,
					  .no_tls = true };
	struct word *w =
		mmap(NULL, sizeof(*w), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct seen s = { .got = calloc(1, MAX_BYTES),
			  .known = calloc(1, MAX_BYTES),
			  .unix_name = local };
	int protocol = sd->mptcp ? IPPROTO_MPTCP : 0, fd, status;
	int listener = local ? listen_unix() : listen_on(sd->family, protocol, &cfg.ports[0]);
	struct tks_capture *c;
	char why[400];
	bool ok;

	if (!s.got || !s.known || w == MAP_FAILED)
		die("memory");
	if (tks_capture_open(&cfg, &c, why, sizeof(why))) {
		printf("# %s\n", why);
		close(listener);
		return false;
	}
	sscanf(strstr(tks_capture_hooks(c), local ? "unix=" : "send=") + 5, "%15s", hook);
	s.child = fork();
	if (!s.child)
		child(listener, sd, w);
	fd = local ? connect_unix() : connect_to(sd->family, protocol, cfg.ports[0]);
	if (write(fd, "x", 1) != 1)
		die("write");
	drain(fd, c, &s);
	waitpid(s.child, &status, 0);
	for (int i = 0; i < 50 && !s.closed; i++)
		tks_capture_poll(c, 20, on_record, &s);
	ok = WIFEXITED(status) && !WEXITSTATUS(status) && judge(sd, &s, w, hook);
	*missed = tks_capture_unix_misses(c) > 0;
	tks_capture_close(c);
	close(listener);
	munmap(w, sizeof(*w));
	free(s.got);
	free(s.known);
	return ok;
}

/* What the kernel refuses to show is no fault of the capture's, as long as it is known. */
static bool run(const struct sender *sd, char hook[16])
{
	bool missed = false, ok = false;

	for (int i = 0; i < 5 && !ok && (!i || missed); i++) {
		if (i)
			printf("# %s: calls were missed: again\n", sd->name);
		ok = run_once(sd, hook, &missed);
	}
	return ok;
}

static bool asked_for(const char *name, int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], name))
			return true;
	}
	return argc < 2;
}

int main(int argc, char **argv)
{
	unsigned int n = 0, failed = 0;
	char hook[16] = "none";

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (size_t i = 0; i < sizeof(senders) / sizeof(senders[0]); i++) {
		bool ok;

		if (!asked_for(senders[i].name, argc, argv))
			continue;
		fflush(stdout);
		ok = run(&senders[i], hook);
		failed += !ok;
		printf("%sok %u - zoo.%s.%s\n", ok ? "" : "not ", ++n, hook, senders[i].name);
	}
	printf("1..%u\n", n);
	return failed || !n;
}
