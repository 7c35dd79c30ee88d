/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Records for tests of the reporters: text out of a FILE, and records of any values that the record
 * can have. */
#ifndef LIB_REPORT_H
#define LIB_REPORT_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tokensnoop/report.h"

/* What was written to out; in memory. */
struct lib_text {
	FILE *out;
	char *p;
	size_t n;
};

static inline void lib_text_open(struct lib_text *t)
{
	t->out = open_memstream(&t->p, &t->n);
	assert_non_null(t->out);
}

static inline const char *lib_text_of(struct lib_text *t)
{
	assert_int_equal(fflush(t->out), 0);
	return t->p;
}

static inline void lib_text_close(struct lib_text *t)
{
	fclose(t->out);
	free(t->p);
}

/* The record as a line of JSONL; the caller frees it. */
static inline char *lib_line_of(const struct tks_request *q, bool tokens)
{
	struct lib_text t;
	struct tks_report_config cfg = { .format = TKS_FMT_JSONL, .tokens = tokens };
	struct tks_report *r;

	lib_text_open(&t);
	cfg.out = t.out;
	r = tks_report_new(&cfg);
	assert_non_null(r);
	assert_int_equal(tks_report_record(r, q), 0);
	assert_int_equal(tks_report_tick(r), 0);
	tks_report_free(r);
	fclose(t.out);
	return t.p;
}

/* --- any values --- */

static inline int64_t lib_any(int64_t max)
{
	uint64_t v = (uint64_t)random() << 33 ^ (uint64_t)random() << 11 ^ (uint64_t)random();

	return random() % 4 ? (int64_t)(v % ((uint64_t)max + 1)) : TKS_NULL;
}

/* Bytes of any kind, but for the end mark. */
static inline void lib_any_text(char *buf, size_t size)
{
	size_t n = (size_t)random() % size;

	for (size_t i = 0; i < n; i++)
		buf[i] = (char)(random() % 2 ? 'a' + random() % 26 : 1 + random() % 255);
	buf[n] = 0;
}

static inline void lib_any_gaps(struct tks_gaps *g)
{
	tks_gaps_from(NULL, 0, g);
	g->n = random() % 3 ? 1 + random() % 1000 : 0;
	if (!g->n)
		return;
	g->min_ns = lib_any(1000);
	g->mean_ns = lib_any(1ll << 50);
	g->p50_ns = lib_any(1ll << 50);
	g->p90_ns = lib_any(1ll << 50);
	g->p99_ns = lib_any(1ll << 50);
	g->max_ns = lib_any(1ll << 62);
}

enum { LIB_SERIES = 40, LIB_CHOICES = 5 };

struct lib_record {
	struct tks_request q;
	int64_t at[LIB_SERIES];
	int32_t in_frame[LIB_SERIES];
	struct tks_choice choices[LIB_CHOICES];
};

static inline void lib_any_parts(struct lib_record *l)
{
	struct tks_request *q = &l->q;

	q->ntoken_at = (size_t)random() % LIB_SERIES;
	q->token_at_ns = q->ntoken_at ? l->at : NULL;
	q->tokens_in_frame = q->ntoken_at && random() % 2 ? l->in_frame : NULL;
	for (size_t i = 0; i < q->ntoken_at; i++) {
		l->at[i] = lib_any(1ll << 62);
		l->in_frame[i] = random() % 3 ? (int32_t)random() : -1;
	}
	q->nchoices = (size_t)random() % (LIB_CHOICES + 1);
	if (q->nchoices < 2)
		q->nchoices = 0;
	q->choices = q->nchoices ? l->choices : NULL;
	for (size_t i = 0; i < q->nchoices; i++) {
		struct tks_choice *c = &l->choices[i];

		c->index = random();
		c->tokens = lib_any(INT64_MAX);
		c->token_frames = random();
		c->tpot_ns = lib_any(1ll << 62);
		lib_any_gaps(&c->itl);
		lib_any_text(c->finish, sizeof(c->finish));
	}
}

static inline void lib_any_numbers(struct tks_request *q)
{
	int64_t *const times[] = { &q->t_request_ns, &q->t_request_end_ns, &q->t_headers_ns,
				   &q->t_first_ns,   &q->t_last_ns,	   &q->t_finish_ns,
				   &q->t_end_ns,     &q->start_unix_ns };
	int64_t *const counts[] = { &q->pid,	       &q->status,
				    &q->frames,	       &q->token_frames,
				    &q->tokens,	       &q->prompt_tokens,
				    &q->cached_tokens, &q->reasoning_tokens,
				    &q->max_tokens,    &q->n,
				    &q->conc_at_start, &q->conc_max };
	int64_t *const spans[] = { &q->ttft_ns, &q->ttft_visible_ns, &q->tpot_ns, &q->e2e_ns,
				   &q->send_wait_ns };

	for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++)
		*times[i] = lib_any(1ll << 62);
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		*counts[i] = lib_any(random() % 2 ? INT64_MAX : 1000);
	for (size_t i = 0; i < sizeof(spans) / sizeof(spans[0]); i++) {
		*spans[i] = lib_any(1ll << 62);
		if (*spans[i] != TKS_NULL && random() % 2)
			*spans[i] = -*spans[i];
	}
	q->conc_mean = random() % 4 ? (double)random() / (double)(1 + random() % 1000) : NAN;
}

/* Every field of the record has some value that it may have. */
static inline void lib_any_record(struct lib_record *l)
{
	static const char *const transports[] = { "tcp", "tls", "unix" };
	static const char *const https[] = { "1.0", "1.1", "2", NULL };
	static const char *const dialects[] = { "openai.chat", "openai.completions", "unknown" };
	struct tks_request *q = &l->q;

	tks_request_init(q);
	lib_any_numbers(q);
	q->id = (uint64_t)random();
	q->transport = transports[random() % 3];
	q->http = https[random() % 4];
	q->dialect = dialects[random() % 3];
	q->streamed = random() % 3 ? random() % 2 : TKS_NULL;
	q->boundary = random() % 2 ? TKS_B_WIRE : TKS_B_SEND;
	q->tokens_source = (enum tks_tokens_source)(random() % 4);
	q->t_last_source = (enum tks_last_source)(random() % 3);
	q->flags = (uint32_t)random() & 0x1ff;
	q->slo_met = (int)(random() % 3) - 1;
	lib_any_text(q->comm, sizeof(q->comm));
	lib_any_text(q->cgroup, sizeof(q->cgroup));
	lib_any_text(q->local, sizeof(q->local));
	lib_any_text(q->peer, sizeof(q->peer));
	lib_any_text(q->method, sizeof(q->method));
	lib_any_text(q->path, sizeof(q->path));
	lib_any_text(q->model, sizeof(q->model));
	lib_any_text(q->response_id, sizeof(q->response_id));
	lib_any_text(q->server, sizeof(q->server));
	lib_any_text(q->finish, sizeof(q->finish));
	lib_any_text(q->error, sizeof(q->error));
	lib_any_gaps(&q->itl);
	lib_any_gaps(&q->itl_per_token);
	lib_any_parts(l);
}

#endif
