/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the C servers have in common: reading a request, the pieces of its answer, the witness log.
 * They answer and log as app.py says.
 */
#ifndef CHAT_H
#define CHAT_H

#include <arpa/inet.h>
#include <err.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CHAT_REQUEST_MAX = 8192, CHAT_PAD_MAX = 8192, CHAT_PIECE_MAX = CHAT_PAD_MAX + 1024, CHAT_TOKENS_MAX = 4096 };
enum { CHAT_FRAME_MIN = 64, CHAT_FRAME_MAX = 16384 };

/* A piece of the answer, as a chunk of HTTP. */
struct chat_piece {
	const char *kind;
	int tokens;
	int64_t before, after;
};

/* One request, and how far its answer is. */
struct chat {
	char model[64], id[128];
	int total, usage, pad, peer; /* pad: bytes that each token's text ends with */
	double gap_ms, prefill_ms;
	int64_t due; /* when the next piece is to be written */
	int next, pieces;
	struct chat_piece piece[CHAT_TOKENS_MAX + 4];
};

static FILE *chat_log;
static char chat_padding[CHAT_PAD_MAX + 1];

static inline int64_t chat_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

static inline void chat_sleep(int64_t until)
{
	struct timespec ts = { until / 1000000000, until % 1000000000 };

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL);
}

/* Whether the n bytes hold a whole request, and how long it is (else 0). The buffer has room for a zero. */
static inline size_t chat_whole(char *data, size_t n)
{
	const char *end, *length;

	data[n] = 0;
	end = strstr(data, "\r\n\r\n");
	length = strcasestr(data, "\r\ncontent-length:");
	if (!end || !length || length > end)
		return 0;
	size_t all = (size_t)(end + 4 - data) + strtoul(length + 17, NULL, 10);

	if (all > CHAT_REQUEST_MAX)
		errx(1, "a request of %zu bytes", all);
	return n >= all ? all : 0;
}

static inline double chat_number(const char *json, const char *name, double otherwise)
{
	const char *at = strstr(json, name);

	return at ? strtod(at + strlen(name), NULL) : otherwise;
}

/* Begins the answer to a whole request. */
static inline void chat_begin(struct chat *c, const char *request, int peer)
{
	static int number;
	const char *model = strstr(request, "\"model\":"), *usage = strstr(request, "\"include_usage\":");

	memset(c, 0, sizeof(*c));
	snprintf(c->model, sizeof(c->model), "tiny");
	if (model)
		sscanf(model + 8, " \"%63[^\"]", c->model);
	snprintf(c->id, sizeof(c->id), "chatcmpl-%s-%d", c->model, __atomic_add_fetch(&number, 1, __ATOMIC_RELAXED));
	c->total = (int)chat_number(request, "\"max_tokens\":", 16);
	if (c->total > CHAT_TOKENS_MAX)
		errx(1, "%d tokens asked for", c->total);
	c->gap_ms = chat_number(request, "\"gap_ms\":", 20);
	c->prefill_ms = chat_number(request, "\"prefill_ms\":", 30);
	c->pad = (int)chat_number(request, "\"pad\":", 0);
	if (c->pad > CHAT_PAD_MAX)
		errx(1, "padding of %d bytes", c->pad);
	c->usage = usage && !strncmp(usage + 16 + strspn(usage + 16, " "), "true", 4);
	c->peer = peer;
	c->pieces = 1 + c->total + 1 + c->usage + 1;
	c->due = chat_now();
}

static inline int chat_done(const struct chat *c)
{
	return c->next == c->pieces;
}

/* An event of the answer; returns its length. */
static inline int chat_event(const struct chat *c, int n, char *out, size_t size)
{
	char body[CHAT_PIECE_MAX - 256];

	if (n == 0)
		snprintf(body, sizeof(body), "[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]");
	else if (n <= c->total)
		snprintf(body, sizeof(body), "[{\"index\":0,\"delta\":{\"content\":\"%s:%d %.*s\"}}]", c->model, n - 1,
			 c->pad, chat_padding);
	else if (n == c->total + 1)
		snprintf(body, sizeof(body), "[{\"index\":0,\"delta\":{},\"finish_reason\":\"length\"}]");
	else if (n == c->pieces - 1)
		return snprintf(out, size, "data: [DONE]\n\n");
	else
		snprintf(body, sizeof(body), "[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":%d,\"total_tokens\":%d}",
			 c->total, c->total + 7);
	return snprintf(out, size, "data: {\"id\":\"%s\",\"object\":\"chat.completion.chunk\",\"created\":1,"
			"\"model\":\"%s\",\"choices\":%s}\n\n", c->id, c->model, body);
}

static inline const char *chat_kind(const struct chat *c, int n)
{
	if (n == 0)
		return "role";
	if (n <= c->total)
		return "token";
	if (n == c->total + 1)
		return "finish";
	return n == c->pieces - 1 ? "done" : "usage";
}

/* Makes the next piece and notes the time: the caller writes it at once. Returns its length; due is the next one's. */
static inline size_t chat_next(struct chat *c, char *out)
{
	char event[CHAT_PIECE_MAX];
	int n = c->next++, length = chat_event(c, n, event, sizeof(event));
	struct chat_piece *p = &c->piece[n];

	length = sprintf(out, "%s%x\r\n%s\r\n%s", n ? "" : "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
			 "Transfer-Encoding: chunked\r\n\r\n", length, event, chat_done(c) ? "0\r\n\r\n" : "");
	*p = (struct chat_piece){ chat_kind(c, n), n > 0 && n <= c->total, 0, 0 };
	if (n == 0)
		c->due += (int64_t)(c->prefill_ms * 1e6);
	else if (n < c->total)
		c->due += (int64_t)(c->gap_ms * (500 + (n - 1) * 377 % 1001) * 1e3);
	p->before = chat_now();
	return (size_t)length;
}

/* The bytes of the piece made last are with the kernel. */
static inline void chat_sent(struct chat *c)
{
	c->piece[c->next - 1].after = chat_now();
}

/* Writes the request's log. */
static inline void chat_end(const struct chat *c)
{
	flockfile(chat_log);
	for (int i = 0; i < c->pieces; i++) {
		const struct chat_piece *p = &c->piece[i];

		fprintf(chat_log, "{\"request\":\"%s\",\"id\":\"%s\",\"peer\":%d,\"model\":\"%s\",\"kind\":\"%s\",\"choice\":0,"
			"\"tokens\":%d,\"before_ns\":%lld,\"after_ns\":%lld}\n", c->id, c->id, c->peer, c->model, p->kind,
			p->tokens, (long long)p->before, (long long)p->after);
	}
	fprintf(chat_log, "{\"request\":\"%s\",\"id\":\"%s\",\"peer\":%d,\"model\":\"%s\",\"kind\":\"end\","
		"\"outcome\":\"done\",\"completion_tokens\":%d}\n", c->id, c->id, c->peer, c->model, c->total);
	fflush(chat_log);
	funlockfile(chat_log);
}

/* PORT of 127.0.0.1, or [ADDRESS]:PORT. Returns the length; the fields that follow the family are the same. */
static inline socklen_t chat_address(const char *where, struct sockaddr_in6 *addr)
{
	char text[64];
	int port;

	*addr = (struct sockaddr_in6){ .sin6_family = AF_INET6 };
	if (sscanf(where, "[%63[^]]]:%d", text, &port) == 2 && inet_pton(AF_INET6, text, &addr->sin6_addr) == 1) {
		addr->sin6_port = htons((uint16_t)port);
		return sizeof(*addr);
	}
	*(struct sockaddr_in *)addr = (struct sockaddr_in){ .sin_family = AF_INET,
							    .sin_port = htons((uint16_t)atoi(where)),
							    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	return sizeof(struct sockaddr_in);
}

/* Opens the log, and returns a socket that listens there. sndbuf: of its connections, or 0. */
static inline int chat_listen(const char *where, const char *log, int sndbuf)
{
	struct sockaddr_in6 addr;
	socklen_t size = chat_address(where, &addr);
	int fd = socket(addr.sin6_family, SOCK_STREAM, 0), on = 1;

	memset(chat_padding, 'x', CHAT_PAD_MAX);
	chat_log = fopen(log, "w");
	if (!chat_log)
		err(1, "%s", log);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (sndbuf)
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &sndbuf, sizeof(sndbuf));
	if (bind(fd, (struct sockaddr *)&addr, size) || listen(fd, 128))
		err(1, "port %s", where);
	return fd;
}

static inline int chat_accept(int listener, int *peer)
{
	struct sockaddr_in6 addr;
	socklen_t size = sizeof(addr);
	int fd = accept(listener, (struct sockaddr *)&addr, &size);

	if (fd < 0)
		err(1, "accept");
	*peer = ntohs(addr.sin6_port); /* IPv4 has it in the same place */
	return fd;
}

/*
 * A thread a connection: read and write are the transport's (0 or less: the connection is over; write writes all).
 */
struct chat_io {
	ssize_t (*read)(void *io, void *data, size_t n);
	int (*write)(void *io, const char *data, size_t n);
};

/* The CPU time of this thread. */
static inline int64_t chat_cpu(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

/*
 * Benchmarks: `burst` token frames of `frame` bytes, each in one write, as fast as they go; the log tells what they took.
 * The answer ends with the connection.
 */
static inline void chat_burst(const struct chat_io *ops, void *io, const char *request)
{
	static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n",
			  before[] = "data: {\"choices\":[{\"delta\":{\"content\":\"", after[] = "\"}}]}\n\n",
			  done[] = "data: [DONE]\n\n";
	int count = (int)chat_number(request, "\"burst\": ", 0), n = (int)chat_number(request, "\"frame\": ", 0);
	char frame[CHAT_FRAME_MAX];

	if (n < CHAT_FRAME_MIN || n > CHAT_FRAME_MAX)
		errx(1, "frames of %d bytes asked for", n);
	memset(frame, 'x', (size_t)n);
	memcpy(frame, before, sizeof(before) - 1);
	memcpy(frame + n - (sizeof(after) - 1), after, sizeof(after) - 1);
	if (!ops->write(io, head, sizeof(head) - 1))
		errx(1, "the client has gone");
	int64_t wall = chat_now(), cpu = chat_cpu();

	for (int i = 0; i < count; i++)
		if (!ops->write(io, frame, (size_t)n))
			errx(1, "the client has gone");
	cpu = chat_cpu() - cpu;
	wall = chat_now() - wall;
	ops->write(io, done, sizeof(done) - 1);
	fprintf(chat_log, "{\"kind\":\"burst\",\"frames\":%d,\"wall_ns\":%lld,\"cpu_ns\":%lld}\n", count, (long long)wall,
		(long long)cpu);
	fflush(chat_log);
}

static inline void chat_serve(const struct chat_io *ops, void *io, int peer)
{
	char data[CHAT_REQUEST_MAX + 1], piece[CHAT_PIECE_MAX + 256];
	struct chat *c = malloc(sizeof(*c));
	size_t have = 0, whole;

	if (!c)
		err(1, NULL);
	for (;;) {
		while (!(whole = chat_whole(data, have))) {
			ssize_t n = ops->read(io, data + have, CHAT_REQUEST_MAX - have);

			if (n <= 0)
				goto out;
			have += (size_t)n;
		}
		if (strstr(data, "\"burst\": ")) {
			chat_burst(ops, io, data);
			break;
		}
		chat_begin(c, data, peer);
		memmove(data, data + whole, have -= whole);
		while (!chat_done(c)) {
			chat_sleep(c->due);
			if (!ops->write(io, piece, chat_next(c, piece)))
				goto out;
			chat_sent(c);
		}
		chat_end(c);
	}
out:
	free(c);
}

#endif
