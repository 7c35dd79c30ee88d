// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The table of dialects, and the paths that LLM servers serve. The shape of the answer decides; the
 * path is only asked when there is no answer to look at.
 */
#include "dialect.h"

#include <string.h>

static const struct tks_dialect *const dialects[] = {
	&tks_dialect_openai_chat,
	&tks_dialect_openai_completions,
};

enum { NDIALECTS = sizeof(dialects) / sizeof(dialects[0]) };

static void nothing(struct tks_dialect_ctx *d)
{
	(void)d;
}

static void no_value(struct tks_dialect_ctx *d, const struct tks_jvalue *v)
{
	(void)d;
	(void)v;
}

static void no_end(struct tks_dialect_ctx *d, bool ok)
{
	(void)d;
	(void)ok;
}

static bool never(const struct tks_shape *shape)
{
	(void)shape;
	return false;
}

/* An event stream that nobody knows: its frames are counted and timed, nothing is read into them.
 */
const struct tks_dialect tks_dialect_unknown = {
	.name = "unknown",
	.matches = never,
	.begin = nothing,
	.value = no_value,
	.end = no_end,
};

const struct tks_dialect *tks_dialect_for(const struct tks_shape *shape)
{
	for (size_t i = 0; i < NDIALECTS; i++) {
		if (dialects[i]->matches(shape))
			return dialects[i];
	}
	return NULL;
}

const struct tks_dialect *tks_dialect_named(const char *name)
{
	for (size_t i = 0; i < NDIALECTS; i++) {
		if (!strcmp(dialects[i]->name, name))
			return dialects[i];
	}
	return &tks_dialect_unknown;
}

bool tks_jvalue_copy(const struct tks_jvalue *v, char *out, size_t size)
{
	size_t n = v->len < size - 1 ? v->len : size - 1;

	memcpy(out, v->str, n);
	out[n] = 0;
	return n == v->len && !v->truncated;
}

/* What a path ends in, before its query; whatever proxies put in front. */
static const struct {
	const char *suffix, *dialect;
} paths[] = {
	{ "/v1/chat/completions", "openai.chat" },
	{ "/chat/completions", "openai.chat" },
	{ "/v1/completions", "openai.completions" },
	{ "/v1/responses", "unknown" },
	{ "/v1/messages", "unknown" },
	{ "/completion", "unknown" },
	{ "/completions", "openai.completions" },
	{ "/infill", "unknown" },
	{ "/generate", "unknown" },
	{ "/generate_stream", "unknown" },
	{ "/api/generate", "unknown" },
	{ "/api/chat", "unknown" },
	{ "/v1/chat", "unknown" },
	{ "/v2/chat", "unknown" },
	{ ":generateContent", "unknown" },
	{ ":streamGenerateContent", "unknown" },
	{ "/converse", "unknown" },
	{ "/converse-stream", "unknown" },
	{ "/invoke-with-response-stream", "unknown" },
};

static const char *dialect_of_path(const char *target)
{
	size_t len = strcspn(target, "?#");

	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		size_t n = strlen(paths[i].suffix);

		if (len >= n && !memcmp(target + len - n, paths[i].suffix, n))
			return paths[i].dialect;
	}
	return NULL;
}

bool tks_path_is_llm(const char *target)
{
	return dialect_of_path(target) != NULL;
}

const char *tks_path_dialect(const char *target)
{
	const char *name = dialect_of_path(target);

	return name ? name : "unknown";
}
