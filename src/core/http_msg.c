// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The header fields that are kept, for both versions of HTTP.
 */
#include "http_msg.h"

#include <string.h>

#define PLACE(member)                                                                              \
	offsetof(struct tks_http_head, member), sizeof(((struct tks_http_head *)0)->member)

static const struct tks_http_field fields[] = {
	{ "content-type", PLACE(content_type), true, true, NULL },
	{ "content-encoding", PLACE(content_encoding), true, false, NULL },
	{ "server", PLACE(server), false, false, NULL },
	{ "upgrade", PLACE(upgrade_to), true, false, NULL },
	{ "sec-websocket-extensions", PLACE(ws_extensions), true, false, NULL },
	{ "grpc-encoding", PLACE(grpc_encoding), true, false, NULL },
	{ "grpc-status", PLACE(grpc_status), false, false, NULL },
	/* Fields that only one product sends. */
	{ "x-compute-type", PLACE(product), false, false, "tgi" },
	{ "x-dynamo-request-id", PLACE(product), false, false, "dynamo" },
	{ "x-litellm-call-id", PLACE(product), false, false, "litellm" },
	{ "x-litellm-model-id", PLACE(product), false, false, "litellm" },
};

const struct tks_http_field *tks_http_field_named(const char *name, size_t len)
{
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		if (strlen(fields[i].name) == len && !memcmp(fields[i].name, name, len))
			return &fields[i];
	}
	return NULL;
}

static char lower(char ch)
{
	return ch >= 'A' && ch <= 'Z' ? (char)(ch + 'a' - 'A') : ch;
}

/* Its length without parameters and the white space behind. */
static size_t value_len(const struct tks_http_field *f, const char *value, size_t len)
{
	const char *semicolon = f->cut_params ? memchr(value, ';', len) : NULL;

	if (semicolon)
		len = (size_t)(semicolon - value);
	while (len && (value[len - 1] == ' ' || value[len - 1] == '\t'))
		len--;
	return len;
}

void tks_http_field_set(struct tks_http_head *h, const char *name, size_t name_len,
			const char *value, size_t len)
{
	const struct tks_http_field *f = tks_http_field_named(name, name_len);
	char *out;

	if (!f)
		return;
	out = tks_http_field_place(h, f);
	if (*out)
		return;
	if (f->says) {
		strncpy(out, f->says, f->size - 1);
		return;
	}
	len = value_len(f, value, len);
	if (len > f->size - 1) {
		len = f->size - 1;
		h->truncated = true;
	}
	for (size_t i = 0; i < len; i++)
		out[i] = f->lower ? lower(value[i]) : value[i];
	out[len] = 0;
}
