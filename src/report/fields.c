// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The field table, and writing a record by it. */
#include "fields.h"

#include <math.h>

#define AT(f)                                                                                      \
	.name = #f, .offset = offsetof(struct tks_request, f),                                     \
	.size = sizeof(((struct tks_request *)0)->f)
#define FIELD(f, k) AT(f), .kind = k
#define TEXT(f) FIELD(f, TKS_FK_TEXT)
#define COUNT(f) FIELD(f, TKS_FK_INT), .min = 0, .max = INT64_MAX
#define TIME(f) FIELD(f, TKS_FK_INT), .min = 0, .max = TKS_TIME_MAX
#define SPAN(f) FIELD(f, TKS_FK_INT), .min = -TKS_TIME_MAX, .max = TKS_TIME_MAX
#define WORD(f, w) FIELD(f, TKS_FK_WORD), .words = w
#define ENUM(f, w) FIELD(f, TKS_FK_ENUM), .words = w, .nwords = sizeof(w) / sizeof((w)[0])
#define WHOLE(n, k) .name = n, .kind = k

static const char *const transports[] = { "tcp", "tls", "unix", NULL };
static const char *const https[] = { "1.0", "1.1", "2", NULL };
static const char *const dialects[] = { "openai.chat",
					"openai.completions",
					"openai.responses",
					"openai.realtime",
					"anthropic.messages",
					"ollama.chat",
					"ollama.generate",
					"tgi.generate_stream",
					"sglang.generate",
					"lmdeploy.generate",
					"llamacpp.completion",
					"triton.generate_stream",
					"triton.grpc",
					"engine.grpc",
					"gemini.generate",
					"bedrock.converse",
					"bedrock.invoke",
					"cohere.v1",
					"cohere.v2",
					"unknown",
					NULL };
const char *const tks_boundary_names[TKS_B_COUNT] = {
	[TKS_B_SEND] = "send", [TKS_B_WIRE] = "wire", [TKS_B_TLS] = "tls"
};
static const char *const sources[] = { [TKS_SRC_NONE] = NULL,
				       [TKS_SRC_PER_FRAME] = "per_frame",
				       [TKS_SRC_USAGE] = "usage",
				       [TKS_SRC_FRAMES] = "frames" };
static const char *const lasts[] = {
	[TKS_LAST_NONE] = NULL, [TKS_LAST_TEXT] = "text", [TKS_LAST_FINISH] = "finish"
};

const struct tks_field tks_fields[] = {
	{ WHOLE("type", TKS_FK_TYPE) },
	{ FIELD(id, TKS_FK_U64) },
	{ COUNT(pid) },
	{ TEXT(comm) },
	{ TEXT(cgroup) },
	{ TEXT(local) },
	{ TEXT(peer) },
	{ WORD(transport, transports) },
	{ WORD(http, https) },
	{ COUNT(stream_id) },
	{ TEXT(method) },
	{ TEXT(path) },
	{ COUNT(status) },
	{ WORD(dialect, dialects) },
	{ TEXT(model) },
	{ TEXT(response_id) },
	{ TEXT(server) },
	{ FIELD(streamed, TKS_FK_BOOL) },
	{ ENUM(boundary, tks_boundary_names) },
	{ TIME(t_request_ns) },
	{ TIME(t_request_end_ns) },
	{ TIME(t_headers_ns) },
	{ TIME(t_first_ns) },
	{ TIME(t_last_ns) },
	{ TIME(t_finish_ns) },
	{ TIME(t_end_ns) },
	{ TIME(start_unix_ns) },
	{ COUNT(frames) },
	{ COUNT(token_frames) },
	{ COUNT(tokens) },
	{ ENUM(tokens_source, sources) },
	{ ENUM(t_last_source, lasts) },
	{ COUNT(prompt_tokens) },
	{ COUNT(cached_tokens) },
	{ COUNT(reasoning_tokens) },
	{ COUNT(max_tokens) },
	{ COUNT(n) },
	{ SPAN(ttft_ns) },
	{ SPAN(ttft_visible_ns) },
	{ SPAN(tpot_ns) },
	{ SPAN(e2e_ns) },
	{ SPAN(send_wait_ns) },
	{ FIELD(itl, TKS_FK_GAPS) },
	{ FIELD(itl_per_token, TKS_FK_GAPS) },
	{ WHOLE("concurrency", TKS_FK_CONCURRENCY) },
	{ TEXT(finish) },
	{ TEXT(error) },
	{ FIELD(flags, TKS_FK_FLAGS) },
	{ FIELD(slo_met, TKS_FK_SLO) },
	{ WHOLE("tokens_at_ns", TKS_FK_TOKENS) },
	{ WHOLE("tokens_in_frame", TKS_FK_COUNTS) },
	{ WHOLE("boundaries", TKS_FK_BOUNDARIES) },
	{ WHOLE("choices", TKS_FK_CHOICES) },
};
const size_t tks_nfields = sizeof(tks_fields) / sizeof(tks_fields[0]);

const struct tks_flag_name tks_flag_names[] = {
	{ TKS_F_BLIND, "blind" },
	{ TKS_F_COALESCED, "coalesced" },
	{ TKS_F_COUNT_MISMATCH, "count_mismatch" },
	{ TKS_F_ESTIMATED, "estimated" },
	{ TKS_F_LOST, "lost" },
	{ TKS_F_MID_STREAM, "mid_stream" },
	{ TKS_F_MULTI_TOKEN, "multi_token_frames" },
	{ TKS_F_OPAQUE, "opaque" },
	{ TKS_F_TRUNCATED, "truncated" },
};
const size_t tks_nflag_names = sizeof(tks_flag_names) / sizeof(tks_flag_names[0]);

#define GAP(f)                                                                                     \
	{                                                                                          \
#f, offsetof(struct tks_gaps, f)                                                   \
	}
const struct tks_gap_field tks_gap_fields[] = {
	GAP(n), GAP(min_ns), GAP(mean_ns), GAP(p50_ns), GAP(p90_ns), GAP(p99_ns), GAP(max_ns),
};
const size_t tks_ngap_fields = sizeof(tks_gap_fields) / sizeof(tks_gap_fields[0]);

static void write_int(struct tks_jsonw *w, int64_t v)
{
	if (v == TKS_NULL)
		tks_jsonw_null(w);
	else
		tks_jsonw_int(w, v);
}

static void write_word(struct tks_jsonw *w, const char *s)
{
	if (s)
		tks_jsonw_string(w, s);
	else
		tks_jsonw_null(w);
}

/* size is the array's: no more is written than a reader can hold in it. */
static void write_text(struct tks_jsonw *w, const char *s, size_t size)
{
	if (s[0])
		tks_jsonw_text(w, s, size - 1);
	else
		tks_jsonw_null(w);
}

static void write_gaps(struct tks_jsonw *w, const struct tks_gaps *g)
{
	if (!g->n) {
		tks_jsonw_null(w);
		return;
	}
	tks_jsonw_begin(w, '{');
	for (size_t i = 0; i < tks_ngap_fields; i++) {
		tks_jsonw_name(w, tks_gap_fields[i].name);
		write_int(w, *(const int64_t *)((const char *)g + tks_gap_fields[i].offset));
	}
	tks_jsonw_end(w, '}');
}

static void write_concurrency(struct tks_jsonw *w, const struct tks_request *r)
{
	if (r->conc_at_start == TKS_NULL && r->conc_max == TKS_NULL && isnan(r->conc_mean)) {
		tks_jsonw_null(w);
		return;
	}
	tks_jsonw_begin(w, '{');
	tks_jsonw_name(w, "at_start");
	write_int(w, r->conc_at_start);
	tks_jsonw_name(w, "mean");
	tks_jsonw_double(w, r->conc_mean);
	tks_jsonw_name(w, "max");
	write_int(w, r->conc_max);
	tks_jsonw_end(w, '}');
}

static void write_flags(struct tks_jsonw *w, uint32_t flags)
{
	tks_jsonw_begin(w, '[');
	for (size_t i = 0; i < tks_nflag_names; i++) {
		if (flags & tks_flag_names[i].flag)
			tks_jsonw_string(w, tks_flag_names[i].name);
	}
	tks_jsonw_end(w, ']');
}

static void write_choice(struct tks_jsonw *w, const struct tks_choice *c)
{
	tks_jsonw_begin(w, '{');
	tks_jsonw_name(w, "index");
	tks_jsonw_int(w, c->index);
	tks_jsonw_name(w, "tokens");
	write_int(w, c->tokens);
	tks_jsonw_name(w, "token_frames");
	tks_jsonw_int(w, c->token_frames);
	tks_jsonw_name(w, "tpot_ns");
	write_int(w, c->tpot_ns);
	tks_jsonw_name(w, "itl");
	write_gaps(w, &c->itl);
	tks_jsonw_name(w, "finish");
	write_text(w, c->finish, sizeof(c->finish));
	tks_jsonw_end(w, '}');
}

static void write_tokens(struct tks_jsonw *w, const struct tks_request *r)
{
	tks_jsonw_begin(w, '[');
	for (size_t i = 0; i < r->ntoken_at; i++)
		write_int(w, r->token_at_ns[i]);
	tks_jsonw_end(w, ']');
}

static void write_counts(struct tks_jsonw *w, const struct tks_request *r)
{
	tks_jsonw_begin(w, '[');
	for (size_t i = 0; i < r->ntoken_at; i++)
		write_int(w, r->tokens_in_frame[i] < 0 ? TKS_NULL : r->tokens_in_frame[i]);
	tks_jsonw_end(w, ']');
}

static void write_choices(struct tks_jsonw *w, const struct tks_request *r)
{
	tks_jsonw_begin(w, '[');
	for (size_t i = 0; i < r->nchoices; i++)
		write_choice(w, &r->choices[i]);
	tks_jsonw_end(w, ']');
}

static void write_boundaries(struct tks_jsonw *w, const struct tks_request *r)
{
	tks_jsonw_begin(w, '{');
	for (size_t i = 0; i < r->nboundaries; i++) {
		const struct tks_at_boundary *b = &r->at_boundary[i];

		tks_jsonw_name(w, tks_boundary_names[b->boundary]);
		tks_jsonw_begin(w, '{');
		tks_jsonw_name(w, "ttft_ns");
		write_int(w, b->ttft_ns);
		tks_jsonw_name(w, "tpot_ns");
		write_int(w, b->tpot_ns);
		tks_jsonw_name(w, "itl");
		write_gaps(w, &b->itl);
		tks_jsonw_end(w, '}');
	}
	tks_jsonw_end(w, '}');
}

static bool present(const struct tks_field *f, const struct tks_request *r, bool tokens)
{
	switch (f->kind) {
	case TKS_FK_SLO:
		return r->slo_met >= 0;
	case TKS_FK_TOKENS:
		/* A record that was read from a file may have come without its series. */
		return tokens && (r->ntoken_at || r->token_frames <= 0);
	case TKS_FK_COUNTS:
		return tokens && r->tokens_in_frame;
	case TKS_FK_BOUNDARIES:
		return r->nboundaries > 1;
	case TKS_FK_CHOICES:
		return r->nchoices > 1;
	default:
		return true;
	}
}

static void write_value(struct tks_jsonw *w, const struct tks_field *f, const struct tks_request *r)
{
	const char *at = (const char *)r + f->offset;

	switch (f->kind) {
	case TKS_FK_TYPE:
		tks_jsonw_string(w, "request");
		break;
	case TKS_FK_U64:
		tks_jsonw_uint(w, *(const uint64_t *)at);
		break;
	case TKS_FK_INT:
		write_int(w, *(const int64_t *)at);
		break;
	case TKS_FK_BOOL:
		if (*(const int64_t *)at == TKS_NULL)
			tks_jsonw_null(w);
		else
			tks_jsonw_bool(w, *(const int64_t *)at);
		break;
	case TKS_FK_TEXT:
		write_text(w, at, f->size);
		break;
	case TKS_FK_WORD:
		write_word(w, *(const char *const *)at);
		break;
	case TKS_FK_ENUM:
		write_word(w, f->words[*(const unsigned int *)at]);
		break;
	case TKS_FK_GAPS:
		write_gaps(w, (const struct tks_gaps *)at);
		break;
	case TKS_FK_CONCURRENCY:
		write_concurrency(w, r);
		break;
	case TKS_FK_FLAGS:
		write_flags(w, r->flags);
		break;
	case TKS_FK_SLO:
		tks_jsonw_bool(w, r->slo_met);
		break;
	case TKS_FK_TOKENS:
		write_tokens(w, r);
		break;
	case TKS_FK_COUNTS:
		write_counts(w, r);
		break;
	case TKS_FK_BOUNDARIES:
		write_boundaries(w, r);
		break;
	case TKS_FK_CHOICES:
		write_choices(w, r);
		break;
	}
}

void tks_fields_write(struct tks_jsonw *w, const struct tks_request *r, bool tokens)
{
	tks_jsonw_begin(w, '{');
	for (size_t i = 0; i < tks_nfields; i++) {
		if (!present(&tks_fields[i], r, tokens))
			continue;
		tks_jsonw_name(w, tks_fields[i].name);
		write_value(w, &tks_fields[i], r);
	}
	tks_jsonw_end(w, '}');
}
