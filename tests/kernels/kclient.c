// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The smallest client of an LLM server, for guests without Python: posts chat requests one after
 * another over one connection and reads each answer to its end, chunked or not.
 *
 * usage: kclient PORT COUNT [KEY=VALUE...]     keys of the request's JSON object; a value that is a
 * number, true, false or an object goes unquoted
 * KCLIENT_PATH=/v1/completions                 another path
 * KCLIENT_TLS=1                                over TLS; the certificate is not looked at
 *
 * Prints "STATUS BODY-BYTES" for each answer. Exit status 0 only if every answer was 200 and came
 * to its end. While nobody listens it tries again, for ten seconds.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { TRIES = 100, TRY_MS = 100, BODY_MAX = 4096 };

struct answer {
	int status;
	long length; /* as announced; -1: to the connection's end */
	bool chunked, close, ended;
	size_t body;
};

static ssize_t tls_read(void *ssl, char *to, size_t n)
{
	int got = SSL_read(ssl, to, (int)n);

	return got > 0 ? got : 0;
}

static ssize_t tls_write(void *ssl, const char *from, size_t n)
{
	int sent = SSL_write(ssl, from, (int)n);

	return sent > 0 ? sent : 0;
}

static int tls_close(void *ssl)
{
	close(SSL_get_fd(ssl));
	SSL_free(ssl);
	return 0;
}

/* The connection that fd is, over TLS if that is wanted; NULL: none came about. */
static FILE *talk(int fd)
{
	static SSL_CTX *context;
	cookie_io_functions_t io = { .read = tls_read, .write = tls_write, .close = tls_close };
	SSL *ssl;

	if (!getenv("KCLIENT_TLS"))
		return fdopen(fd, "r+");
	if (!context)
		context = SSL_CTX_new(TLS_client_method());
	ssl = SSL_new(context);
	if (!ssl || !SSL_set_fd(ssl, fd) || SSL_connect(ssl) != 1)
		return NULL;
	return fopencookie(ssl, "r+", io);
}

static FILE *dial(int port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	struct timespec wait = { .tv_nsec = TRY_MS * 1000000L };

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	for (int i = 0; i < TRIES; i++) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);

		if (fd >= 0 && !connect(fd, (struct sockaddr *)&to, sizeof(to)))
			return talk(fd);
		if (fd >= 0)
			close(fd);
		nanosleep(&wait, NULL);
	}
	return NULL;
}

static bool bare(const char *value)
{
	char *end;

	strtod(value, &end);
	return (end != value && !*end) || !strcmp(value, "true") || !strcmp(value, "false") ||
	       *value == '{';
}

/* The request's body; exits if it doesn't fit. */
static void compose(char *body, size_t size, char **pairs)
{
	size_t n = (size_t)snprintf(body, size,
				    "{\"model\":\"truth\",\"messages\":[{\"role\":\"user\","
				    "\"content\":\"Hi\"}]");

	for (; *pairs; pairs++) {
		char *value = strchr(*pairs, '=');
		const char *quote;

		if (!value) {
			fprintf(stderr, "kclient: not KEY=VALUE: %s\n", *pairs);
			exit(2);
		}
		*value++ = '\0';
		quote = bare(value) ? "" : "\"";
		n += (size_t)snprintf(body + n, size - n, ",\"%s\":%s%s%s", *pairs, quote, value,
				      quote);
		value[-1] = '=';
		if (n + 2 > size) {
			fprintf(stderr, "kclient: the request is too long\n");
			exit(2);
		}
	}
	strcpy(body + n, "}");
}

static bool post(FILE *conn, const char *body)
{
	const char *path = getenv("KCLIENT_PATH");
	char text[BODY_MAX + 512];
	int n = snprintf(text, sizeof(text),
			 "POST %s HTTP/1.1\r\nHost: localhost\r\n"
			 "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
			 path ? path : "/v1/chat/completions", strlen(body), body);

	return n > 0 && (size_t)n < sizeof(text) && fwrite(text, (size_t)n, 1, conn) == 1 &&
	       !fflush(conn);
}

static bool read_head(FILE *conn, struct answer *a)
{
	char line[4096];

	if (!fgets(line, sizeof(line), conn) || sscanf(line, "HTTP/1.%*d %d", &a->status) != 1)
		return false;
	while (fgets(line, sizeof(line), conn)) {
		if (!strcmp(line, "\r\n"))
			return true;
		if (!strncasecmp(line, "content-length:", 15))
			a->length = atol(line + 15);
		else if (!strncasecmp(line, "transfer-encoding:", 18))
			a->chunked = strstr(line, "chunked");
		else if (!strncasecmp(line, "connection:", 11))
			a->close = strcasestr(line, "close");
	}
	return false;
}

/* Reads n bytes, or with n < 0 all that come; false if they didn't come. */
static bool skip(FILE *conn, long n, struct answer *a)
{
	char buf[4096];

	while (n) {
		size_t want = n < 0 || n > (long)sizeof(buf) ? sizeof(buf) : (size_t)n;
		size_t got = fread(buf, 1, want, conn);

		a->body += got;
		if (!got)
			return n < 0;
		if (n > 0)
			n -= (long)got;
	}
	return true;
}

static bool read_chunks(FILE *conn, struct answer *a)
{
	char line[256];
	char *end;

	while (fgets(line, sizeof(line), conn)) {
		unsigned long n = strtoul(line, &end, 16);

		if (end == line)
			return false;
		if (n && !skip(conn, (long)n, a))
			return false;
		/* The line end after a chunk; after the last, no trailers are expected. */
		if (!fgets(line, sizeof(line), conn) || strcmp(line, "\r\n"))
			return false;
		if (!n)
			return true;
	}
	return false;
}

static void read_answer(FILE *conn, struct answer *a)
{
	*a = (struct answer){ .length = -1 };
	if (!read_head(conn, a))
		return;
	if (a->chunked) {
		a->ended = read_chunks(conn, a);
	} else {
		a->ended = skip(conn, a->length, a);
		a->close = a->close || a->length < 0;
	}
}

int main(int argc, char **argv)
{
	char body[BODY_MAX];
	FILE *conn = NULL;
	int bad = 0;

	if (argc < 3) {
		fprintf(stderr, "usage: kclient PORT COUNT [KEY=VALUE...]\n");
		return 2;
	}
	compose(body, sizeof(body), argv + 3);
	for (int i = atoi(argv[2]); i > 0; i--) {
		struct answer a = { .ended = false };

		if (!conn)
			conn = dial(atoi(argv[1]));
		if (!conn) {
			fprintf(stderr, "kclient: nobody listens at port %s\n", argv[1]);
			return 1;
		}
		if (post(conn, body))
			read_answer(conn, &a);
		printf("%d %zu%s\n", a.status, a.body, a.ended ? "" : " cut");
		fflush(stdout);
		bad += a.status != 200 || !a.ended;
		if (a.close || !a.ended) {
			fclose(conn);
			conn = NULL;
		}
	}
	return bad ? 1 : 0;
}
