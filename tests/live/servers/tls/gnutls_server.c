/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Streams chat completions through GnuTLS, a thread a connection.
 *
 * usage: gnutls_server PORT WITNESS-LOG PEM send|cork      PEM "-": no TLS
 *
 * send: gnutls_record_send for each event. cork: two gnutls_record_send in a cork, which leave with the uncork.
 */
#include <gnutls/gnutls.h>

#include "chat.h"

struct connection {
	int fd, peer;
	gnutls_session_t session;
};

static int cork, secure;
static gnutls_certificate_credentials_t credentials;
static gnutls_priority_t priority;

static ssize_t plain_read(void *io, void *data, size_t n)
{
	return read(((struct connection *)io)->fd, data, n);
}

static int plain_write(void *io, const char *data, size_t n)
{
	return send(((struct connection *)io)->fd, data, n, MSG_NOSIGNAL) == (ssize_t)n;
}

static ssize_t tls_read(void *io, void *data, size_t n)
{
	struct connection *c = io;
	ssize_t got;

	do
		got = gnutls_record_recv(c->session, data, n);
	while (got == GNUTLS_E_INTERRUPTED || got == GNUTLS_E_AGAIN);
	return got;
}

static int tls_write(void *io, const char *data, size_t n)
{
	struct connection *c = io;

	if (!cork)
		return gnutls_record_send(c->session, data, n) == (ssize_t)n;
	size_t half = n / 2;

	gnutls_record_cork(c->session);
	if (gnutls_record_send(c->session, data, half) != (ssize_t)half ||
	    gnutls_record_send(c->session, data + half, n - half) != (ssize_t)(n - half))
		return 0;
	return gnutls_record_uncork(c->session, GNUTLS_RECORD_WAIT) >= 0;
}

static void *serve(void *arg)
{
	static const struct chat_io tls = { tls_read, tls_write }, plain = { plain_read, plain_write };
	struct connection *c = arg;
	int status = 0;

	if (secure) {
		gnutls_init(&c->session, GNUTLS_SERVER);
		gnutls_priority_set(c->session, priority);
		gnutls_credentials_set(c->session, GNUTLS_CRD_CERTIFICATE, credentials);
		gnutls_transport_set_int(c->session, c->fd);
		do
			status = gnutls_handshake(c->session);
		while (status < 0 && !gnutls_error_is_fatal(status));
	}
	if (status >= 0)
		chat_serve(secure ? &tls : &plain, c, c->peer);
	if (secure)
		gnutls_deinit(c->session);
	close(c->fd);
	free(c);
	return NULL;
}

int main(int argc, char **argv)
{
	if (argc != 5)
		errx(2, "usage: gnutls_server PORT WITNESS-LOG PEM send|cork");
	cork = !strcmp(argv[4], "cork");
	secure = strcmp(argv[3], "-") != 0;
	if (secure) {
		gnutls_certificate_allocate_credentials(&credentials);
		if (gnutls_certificate_set_x509_key_file(credentials, argv[3], argv[3], GNUTLS_X509_FMT_PEM) < 0)
			errx(1, "%s is no certificate with its key", argv[3]);
		gnutls_priority_init(&priority, NULL, NULL);
	}
	int listener = chat_listen(argv[1], argv[2], 0);

	for (;;) {
		struct connection *c = calloc(1, sizeof(*c));
		pthread_t thread;

		if (!c)
			err(1, NULL);
		c->fd = chat_accept(listener, &c->peer);
		if (pthread_create(&thread, NULL, serve, c))
			errx(1, "no thread");
		pthread_detach(thread);
	}
}
