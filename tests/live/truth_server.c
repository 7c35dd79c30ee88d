// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The ground-truth server: answers POST /v1/chat/completions (and /v1/completions) as an LLM server
 * streams, and logs CLOCK_MONOTONIC before and after each send, so that what a tracer says about a
 * frame can be held against the send that carried its last byte.
 *
 * usage: truth_server PORT LOGFILE      prints "ready" once it listens on 127.0.0.1:PORT
 *
 * Keys of the request's JSON object (found by a simple search, not by a parser):
 *   max_tokens    token frames, default 5          stream       false: one JSON object, no stream
 *   gap_us        mean time between tokens, 2000   prefill_us   time to the first token, 5000
 *   pad           bytes added to each token's text eos          1: finish by a token without text
 *   send_mode     how bytes are sent: write, writev (iovs segments, some of them empty), sendmsg,
 *                 sendto, sendmmsg (three messages a frame), split1 (a byte a send), coalesce
 *                 (`coalesce` token frames in one send), partial (non-blocking, a tiny buffer),
 *                 sendfile, splice, zerocopy, iouring
 *   fault         cut (close without an end), rst (reset), error_frame, no_done; at the token
 *                 number fault_at, default half of max_tokens
 *
 * The log has one JSON object a line, for each send and frame whose last byte it carried (the blank
 * line's; the HTTP chunk's CRLF comes after it): request (numbered over the server), peer (port),
 * nr (of the request on its connection), frame, kind (head, role, token, finish, usage, done,
 * error, body), token (its number, token frames only), before_ns, after_ns, asked, accepted (bytes;
 * -errno). A send that carried no frame's end is logged with kind "part" and no token. When a
 * request is over a line of kind "end" has tokens, usage and the outcome.
 *
 * A thread a connection, blocking sends, no library. A send mode that this kernel refuses ends the
 * connection with a line of kind "unsupported".
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/errqueue.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum {
	REQUEST_MAX = 1 << 20,
	MARKS_MAX = 256, /* frames that wait in the output buffer */
	IOVS_MAX = 1024,
	PAD_MAX = 1 << 18,
	TINY_SNDBUF = 4608,
	BACKLOG = 4096,
};

/* A frame in the output buffer: end is the offset just behind its last byte. */
struct mark {
	size_t end;
	const char *kind;
	int frame;
	int token; /* -1: not a token frame */
};

struct uring {
	int fd;
	unsigned int *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
	void *rings;
	size_t rings_size, sqes_size;
};

/* What the client asked for. */
struct order {
	char mode[16], fault[16], model[64];
	bool completions, stream, eos;
	long max_tokens, gap_us, prefill_us, pad, iovs, coalesce, fault_at;
};

struct conn {
	int fd;
	unsigned int peer;
	int nr;
	uint64_t request;
	char *in;
	size_t in_len;
	/* output: bytes not sent yet, and which frames end in them */
	char *out;
	size_t out_len, out_cap;
	struct mark marks[MARKS_MAX];
	int nmarks;
	int frame;
	bool dead;
	struct uring *ring;
};

static FILE *log_file;
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t request_counter;

static const char *const texts[] = { "Hi",
				     " there",
				     " w\xc3\xb6rld",
				     " \\\"quoted\\\"",
				     "\xe6\x97\xa5\xe6\x9c\xac",
				     "\\n\\n",
				     " data: [DONE]",
				     " {\\\"usage\\\":{\\\"completion_tokens\\\":9}}",
				     "\xf0\x9f\x98\x80",
				     " \\u00e9\\\\",
				     " 0\\r\\n\\r\\n" };

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static void sleep_until(uint64_t t)
{
	struct timespec ts = { .tv_sec = (time_t)(t / 1000000000),
			       .tv_nsec = (long)(t % 1000000000) };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
		;
}

static void *must(void *p)
{
	if (!p) {
		perror("truth_server");
		exit(1);
	}
	return p;
}

/* --- the log --- */

__attribute__((format(printf, 2, 3))) static void log_line(const struct conn *c, const char *fmt,
							   ...)
{
	va_list ap;

	pthread_mutex_lock(&log_lock);
	fprintf(log_file, "{\"request\":%llu,\"peer\":%u,\"nr\":%d,",
		(unsigned long long)c->request, c->peer, c->nr);
	va_start(ap, fmt);
	vfprintf(log_file, fmt, ap);
	va_end(ap);
	fputs("}\n", log_file);
	pthread_mutex_unlock(&log_lock);
}

static void log_send(const struct conn *c, const struct mark *m, uint64_t before, uint64_t after,
		     size_t asked, ssize_t accepted)
{
	char token[32] = "";

	if (m && m->token >= 0)
		snprintf(token, sizeof(token), "\"token\":%d,", m->token);
	log_line(c,
		 "\"kind\":\"%s\",\"frame\":%d,%s\"before_ns\":%llu,\"after_ns\":%llu,"
		 "\"asked\":%zu,\"accepted\":%zd",
		 m ? m->kind : "part", m ? m->frame : c->frame, token, (unsigned long long)before,
		 (unsigned long long)after, asked, accepted);
}

/* Bytes at the front of the output were accepted (or an errno came): logs, and drops them. */
static void account(struct conn *c, uint64_t before, size_t asked, ssize_t n)
{
	uint64_t after = now_ns();
	ssize_t accepted = n < 0 ? -errno : n;
	int ended = 0;

	while (n > 0 && ended < c->nmarks && c->marks[ended].end <= (size_t)n)
		log_send(c, &c->marks[ended++], before, after, asked, accepted);
	if (!ended)
		log_send(c, NULL, before, after, asked, accepted);
	if (n <= 0)
		return;
	c->out_len -= (size_t)n;
	memmove(c->out, c->out + n, c->out_len);
	c->nmarks -= ended;
	memmove(c->marks, c->marks + ended, (size_t)c->nmarks * sizeof(c->marks[0]));
	for (int i = 0; i < c->nmarks; i++)
		c->marks[i].end -= (size_t)n;
}

/* --- send modes: each sends (some of) the output once and accounts for it; -1: the connection is
 * over --- */

static int done(struct conn *c, uint64_t before, size_t asked, ssize_t n)
{
	int err = errno;

	account(c, before, asked, n);
	errno = err;
	return n < 0 && err != EAGAIN && err != EINTR ? -1 : 0;
}

static int send_write(struct conn *c, const struct order *o)
{
	size_t n = c->out_len;
	uint64_t before = now_ns();

	(void)o;
	return done(c, before, n, write(c->fd, c->out, n));
}

/* Cuts n bytes at p into at most max segments, the first of them and every seventh empty. */
static int cut(struct iovec *iov, int max, char *p, size_t n)
{
	size_t filled = (size_t)(max - max / 7 - 1), each, used = 0;
	int i;

	each = filled ? (n + filled - 1) / filled : n;
	for (i = 0; i < max; i++) {
		size_t len = i % 7 == 0 && i < max - 1 ? 0 : each;

		if (len > n - used || i == max - 1)
			len = n - used;
		iov[i] = (struct iovec){ .iov_base = p + used, .iov_len = len };
		used += len;
	}
	return i;
}

static int send_writev(struct conn *c, const struct order *o)
{
	struct iovec iov[IOVS_MAX];
	size_t n = c->out_len;
	int k = cut(iov, (int)o->iovs, c->out, n);
	uint64_t before = now_ns();

	return done(c, before, n, writev(c->fd, iov, k));
}

static int send_sendmsg(struct conn *c, const struct order *o)
{
	struct iovec iov[IOVS_MAX];
	size_t n = c->out_len;
	struct msghdr m = { .msg_iov = iov };
	uint64_t before;

	m.msg_iovlen = (size_t)cut(iov, (int)o->iovs, c->out, n);
	before = now_ns();
	return done(c, before, n, sendmsg(c->fd, &m, MSG_NOSIGNAL));
}

static int send_sendto(struct conn *c, const struct order *o)
{
	size_t n = c->out_len;
	uint64_t before = now_ns();

	(void)o;
	return done(c, before, n, sendto(c->fd, c->out, n, MSG_NOSIGNAL, NULL, 0));
}

static int send_sendmmsg(struct conn *c, const struct order *o)
{
	struct iovec iov[3];
	struct mmsghdr m[3] = { 0 };
	size_t n = c->out_len;
	ssize_t sum = 0;
	uint64_t before;
	int k;

	(void)o;
	iov[0] = (struct iovec){ .iov_base = c->out, .iov_len = n / 3 };
	iov[1] = (struct iovec){ .iov_base = c->out + n / 3, .iov_len = n / 3 };
	iov[2] = (struct iovec){ .iov_base = c->out + n / 3 * 2, .iov_len = n - n / 3 * 2 };
	for (int i = 0; i < 3; i++) {
		m[i].msg_hdr.msg_iov = &iov[i];
		m[i].msg_hdr.msg_iovlen = 1;
	}
	before = now_ns();
	k = sendmmsg(c->fd, m, 3, MSG_NOSIGNAL);
	for (int i = 0; i < k; i++)
		sum += (ssize_t)m[i].msg_len;
	return done(c, before, n, k < 0 ? -1 : sum);
}

static int send_split1(struct conn *c, const struct order *o)
{
	uint64_t before = now_ns();

	(void)o;
	return done(c, before, 1, send(c->fd, c->out, 1, MSG_NOSIGNAL));
}

/* Non-blocking with the smallest buffer there is: accepted in parts, EAGAIN between. */
static int send_partial(struct conn *c, const struct order *o)
{
	struct pollfd p = { .fd = c->fd, .events = POLLOUT };
	int size = TINY_SNDBUF;
	size_t n = c->out_len;
	uint64_t before;
	int ret;

	(void)o;
	setsockopt(c->fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	before = now_ns();
	ret = done(c, before, n, send(c->fd, c->out, n, MSG_NOSIGNAL | MSG_DONTWAIT));
	if (!ret && c->out_len && errno == EAGAIN && poll(&p, 1, -1) < 0)
		return -1;
	return ret;
}

static int send_sendfile(struct conn *c, const struct order *o)
{
	size_t n = c->out_len;
	off_t at = 0;
	uint64_t before;
	int ret = -1, f = memfd_create("truth", 0);

	(void)o;
	if (f >= 0 && write(f, c->out, n) == (ssize_t)n) {
		before = now_ns();
		ret = done(c, before, n, sendfile(c->fd, f, &at, n));
	}
	if (f >= 0)
		close(f);
	return ret;
}

static int send_splice(struct conn *c, const struct order *o)
{
	size_t n = c->out_len < 4096 ? c->out_len : 4096;
	uint64_t before;
	int ret = -1, p[2];

	(void)o;
	if (pipe(p) < 0)
		return -1;
	if (write(p[1], c->out, n) == (ssize_t)n) {
		before = now_ns();
		ret = done(c, before, n, splice(p[0], NULL, c->fd, NULL, n, 0));
	}
	close(p[0]);
	close(p[1]);
	return ret;
}

/* The kernel says by the error queue when it no longer needs the pages. */
static void wait_zerocopy(int fd)
{
	struct pollfd p = { .fd = fd, .events = 0 };
	char control[256];
	struct msghdr m = { .msg_control = control, .msg_controllen = sizeof(control) };

	if (poll(&p, 1, 1000) == 1)
		recvmsg(fd, &m, MSG_ERRQUEUE | MSG_DONTWAIT);
}

static int send_zerocopy(struct conn *c, const struct order *o)
{
	size_t n = c->out_len;
	uint64_t before;
	ssize_t sent;
	int one = 1, err;
	char *copy;

	(void)o;
	if (setsockopt(c->fd, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof(one)))
		return -1;
	copy = must(malloc(n));
	memcpy(copy, c->out, n);
	before = now_ns();
	sent = send(c->fd, copy, n, MSG_NOSIGNAL | MSG_ZEROCOPY);
	err = done(c, before, n, sent);
	if (sent > 0)
		wait_zerocopy(c->fd);
	free(copy);
	return err;
}

static void uring_close(struct uring *r)
{
	if (!r)
		return;
	munmap(r->sqes, r->sqes_size);
	munmap(r->rings, r->rings_size);
	close(r->fd);
	free(r);
}

static struct uring *uring_open(void)
{
	struct io_uring_params p = { 0 };
	struct uring *r;
	char *base;
	int fd = (int)syscall(SYS_io_uring_setup, 4, &p);

	if (fd < 0 || !(p.features & IORING_FEAT_SINGLE_MMAP))
		return NULL;
	r = must(calloc(1, sizeof(*r)));
	r->fd = fd;
	r->rings_size = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
	if (r->rings_size < p.sq_off.array + p.sq_entries * sizeof(unsigned int))
		r->rings_size = p.sq_off.array + p.sq_entries * sizeof(unsigned int);
	r->sqes_size = p.sq_entries * sizeof(struct io_uring_sqe);
	base = mmap(NULL, r->rings_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		    IORING_OFF_SQ_RING);
	r->sqes = mmap(NULL, r->sqes_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, IORING_OFF_SQES);
	if (base == MAP_FAILED || (void *)r->sqes == MAP_FAILED)
		return NULL;
	r->rings = base;
	r->sq_tail = (unsigned int *)(void *)(base + p.sq_off.tail);
	r->sq_mask = (unsigned int *)(void *)(base + p.sq_off.ring_mask);
	r->sq_array = (unsigned int *)(void *)(base + p.sq_off.array);
	r->cq_head = (unsigned int *)(void *)(base + p.cq_off.head);
	r->cq_tail = (unsigned int *)(void *)(base + p.cq_off.tail);
	r->cq_mask = (unsigned int *)(void *)(base + p.cq_off.ring_mask);
	r->cqes = (struct io_uring_cqe *)(void *)(base + p.cq_off.cqes);
	return r;
}

static int send_iouring(struct conn *c, const struct order *o)
{
	size_t n = c->out_len;
	unsigned int tail, head;
	struct uring *r;
	uint64_t before;
	int res;

	(void)o;
	if (!c->ring && !(c->ring = uring_open()))
		return -1;
	r = c->ring;
	tail = *r->sq_tail;
	r->sqes[tail & *r->sq_mask] = (struct io_uring_sqe){ .opcode = IORING_OP_SEND,
							     .fd = c->fd,
							     .addr = (uint64_t)(uintptr_t)c->out,
							     .len = (uint32_t)n,
							     .msg_flags = MSG_NOSIGNAL };
	r->sq_array[tail & *r->sq_mask] = tail & *r->sq_mask;
	__atomic_store_n(r->sq_tail, tail + 1, __ATOMIC_RELEASE);
	before = now_ns();
	if (syscall(SYS_io_uring_enter, r->fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0)
		return -1;
	head = *r->cq_head;
	if (head == __atomic_load_n(r->cq_tail, __ATOMIC_ACQUIRE))
		return -1;
	res = r->cqes[head & *r->cq_mask].res;
	__atomic_store_n(r->cq_head, head + 1, __ATOMIC_RELEASE);
	errno = res < 0 ? -res : 0;
	return done(c, before, n, res < 0 ? -1 : res);
}

static const struct mode {
	const char *name;
	int (*send)(struct conn *c, const struct order *o);
} modes[] = {
	{ "write", send_write },    { "writev", send_writev },	   { "sendmsg", send_sendmsg },
	{ "sendto", send_sendto },  { "sendmmsg", send_sendmmsg }, { "split1", send_split1 },
	{ "coalesce", send_write }, { "partial", send_partial },   { "sendfile", send_sendfile },
	{ "splice", send_splice },  { "zerocopy", send_zerocopy }, { "iouring", send_iouring },
};

static const struct mode *find_mode(const char *name)
{
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
		if (!strcmp(modes[i].name, name))
			return &modes[i];
	return NULL;
}

/* Sends all the output in the order's mode. */
static void flush(struct conn *c, const struct order *o)
{
	const struct mode *m = find_mode(o->mode);

	while (c->out_len && !c->dead) {
		if (!m || m->send(c, o) == 0)
			continue;
		if (errno != EPIPE && errno != ECONNRESET)
			log_line(c, "\"kind\":\"unsupported\",\"mode\":\"%s\",\"errno\":%d",
				 o->mode, errno);
		c->dead = true;
	}
}

/* --- output --- */

static void put(struct conn *c, const char *bytes, size_t n)
{
	if (c->out_len + n > c->out_cap) {
		c->out_cap = (c->out_len + n) * 2;
		c->out = must(realloc(c->out, c->out_cap));
	}
	memcpy(c->out + c->out_len, bytes, n);
	c->out_len += n;
}

static void mark(struct conn *c, const char *kind, int token)
{
	if (c->nmarks < MARKS_MAX)
		c->marks[c->nmarks++] = (struct mark){
			.end = c->out_len, .kind = kind, .frame = c->frame, .token = token
		};
	c->frame++;
}

/* A frame as one HTTP chunk; the mark is at the frame's end, before the chunk's CRLF. */
static void put_frame(struct conn *c, const char *kind, int token, const char *json)
{
	char size[16];
	size_t n = strlen(json) + 8;

	put(c, size, (size_t)snprintf(size, sizeof(size), "%zx\r\n", n));
	put(c, "data: ", 6);
	put(c, json, n - 8);
	put(c, "\n\n", 2);
	mark(c, kind, token);
	put(c, "\r\n", 2);
}

/* One chunk object; choices is the text between the brackets of "choices", usage may be "". */
static void put_object(struct conn *c, const struct order *o, const char *kind, int token,
		       const char *choices, const char *usage)
{
	size_t size = strlen(choices) + strlen(usage) + 512;
	char *json = must(malloc(size));

	snprintf(json, size,
		 "{\"id\":\"%s-truth%llu\",\"object\":\"%s\",\"created\":1,\"model\":\"%s\","
		 "\"choices\":[%s]%s}",
		 o->completions ? "cmpl" : "chatcmpl", (unsigned long long)c->request,
		 o->completions ? "text_completion" : "chat.completion.chunk", o->model, choices,
		 usage);
	put_frame(c, kind, token, json);
	free(json);
}

static void put_token(struct conn *c, const struct order *o, int i)
{
	const char *text = texts[(size_t)i % (sizeof(texts) / sizeof(texts[0]))];
	size_t size = strlen(text) + (size_t)o->pad + 256;
	char *choices = must(malloc(size)), *pad = must(calloc(1, (size_t)o->pad + 1));

	memset(pad, 'x', (size_t)o->pad);
	if (o->completions)
		snprintf(choices, size,
			 "{\"index\":0,\"text\":\"%s%s\",\"logprobs\":null,\"finish_reason\":null}",
			 text, pad);
	else
		snprintf(choices, size,
			 "{\"index\":0,\"delta\":{\"content\":\"%s%s\"},\"finish_reason\":null}",
			 text, pad);
	put_object(c, o, "token", i, choices, "");
	free(pad);
	free(choices);
}

static int usage_tokens(const struct order *o)
{
	return (int)o->max_tokens + o->eos;
}

static void put_end(struct conn *c, const struct order *o)
{
	char choices[160], usage[160];

	if (o->completions)
		snprintf(choices, sizeof(choices),
			 "{\"index\":0,\"text\":\"\",\"finish_reason\":\"%s\"}",
			 o->eos ? "stop" : "length");
	else
		snprintf(choices, sizeof(choices),
			 "{\"index\":0,\"delta\":{},\"finish_reason\":\"%s\"}",
			 o->eos ? "stop" : "length");
	put_object(c, o, "finish", -1, choices, "");
	snprintf(usage, sizeof(usage),
		 ",\"usage\":{\"prompt_tokens\":7,\"total_tokens\":%d,\"completion_tokens\":%d}",
		 7 + usage_tokens(o), usage_tokens(o));
	put_object(c, o, "usage", -1, "", usage);
	if (strcmp(o->fault, "no_done") != 0)
		put_frame(c, "done", -1, "[DONE]");
	put(c, "0\r\n\r\n", 5);
}

/* --- answers --- */

static void answer_head(struct conn *c, const struct order *o)
{
	static const char head[] = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
				   "cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n";

	put(c, head, sizeof(head) - 1);
	mark(c, "head", -1);
	flush(c, o);
}

static void fail_hard(struct conn *c, bool reset)
{
	struct linger l = { .l_onoff = 1, .l_linger = 0 };

	if (reset)
		setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
	c->dead = true;
}

/* Whether the stream ends here, by the fault that was asked for. */
static bool fault(struct conn *c, const struct order *o, int token)
{
	if (token != o->fault_at)
		return false;
	if (!strcmp(o->fault, "cut") || !strcmp(o->fault, "rst")) {
		flush(c, o);
		fail_hard(c, o->fault[0] == 'r');
		return true;
	}
	if (!strcmp(o->fault, "error_frame")) {
		put_frame(c, "error", -1,
			  "{\"error\": {\"message\": \"engine died\", \"type\": "
			  "\"internal_server_error\", \"param\": null, \"code\": 500}}");
		put_frame(c, "done", -1, "[DONE]");
		put(c, "0\r\n\r\n", 5);
		flush(c, o);
		return true;
	}
	return false;
}

static const char *stream_tokens(struct conn *c, const struct order *o)
{
	uint64_t at = now_ns() + (uint64_t)o->prefill_us * 1000;
	long held = 0;

	for (int i = 0; i < o->max_tokens && !c->dead; i++) {
		if (fault(c, o, i))
			return o->fault;
		sleep_until(at);
		/* gaps from half to one and a half of the mean, the same for every request */
		at += (uint64_t)o->gap_us * (uint64_t)(500 + i * 377 % 1001);
		if (i == 0 && !o->completions)
			put_object(
				c, o, "role", -1,
				"{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
				"\"finish_reason\":null}",
				"");
		put_token(c, o, i);
		if (++held < o->coalesce && i + 1 < o->max_tokens)
			continue;
		flush(c, o);
		held = 0;
	}
	if (!c->dead) {
		put_end(c, o);
		flush(c, o);
	}
	return c->dead ? "lost" : "done";
}

static void answer_whole(struct conn *c, const struct order *o, int status, const char *body)
{
	char head[256];
	int n = snprintf(head, sizeof(head),
			 "HTTP/1.1 %d %s\r\ncontent-type: application/json\r\n"
			 "content-length: %zu\r\n\r\n",
			 status, status == 200 ? "OK" : "Not Found", strlen(body));

	put(c, head, (size_t)n);
	put(c, body, strlen(body));
	mark(c, "body", -1);
	flush(c, o);
}

static void answer_json(struct conn *c, const struct order *o)
{
	char body[512];

	snprintf(body, sizeof(body),
		 "{\"id\":\"%s-truth%llu\",\"object\":\"%s\",\"created\":1,\"model\":\"%s\","
		 "\"choices\":[{\"index\":0,%s,\"finish_reason\":\"length\"}],"
		 "\"usage\":{\"prompt_tokens\":7,\"total_tokens\":%d,\"completion_tokens\":%d}}",
		 o->completions ? "cmpl" : "chatcmpl", (unsigned long long)c->request,
		 o->completions ? "text_completion" : "chat.completion", o->model,
		 o->completions ? "\"text\":\"Hi\""
				: "\"message\":{\"role\":\"assistant\",\"content\":\"Hi\"}",
		 7 + usage_tokens(o), usage_tokens(o));
	sleep_until(now_ns() + (uint64_t)o->prefill_us * 1000);
	answer_whole(c, o, 200, body);
}

/* --- requests --- */

static const char *find_key(const char *json, const char *key)
{
	char quoted[32];
	const char *p = json;

	snprintf(quoted, sizeof(quoted), "\"%s\"", key);
	while ((p = strstr(p, quoted))) {
		p += strlen(quoted);
		p += strspn(p, " \t");
		if (*p == ':')
			return p + 1 + strspn(p + 1, " \t");
	}
	return NULL;
}

static long find_int(const char *json, const char *key, long otherwise, long max)
{
	const char *p = find_key(json, key);
	long v = p ? strtol(p, NULL, 10) : otherwise;

	return v < 0 ? 0 : v > max ? max : v;
}

static void find_string(const char *json, const char *key, char *to, size_t size)
{
	const char *p = find_key(json, key);
	size_t n = p && *p == '"' ? strcspn(p + 1, "\"\\") : 0;

	if (n && n < size) {
		memcpy(to, p + 1, n);
		to[n] = '\0';
	}
}

static void read_order(struct order *o, const char *path, const char *json)
{
	const char *stream = find_key(json, "stream");

	*o = (struct order){ .mode = "write", .model = "truth" };
	o->completions = !strncmp(path, "/v1/completions", 15);
	o->stream = !stream || strncmp(stream, "false", 5) != 0;
	find_string(json, "send_mode", o->mode, sizeof(o->mode));
	find_string(json, "fault", o->fault, sizeof(o->fault));
	find_string(json, "model", o->model, sizeof(o->model));
	o->eos = find_int(json, "eos", 0, 1);
	o->max_tokens = find_int(json, "max_tokens", 5, 1000000);
	o->gap_us = find_int(json, "gap_us", 2000, 10000000);
	o->prefill_us = find_int(json, "prefill_us", 5000, 60000000);
	o->pad = find_int(json, "pad", strcmp(o->mode, "partial") ? 0 : 150000, PAD_MAX);
	o->iovs = find_int(json, "iovs", 8, IOVS_MAX);
	o->iovs = o->iovs ? o->iovs : 1;
	o->coalesce = find_int(json, "coalesce", strcmp(o->mode, "coalesce") ? 1 : 4, 64);
	o->fault_at = find_int(json, "fault_at", o->max_tokens / 2, 1000000);
}

static void answer(struct conn *c, const char *path, const char *json)
{
	struct order o;
	const char *outcome = "done";

	read_order(&o, path, json);
	c->frame = 0;
	if (!find_mode(o.mode)) {
		answer_whole(c, &o, 404, "{\"error\":\"no such send_mode\"}");
		return;
	}
	if (o.stream) {
		answer_head(c, &o);
		outcome = stream_tokens(c, &o);
	} else {
		answer_json(c, &o);
	}
	log_line(c, "\"kind\":\"end\",\"tokens\":%ld,\"usage\":%d,\"outcome\":\"%s\"", o.max_tokens,
		 usage_tokens(&o), outcome);
	pthread_mutex_lock(&log_lock);
	fflush(log_file);
	pthread_mutex_unlock(&log_lock);
}

/* Reads until the input holds want bytes; false at the end of the connection. */
static bool fill(struct conn *c, size_t want)
{
	while (c->in_len < want) {
		ssize_t n = read(c->fd, c->in + c->in_len, REQUEST_MAX - c->in_len);

		if (n <= 0 && !(n < 0 && errno == EINTR))
			return false;
		c->in_len += n > 0 ? (size_t)n : 0;
	}
	return true;
}

/* The length of the request's head with its blank line, once it is all there; 0: connection over.
 */
static size_t read_head(struct conn *c)
{
	char *end;

	for (;;) {
		c->in[c->in_len] = '\0';
		end = strstr(c->in, "\r\n\r\n");
		if (end)
			return (size_t)(end - c->in) + 4;
		if (c->in_len == REQUEST_MAX || !fill(c, c->in_len + 1))
			return 0;
	}
}

static const char *header(const char *head, const char *name)
{
	const char *p = strcasestr(head, name);

	return p ? p + strlen(name) + strspn(p + strlen(name), " \t") : NULL;
}

/* One request and its answer; false when the connection is over. */
static bool serve_one(struct conn *c)
{
	static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
	const struct order plain = { .mode = "write" };
	size_t head = read_head(c), body;
	const char *length;
	char path[128] = "", *json;
	bool post;

	if (!head)
		return false;
	c->in[head - 1] = '\0';
	post = sscanf(c->in, "POST %127s", path) == 1;
	length = header(c->in, "\ncontent-length:");
	body = length ? strtoul(length, NULL, 10) : 0;
	if (body >= REQUEST_MAX - head)
		return false;
	if (header(c->in, "\nexpect:") && c->in_len < head + body &&
	    write(c->fd, go_on, sizeof(go_on) - 1) < 0)
		return false;
	if (!fill(c, head + body))
		return false;
	json = must(strndup(c->in + head, body));
	c->in_len -= head + body;
	memmove(c->in, c->in + head + body, c->in_len);
	if (post) {
		c->request = __atomic_add_fetch(&request_counter, 1, __ATOMIC_RELAXED);
		answer(c, path, json);
		c->nr++;
	} else {
		c->request = 0;
		answer_whole(c, &plain, 200, "{\"status\":\"ok\"}");
	}
	free(json);
	return !c->dead;
}

static void *serve(void *arg)
{
	struct conn *c = arg;

	while (serve_one(c))
		;
	uring_close(c->ring);
	close(c->fd);
	free(c->out);
	free(c->in);
	free(c);
	return NULL;
}

static void start(int fd, const struct sockaddr_in *peer)
{
	struct conn *c = must(calloc(1, sizeof(*c)));
	pthread_t thread;
	int one = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	c->fd = fd;
	c->peer = ntohs(peer->sin_port);
	c->in = must(malloc(REQUEST_MAX + 1));
	if (pthread_create(&thread, NULL, serve, c)) {
		close(fd);
		free(c->in);
		free(c);
		return;
	}
	pthread_detach(thread);
}

static int listen_on(int port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof(at)) || listen(fd, BACKLOG)) {
		perror("truth_server");
		exit(1);
	}
	return fd;
}

int main(int argc, char **argv)
{
	struct sockaddr_in peer;
	socklen_t len;
	int fd, one;

	if (argc != 3) {
		fprintf(stderr, "usage: truth_server PORT LOGFILE\n");
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	log_file = fopen(argv[2], "we");
	if (!log_file) {
		perror(argv[2]);
		return 1;
	}
	fd = listen_on(atoi(argv[1]));
	puts("ready");
	fflush(stdout);
	for (;;) {
		len = sizeof(peer);
		one = accept4(fd, (struct sockaddr *)&peer, &len, SOCK_CLOEXEC);
		if (one >= 0)
			start(one, &peer);
		else if (errno != EINTR && errno != ECONNABORTED && errno != EMFILE)
			return 1;
	}
}
