/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Streams chat completions through NSS, a thread a connection.
 *
 * usage: nss_server PORT WITNESS-LOG DATABASE      "-": no TLS
 *
 * DATABASE is a folder with NSS's databases, without a password, that hold a certificate and key named "tls". Every
 * event is one PR_Write, over plaintext too.
 */
#include <cert.h>
#include <keyhi.h>
#include <nss.h>
#include <pk11pub.h>
#include <private/pprio.h>
#include <prerror.h>
#include <prio.h>
#include <ssl.h>

#include "chat.h"

struct connection {
	int peer;
	PRFileDesc *fd;
};

static CERTCertificate *certificate; /* NULL: no TLS */
static SECKEYPrivateKey *key;

static ssize_t nss_read(void *io, void *data, size_t n)
{
	return PR_Read(((struct connection *)io)->fd, data, (PRInt32)n);
}

static int nss_write(void *io, const char *data, size_t n)
{
	return PR_Write(((struct connection *)io)->fd, data, (PRInt32)n) == (PRInt32)n;
}

static void *serve(void *arg)
{
	static const struct chat_io ops = { nss_read, nss_write };
	struct connection *c = arg;

	chat_serve(&ops, c, c->peer);
	PR_Close(c->fd);
	free(c);
	return NULL;
}

static void secure(struct connection *c)
{
	PRFileDesc *fd = SSL_ImportFD(NULL, c->fd);

	if (!fd || SSL_OptionSet(fd, SSL_SECURITY, PR_TRUE) || SSL_OptionSet(fd, SSL_HANDSHAKE_AS_SERVER, PR_TRUE) ||
	    SSL_ConfigServerCert(fd, certificate, key, NULL, 0) || SSL_ResetHandshake(fd, PR_TRUE))
		errx(1, "no TLS on a socket: error %d", PR_GetError());
	c->fd = fd;
}

int main(int argc, char **argv)
{
	if (argc != 4)
		errx(2, "usage: nss_server PORT WITNESS-LOG DATABASE");
	if (strcmp(argv[3], "-")) {
		if (NSS_Init(argv[3]) || SSL_ConfigServerSessionIDCache(0, 0, 0, NULL))
			errx(1, "%s: error %d", argv[3], PR_GetError());
		certificate = PK11_FindCertFromNickname("tls", NULL);
		key = certificate ? PK11_FindKeyByAnyCert(certificate, NULL) : NULL;
		if (!key)
			errx(1, "%s has no key named tls: error %d", argv[3], PR_GetError());
	}
	int listener = chat_listen(argv[1], argv[2], 0);

	for (;;) {
		struct connection *c = calloc(1, sizeof(*c));
		pthread_t thread;

		if (!c)
			err(1, NULL);
		c->fd = PR_ImportTCPSocket(chat_accept(listener, &c->peer));
		if (certificate)
			secure(c);
		if (pthread_create(&thread, NULL, serve, c))
			errx(1, "no thread");
		pthread_detach(thread);
	}
}
