// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Ring records of any bytes. Whatever is taken for an event keeps what event.h promises, and its
 * data lie within the record.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "tokensnoop/event.h"
#include "tokensnoop/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int cond)
{
	if (!cond)
		abort();
}

static bool has_bytes(const struct tks_event *ev)
{
	return ev->kind == TKS_EV_DATA || ev->kind == TKS_EV_PLAIN || ev->kind == TKS_EV_CIPHER;
}

static void check_conn(const struct tks_event *ev)
{
	char buf[TKS_ENDPOINT_STR];

	check(ev->conn || (ev->kind == TKS_EV_DATA && ev->dir == TKS_RX));
	check(strlen(tks_endpoint_str(&ev->local, buf)) < sizeof(buf) && buf[0] != '?');
	check(strlen(tks_endpoint_str(&ev->peer, buf)) < sizeof(buf) && buf[0] != '?');
}

static void check_object(const struct tks_event *ev)
{
	check(!ev->conn && ev->obj && ev->proc.pid);
	check(ev->lib <= TKS_TLS_GO && (ev->lib || ev->kind == TKS_EV_OBJ_GONE));
}

static void check_event(const struct tks_event *ev, const uint8_t *rec, size_t size)
{
	check(ev->kind >= TKS_EV_OPEN && ev->kind <= TKS_EV_OBJ_GONE);
	check(ev->dir == TKS_RX || ev->dir == TKS_TX);
	check(ev->role <= TKS_ROLE_CLIENT);
	check(memchr(ev->proc.comm, 0, sizeof(ev->proc.comm)) != NULL);
	if (ev->kind >= TKS_EV_PLAIN)
		check_object(ev);
	else
		check_conn(ev);
	if (ev->kind == TKS_EV_OPEN && ev->cap) {
		check(ev->local.family == AF_UNIX && ev->cap <= TKS_UNIX_PATH && !ev->len);
		check(ev->data >= rec && ev->data + ev->cap <= rec + size);
		return;
	}
	if (!has_bytes(ev)) {
		check(!ev->len && !ev->cap);
		return;
	}
	check(ev->cap <= ev->len && ev->cap <= TKS_DATA_CAP);
	check(ev->data >= rec && ev->data + ev->cap <= rec + size);
	check(ev->dir == TKS_TX || !ev->ret_ns);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tks_event ev;

	memset(&ev, 0xa5, sizeof(ev));
	if (!tks_event_decode(data, size, &ev))
		check_event(&ev, data, size);
	return 0;
}
