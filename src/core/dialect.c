// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The table of dialects, and what they share. The shape of the answer decides; the path is only
 * asked when there is no answer to look at.
 */
#include "dialect.h"
#include "dialect_table.h"

#include <stdio.h>
#include <string.h>

#define DECLARE(name) extern const struct tks_dialect tks_dialect_##name;
#define ROW(name) &tks_dialect_##name,

TKS_DIALECTS(DECLARE)
static const struct tks_dialect *const dialects[] = { TKS_DIALECTS(ROW) };

enum { NDIALECTS = sizeof(dialects) / sizeof(dialects[0]) };

/* --- an event stream that nobody knows: its frames are counted, and the gaps between them --- */

static void unknown_begin(struct tks_dialect_ctx *d)
{
	(void)d;
}

static void unknown_value(struct tks_dialect_ctx *d, const struct tks_jvalue *v)
{
	(void)d;
	(void)v;
}

static void unknown_end(struct tks_dialect_ctx *d, bool ok)
{
	(void)ok;
	tks_reqstate_arrival(d->rs);
}

const struct tks_dialect tks_dialect_unknown = {
	.name = "unknown",
	.begin = unknown_begin,
	.value = unknown_value,
	.end = unknown_end,
};

/* --- the table --- */

size_t tks_dialect_count(void)
{
	return NDIALECTS;
}

const struct tks_dialect *tks_dialect_at(size_t i)
{
	return dialects[i];
}

const struct tks_dialect *tks_dialect_named(const char *name)
{
	for (size_t i = 0; i < NDIALECTS; i++) {
		if (!strcmp(dialects[i]->name, name))
			return dialects[i];
	}
	return &tks_dialect_unknown;
}

/* The path ends with the pattern, of which a * stands for anything. */
static bool ends_like(const char *target, size_t len, const char *pattern, size_t n)
{
	const char *star = strchr(pattern, '*');
	size_t front = star ? (size_t)(star - pattern) : 0, back = star ? n - front - 1 : n;

	if (len < front + back || memcmp(target + len - back, pattern + n - back, back) != 0)
		return false;
	return !front || memmem(target, len - back, pattern, front);
}

/* How much of the end of the path is one that the dialect is spoken at; 0: none. */
static size_t path_match(const struct tks_dialect *dialect, const char *target, size_t len)
{
	size_t best = 0;

	for (const char *const *p = dialect->paths; p && *p; p++) {
		size_t n = strlen(*p);

		if (n > best && ends_like(target, len, *p, n))
			best = n;
	}
	return best;
}

bool tks_dialect_at_path(const struct tks_dialect *dialect, const char *target)
{
	return path_match(dialect, target, strcspn(target, "?#")) > 0;
}

const struct tks_dialect *tks_dialect_of_path(const char *target)
{
	const struct tks_dialect *found = NULL;
	size_t len = strcspn(target, "?#"), best = 0;

	for (size_t i = 0; i < NDIALECTS; i++) {
		size_t n = path_match(dialects[i], target, len);

		if (n > best) {
			best = n;
			found = dialects[i];
		}
	}
	return found ?: tks_dialect_of_method(target);
}

const struct tks_dialect *tks_dialect_of_method(const char *path)
{
	for (size_t i = 0; i < NDIALECTS; i++) {
		for (const char *const *m = dialects[i]->grpc; m && *m; m++) {
			if (!strcmp(*m, path))
				return dialects[i];
		}
	}
	return NULL;
}

const struct tks_dialect *tks_dialect_of_first(const void *message, size_t n)
{
	for (size_t i = 0; i < NDIALECTS; i++) {
		if (dialects[i]->is_first && dialects[i]->is_first(message, n))
			return dialects[i];
	}
	return NULL;
}

bool tks_path_is_llm(const char *target)
{
	return tks_dialect_of_path(target) != NULL;
}

const char *tks_path_dialect(const char *target)
{
	const struct tks_dialect *dialect = tks_dialect_of_path(target);

	return dialect ? dialect->name : tks_dialect_unknown.name;
}

const struct tks_jschema *tks_dialect_schema(const struct tks_dialect *dialect)
{
	static struct tks_jschema *made[NDIALECTS];

	for (size_t i = 0; i < NDIALECTS; i++) {
		if (dialects[i] != dialect || !dialect->nfields)
			continue;
		if (!made[i])
			made[i] = tks_jschema_new(dialect->fields, dialect->nfields);
		return made[i];
	}
	return NULL;
}

bool tks_dialect_stops(const struct tks_dialect *dialect, const char *finish)
{
	for (const char *const *s = dialect->stops; s && *s; s++) {
		if (!strcmp(*s, finish))
			return true;
	}
	return false;
}

/* --- values --- */

bool tks_jvalue_copy(const struct tks_jvalue *v, char *out, size_t size)
{
	size_t n = v->len < size - 1 ? v->len : size - 1;

	memcpy(out, v->str, n);
	out[n] = 0;
	return n == v->len && !v->truncated;
}

void tks_dialect_keep(struct tks_dialect_ctx *d, const struct tks_jvalue *v, char *out, size_t size)
{
	if (v->str && v->len && !out[0] && !tks_jvalue_copy(v, out, size))
		d->rec->flags |= TKS_F_TRUNCATED;
}

void tks_jvalue_text(const struct tks_jvalue *v, char *out, size_t size)
{
	if (v->str)
		tks_jvalue_copy(v, out, size);
	else if (v->type == TKS_JS_NUMBER)
		snprintf(out, size, "%lld", (long long)v->inum);
}

bool tks_jvalue_is(const struct tks_jvalue *v, const char *text)
{
	return v->str && v->len == strlen(text) && !memcmp(v->str, text, v->len);
}

void tks_pvalue_copy(const struct tks_pvalue *v, char *out, size_t size)
{
	size_t n = v->len < size - 1 ? v->len : size - 1;

	if (v->type != TKS_PS_BYTES)
		return;
	memcpy(out, v->str, n);
	out[n] = 0;
}

int64_t tks_jvalue_count(const struct tks_jvalue *v)
{
	const int64_t max = 1ll << 40;

	return v->type == TKS_JS_NUMBER && v->inum >= 0 && v->inum <= max ? v->inum : TKS_NULL;
}

/* --- one choice --- */

void tks_said_begin(struct tks_said *s)
{
	memset(s, 0, sizeof(*s));
	s->choice.tokens = -1;
	s->choice.counter = -1;
	s->usage = tks_no_usage;
}

static void total_value(struct tks_usage *u, const struct tks_jvalue *v)
{
	switch (v->id) {
	case TKS_SAID_OUT:
		u->output_tokens = tks_jvalue_count(v);
		break;
	case TKS_SAID_IN:
		u->prompt_tokens = tks_jvalue_count(v);
		break;
	case TKS_SAID_CACHED:
		u->cached_tokens = tks_jvalue_count(v);
		break;
	default:
		u->reasoning_tokens = tks_jvalue_count(v);
	}
}

static void choice_value(struct tks_choice_facts *c, const struct tks_jvalue *v)
{
	switch (v->id) {
	case TKS_SAID_FINISH:
		if (v->str && v->len)
			tks_jvalue_copy(v, c->finish, sizeof(c->finish));
		break;
	case TKS_SAID_INDEX:
		if (v->type == TKS_JS_NUMBER && v->inum >= 0 && v->inum <= INT32_MAX)
			c->index = (uint32_t)v->inum;
		break;
	case TKS_SAID_IDS:
		if (v->type == TKS_JS_ARRAY && v->count && v->count <= INT32_MAX)
			c->tokens = (int32_t)v->count;
		break;
	default:
		c->counter = tks_jvalue_count(v) == TKS_NULL ? c->counter : v->inum;
	}
}

static void error_value(struct tks_said *s, const struct tks_jvalue *v)
{
	switch (v->id) {
	case TKS_SAID_ERROR:
		s->is_error |= v->type == TKS_JS_OBJECT || v->type == TKS_JS_STRING;
		break;
	case TKS_SAID_ERROR_KIND:
		tks_jvalue_text(v, s->error_kind, sizeof(s->error_kind));
		break;
	default:
		tks_jvalue_text(v, s->error_code, sizeof(s->error_code));
	}
}

void tks_said_value(struct tks_dialect_ctx *d, struct tks_said *s, const struct tks_jvalue *v)
{
	switch (v->id) {
	case TKS_SAID_ID:
		tks_dialect_keep(d, v, d->rec->response_id, sizeof(d->rec->response_id));
		break;
	case TKS_SAID_MODEL:
		tks_dialect_keep(d, v, d->rec->model, sizeof(d->rec->model));
		break;
	case TKS_SAID_TEXT:
		s->visible |= v->type == TKS_JS_STRING && v->bytes;
		break;
	case TKS_SAID_REASONING:
		s->reasoning |= v->type == TKS_JS_STRING && v->bytes;
		break;
	case TKS_SAID_FINISH:
	case TKS_SAID_INDEX:
	case TKS_SAID_IDS:
	case TKS_SAID_COUNTER:
		choice_value(&s->choice, v);
		break;
	case TKS_SAID_ERROR:
	case TKS_SAID_ERROR_KIND:
	case TKS_SAID_ERROR_CODE:
		error_value(s, v);
		break;
	default:
		total_value(&s->usage, v);
	}
}

void tks_said_tell(struct tks_dialect_ctx *d, const struct tks_said *s)
{
	struct tks_choice_facts c = s->choice;
	struct tks_usage u = s->usage;

	c.text = s->visible || s->reasoning;
	c.reasoning = s->reasoning && !s->visible;
	c.token |= c.text || c.tokens > 0;
	if (!d->streamed)
		c.token = c.text = c.finish_is_token = false;
	if (!d->streamed)
		c.tokens = -1;
	c.natural = tks_dialect_stops(d->dialect, c.finish);
	if (c.token || c.finish[0] || c.tokens >= 0 || c.counter >= 0)
		tks_reqstate_choice(d->rs, &c);
	/* In a batch it is that of another prompt. */
	if (s->choice.index)
		u.prompt_tokens = TKS_NULL;
	tks_reqstate_usage(d->rs, &u);
	if (s->is_error)
		tks_reqstate_error(d->rs, s->error_kind, s->error_code);
}

bool tks_dialect_answer(struct tks_dialect_ctx *d, const char *key)
{
	struct tks_reqstate *rs = d->host->answer(d->host_ctx, key);

	if (!rs)
		return false;
	d->rs = rs;
	d->rec = tks_reqstate_record(rs);
	d->rec->dialect = d->dialect->name;
	d->rec->streamed = 1;
	return true;
}
