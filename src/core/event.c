// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Ring records to events. The only place in the core that knows the record's layout; whatever a
 * record says is checked here, so that everything behind may rely on it.
 */
#include "tokensnoop/event.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "tokensnoop/record.h"

static bool sizes_agree(const struct tks_rec *r, size_t size)
{
	if (r->size > size || r->size < sizeof(*r))
		return false;
	if (r->cap > TKS_DATA_CAP || r->cap > r->len || r->cap > r->size - sizeof(*r))
		return false;
	if (r->kind == TKS_REC_CONN && r->family == AF_UNIX)
		return r->len == r->cap && r->len <= TKS_UNIX_PATH;
	return (r->kind != TKS_REC_CONN && r->kind != TKS_REC_TLS_FREE) || !r->len;
}

static bool is_tls(const struct tks_rec *r)
{
	return r->kind >= TKS_REC_TLS_TX && r->kind <= TKS_REC_TLS_FREE;
}

static bool tls_fields_sane(const struct tks_rec *r)
{
	if (!r->obj || !r->pid || r->state > TKS_TLS_GO)
		return false;
	return r->state || r->kind == TKS_REC_TLS_FREE;
}

static bool fields_sane(const struct tks_rec *r)
{
	if (!memchr(r->comm, 0, sizeof(r->comm)))
		return false;
	if (is_tls(r))
		return tls_fields_sane(r);
	if (r->kind < TKS_REC_TX || r->kind > TKS_REC_CONN)
		return false;
	if (r->family != AF_INET && r->family != AF_INET6 && r->family != AF_UNIX)
		return false;
	if (!r->cookie && (r->kind != TKS_REC_RX || !(r->flags & TKS_RECF_LISTENER)))
		return false;
	if (r->state == TKS_CONN_MET && r->family != AF_UNIX)
		return false;
	return r->kind != TKS_REC_CONN ||
	       (r->state >= TKS_CONN_ACCEPTED && r->state <= TKS_CONN_MET);
}

static struct tks_endpoint endpoint(uint16_t family, uint16_t port, const uint8_t *addr)
{
	struct tks_endpoint ep = { .family = family, .port = port };

	memcpy(ep.addr, addr, family == AF_INET ? 4 : sizeof(ep.addr));
	return ep;
}

static void decode_common(const struct tks_rec *r, struct tks_event *ev)
{
	*ev = (struct tks_event){
		.ts_ns = r->ts_ns,
		.conn = r->cookie,
		.netns = r->netns,
		.local = endpoint(r->family, r->lport, r->laddr),
		.peer = endpoint(r->family, r->rport, r->raddr),
		.proc = { .pid = r->pid, .tid = r->tid, .cgroup = r->cgroup },
		.lost = r->lost,
		.obj = r->obj,
		.call = r->kind == TKS_REC_CONN ? 0 : r->rcv_seq,
	};
	memcpy(ev->proc.comm, r->comm, sizeof(ev->proc.comm));
}

static void decode_data(const struct tks_rec *r, const uint8_t *data, struct tks_event *ev)
{
	ev->kind = TKS_EV_DATA;
	ev->dir = r->kind == TKS_REC_TX ? TKS_TX : TKS_RX;
	ev->ret_ns = r->kind == TKS_REC_TX ? r->ret_ns : 0;
	ev->seq = r->seq;
	ev->len = r->len;
	ev->cap = r->cap;
	ev->data = data;
	ev->unsure = r->flags & TKS_RECF_UNSURE;
	ev->kernel_tls = r->flags & TKS_RECF_KERNEL_TLS;
}

static void decode_tls(const struct tks_rec *r, const uint8_t *data, struct tks_event *ev)
{
	ev->conn = 0;
	ev->local = ev->peer = (struct tks_endpoint){ .family = 0 };
	ev->kind = TKS_EV_PLAIN;
	ev->dir = r->kind == TKS_REC_TLS_RX ? TKS_RX : TKS_TX;
	if (r->kind == TKS_REC_TLS_OUT)
		ev->kind = TKS_EV_CIPHER;
	if (r->kind == TKS_REC_TLS_FREE)
		ev->kind = TKS_EV_OBJ_GONE;
	ev->seq = r->seq;
	ev->len = r->len;
	ev->cap = r->cap;
	ev->data = data;
	ev->asked = r->err;
	ev->lib = r->state;
	ev->cont = r->flags & TKS_RECF_CONT;
	ev->again = r->flags & TKS_RECF_AGAIN;
}

static void decode_conn(const struct tks_rec *r, const uint8_t *name, struct tks_event *ev)
{
	switch (r->state) {
	case TKS_CONN_ACCEPTED:
	case TKS_CONN_CONNECTED:
	case TKS_CONN_MET:
		ev->kind = TKS_EV_OPEN;
		ev->role = r->state == TKS_CONN_CONNECTED ? TKS_ROLE_CLIENT : TKS_ROLE_SERVER;
		ev->met = r->state == TKS_CONN_MET;
		ev->cap = r->cap;
		ev->data = name;
		break;
	case TKS_CONN_PEER_FIN:
		ev->kind = TKS_EV_FIN;
		ev->dir = TKS_RX;
		ev->seq = r->rcv_seq;
		return;
	case TKS_CONN_LOCAL_FIN:
		ev->kind = TKS_EV_FIN;
		ev->dir = TKS_TX;
		ev->seq = r->seq;
		return;
	case TKS_CONN_CLOSED:
		ev->kind = TKS_EV_CLOSE;
		ev->seq_known = true;
		ev->err = r->err;
		break;
	}
	ev->tx_seq = r->seq;
	ev->rx_seq = r->rcv_seq;
}

int tks_event_decode(const void *rec, size_t size, struct tks_event *ev)
{
	struct tks_rec r;

	if (size < sizeof(r))
		return -EBADMSG;
	memcpy(&r, rec, sizeof(r));
	if (!sizes_agree(&r, size) || !fields_sane(&r))
		return -EBADMSG;
	decode_common(&r, ev);
	if (is_tls(&r))
		decode_tls(&r, (const uint8_t *)rec + sizeof(r), ev);
	else if (r.kind == TKS_REC_CONN)
		decode_conn(&r, (const uint8_t *)rec + sizeof(r), ev);
	else
		decode_data(&r, (const uint8_t *)rec + sizeof(r), ev);
	return 0;
}

char *tks_endpoint_str(const struct tks_endpoint *ep, char *buf)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff }; /* RFC 4291, 2.5.5.2 */
	bool v6 = ep->family == AF_INET6;
	const uint8_t *addr = ep->addr;
	char text[INET6_ADDRSTRLEN];

	if (ep->family == AF_UNIX) {
		snprintf(buf, TKS_ENDPOINT_STR, "unix:%s", ep->name ? ep->name : "");
		return buf;
	}
	if (!v6 && ep->family != AF_INET) {
		snprintf(buf, TKS_ENDPOINT_STR, "?");
		return buf;
	}
	if (v6 && !memcmp(addr, mapped, sizeof(mapped))) {
		addr += sizeof(mapped);
		v6 = false;
	}
	inet_ntop(v6 ? AF_INET6 : AF_INET, addr, text, sizeof(text));
	snprintf(buf, TKS_ENDPOINT_STR, v6 ? "[%s]:%u" : "%s:%u", text, ep->port);
	return buf;
}

void tks_unix_name(const uint8_t *path, size_t n, char *out)
{
	bool abstract = n && !path[0];
	size_t i;

	for (i = 0; i < n && (abstract || path[i]); i++) {
		if (!path[i])
			out[i] = '@';
		else
			out[i] = path[i] < 0x20 || path[i] >= 0x7f ? '?' : (char)path[i];
	}
	out[i] = 0;
}
