// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Records back from JSON lines. The schema is made from the field table, so that what is written
 * can be read. A value of the wrong type, out of range, or a word that the schema does not have
 * makes the line foreign.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "fields.h"
#include "jscan.h"
#include "tokensnoop/report.h"

enum {
	SERIES_MAX = 1 << 22, /* token times a record may bring */
	CHOICES_MAX = 4096,
	PATHS_MAX = 256,
	PATH_LEN = 48,
	SUB = 64, /* ids a field takes at most */
	SHAPE = SUB - 1, /* the object or array as such */
};

enum {
	C_INDEX = 1,
	C_TOKENS,
	C_FRAMES,
	C_TPOT,
	C_FINISH,
	C_OBJECT,
	C_GAPS,
	C_GAPS_SHAPE = SHAPE - 1
};

/* Of a boundary; each has a block of so many ids. */
enum { B_OBJECT = 0, B_TTFT, B_TPOT, B_ITL, B_GAPS, B_BLOCK = 16 };

/* A growing array. */
struct array {
	void *p;
	size_t n, cap, elem;
};

struct tks_jsonl_reader {
	struct tks_mem *mem;
	struct tks_jschema *schema;
	struct tks_jscan *scan;
	char (*paths)[PATH_LEN];
	struct tks_request q;
	struct array at, in_frame, choices;
	struct tks_choice choice;
	bool is_request, is_meta, bad;
	bool counted; /* tokens_in_frame is there */
	int err;
};

/* --- schema --- */

struct builder {
	char (*paths)[PATH_LEN];
	struct tks_jfield fields[PATHS_MAX];
	size_t n;
};

static void add_path(struct builder *b, const char *name, const char *sub, size_t field, size_t id)
{
	char *path = b->paths[b->n];

	snprintf(path, PATH_LEN, "%s%s", name, sub);
	b->fields[b->n++] = (struct tks_jfield){ path, (uint16_t)(field * SUB + id + 1),
						 TKS_JF_KEEP | TKS_JF_BEGIN };
}

static void add_gaps(struct builder *b, const char *prefix, size_t field, size_t first_id)
{
	char sub[PATH_LEN];

	for (size_t i = 0; i < tks_ngap_fields; i++) {
		snprintf(sub, sizeof(sub), ".%s", tks_gap_fields[i].name);
		add_path(b, prefix, sub, field, first_id + i);
	}
}

static void add_choices(struct builder *b, size_t field)
{
	add_path(b, "choices", "[]", field, C_OBJECT);
	add_path(b, "choices", "[].index", field, C_INDEX);
	add_path(b, "choices", "[].tokens", field, C_TOKENS);
	add_path(b, "choices", "[].token_frames", field, C_FRAMES);
	add_path(b, "choices", "[].tpot_ns", field, C_TPOT);
	add_path(b, "choices", "[].finish", field, C_FINISH);
	add_path(b, "choices", "[].itl", field, C_GAPS_SHAPE);
	add_gaps(b, "choices[].itl", field, C_GAPS);
}

static void add_boundaries(struct builder *b, size_t field)
{
	char name[PATH_LEN], itl[PATH_LEN + 8];

	for (size_t i = 0; i < TKS_B_COUNT; i++) {
		snprintf(name, sizeof(name), "boundaries.%s", tks_boundary_names[i]);
		snprintf(itl, sizeof(itl), "%s.itl", name);
		add_path(b, name, "", field, i * B_BLOCK + B_OBJECT);
		add_path(b, name, ".ttft_ns", field, i * B_BLOCK + B_TTFT);
		add_path(b, name, ".tpot_ns", field, i * B_BLOCK + B_TPOT);
		add_path(b, itl, "", field, i * B_BLOCK + B_ITL);
		add_gaps(b, itl, field, i * B_BLOCK + B_GAPS);
	}
}

static void add_members(struct builder *b, const struct tks_field *f, size_t i)
{
	switch (f->kind) {
	case TKS_FK_GAPS:
		add_gaps(b, f->name, i, 0);
		break;
	case TKS_FK_CONCURRENCY:
		add_path(b, f->name, ".at_start", i, 0);
		add_path(b, f->name, ".mean", i, 1);
		add_path(b, f->name, ".max", i, 2);
		break;
	case TKS_FK_CHOICES:
		add_choices(b, i);
		break;
	case TKS_FK_BOUNDARIES:
		add_boundaries(b, i);
		break;
	default:
		add_path(b, f->name, "[]", i, 0);
	}
}

/* Fields with parts; the others are one value. */
static bool has_parts(enum tks_field_kind kind)
{
	return kind == TKS_FK_GAPS || kind == TKS_FK_CONCURRENCY || kind == TKS_FK_CHOICES ||
	       kind == TKS_FK_BOUNDARIES || kind == TKS_FK_FLAGS || kind == TKS_FK_TOKENS ||
	       kind == TKS_FK_COUNTS;
}

static void add_field(struct builder *b, size_t i)
{
	bool parts = has_parts(tks_fields[i].kind);

	add_path(b, tks_fields[i].name, "", i, parts ? SHAPE : 0);
	if (parts)
		add_members(b, &tks_fields[i], i);
}

/* --- values --- */

static bool get_int(const struct tks_jvalue *v, int64_t min, int64_t max, int64_t *out)
{
	if (v->type == TKS_JS_NULL) {
		*out = TKS_NULL;
		return true;
	}
	if (v->type != TKS_JS_NUMBER || v->num != (double)v->inum || v->inum < min || v->inum > max)
		return false;
	*out = v->inum;
	return true;
}

static bool get_count(const struct tks_jvalue *v, int64_t *out)
{
	return get_int(v, 0, INT64_MAX, out);
}

static bool get_span(const struct tks_jvalue *v, int64_t *out)
{
	return get_int(v, -TKS_TIME_MAX, TKS_TIME_MAX, out);
}

static bool get_text(const struct tks_jvalue *v, char *out, size_t size)
{
	if (v->type == TKS_JS_NULL) {
		out[0] = 0;
		return true;
	}
	if (!v->str || v->truncated || v->len >= size || memchr(v->str, 0, v->len))
		return false;
	memcpy(out, v->str, v->len);
	out[v->len] = 0;
	return true;
}

static bool is_word(const struct tks_jvalue *v, const char *word)
{
	return v->str && strlen(word) == v->len && !memcmp(word, v->str, v->len);
}

static bool get_word(const struct tks_field *f, const struct tks_jvalue *v, const char **out)
{
	*out = NULL;
	if (v->type == TKS_JS_NULL)
		return true;
	for (size_t i = 0; f->words[i]; i++) {
		if (is_word(v, f->words[i])) {
			*out = f->words[i];
			return true;
		}
	}
	return false;
}

static bool get_enum(const struct tks_field *f, const struct tks_jvalue *v, unsigned int *out)
{
	for (unsigned int i = 0; i < f->nwords; i++) {
		if (f->words[i] ? is_word(v, f->words[i]) : v->type == TKS_JS_NULL) {
			*out = i;
			return true;
		}
	}
	return false;
}

static bool get_bool(const struct tks_jvalue *v, int64_t *out)
{
	if (v->type != TKS_JS_TRUE && v->type != TKS_JS_FALSE && v->type != TKS_JS_NULL)
		return false;
	*out = v->type == TKS_JS_NULL ? TKS_NULL : v->type == TKS_JS_TRUE;
	return true;
}

static bool get_gap(const struct tks_jvalue *v, struct tks_gaps *g, size_t i)
{
	int64_t *out;

	if (i >= tks_ngap_fields)
		return false;
	out = (int64_t *)((char *)g + tks_gap_fields[i].offset);
	return i ? get_span(v, out) : get_count(v, out);
}

static bool get_concurrency(const struct tks_jvalue *v, struct tks_request *q, size_t i)
{
	if (i == 0)
		return get_count(v, &q->conc_at_start);
	if (i == 2)
		return get_count(v, &q->conc_max);
	if (v->type == TKS_JS_NULL) {
		q->conc_mean = NAN;
		return true;
	}
	q->conc_mean = v->num;
	return v->type == TKS_JS_NUMBER && v->num >= 0 && isfinite(v->num);
}

static bool get_flag(const struct tks_jvalue *v, struct tks_request *q)
{
	for (size_t i = 0; i < tks_nflag_names; i++) {
		if (is_word(v, tks_flag_names[i].name)) {
			q->flags |= tks_flag_names[i].flag;
			return true;
		}
	}
	return false;
}

static bool push(struct tks_jsonl_reader *r, struct array *a, const void *elem, size_t max)
{
	void *grown;
	size_t cap;

	if (a->n == a->cap) {
		cap = a->cap ? a->cap * 2 : 64;
		if (a->n >= max)
			return false;
		grown = tks_mem_resize(r->mem, a->p, a->cap * a->elem, cap * a->elem);
		if (!grown) {
			r->err = -ENOMEM;
			return false;
		}
		a->p = grown;
		a->cap = cap;
	}
	memcpy((char *)a->p + a->n++ * a->elem, elem, a->elem);
	return true;
}

static bool get_time(struct tks_jsonl_reader *r, const struct tks_jvalue *v)
{
	int64_t t;

	return get_int(v, 0, TKS_TIME_MAX, &t) && push(r, &r->at, &t, SERIES_MAX);
}

static bool get_tokens(struct tks_jsonl_reader *r, const struct tks_jvalue *v)
{
	int64_t n;
	int32_t k;

	if (!get_int(v, 0, INT32_MAX, &n))
		return false;
	k = n == TKS_NULL ? -1 : (int32_t)n;
	return push(r, &r->in_frame, &k, SERIES_MAX);
}

static bool is_object(const struct tks_jvalue *v)
{
	return v->type == TKS_JS_OBJECT_BEGIN || v->type == TKS_JS_OBJECT;
}

static bool is_array(const struct tks_jvalue *v)
{
	return v->type == TKS_JS_ARRAY_BEGIN || v->type == TKS_JS_ARRAY;
}

/* Null, or an object that says of how many gaps. */
static bool gaps_shape(const struct tks_jvalue *v, const struct tks_gaps *g)
{
	return v->type == TKS_JS_OBJECT ? g->n > 0 : is_object(v) || v->type == TKS_JS_NULL;
}

static bool get_choice(struct tks_jsonl_reader *r, const struct tks_jvalue *v, size_t id)
{
	struct tks_choice *c = &r->choice;

	switch (id) {
	case C_OBJECT:
		if (v->type == TKS_JS_OBJECT)
			return push(r, &r->choices, c, CHOICES_MAX);
		memset(c, 0, sizeof(*c));
		c->tokens = c->tpot_ns = TKS_NULL;
		tks_gaps_from(NULL, 0, &c->itl);
		return v->type == TKS_JS_OBJECT_BEGIN;
	case C_INDEX:
		return get_count(v, &c->index) && c->index != TKS_NULL;
	case C_TOKENS:
		return get_count(v, &c->tokens);
	case C_FRAMES:
		return get_count(v, &c->token_frames) && c->token_frames != TKS_NULL;
	case C_TPOT:
		return get_span(v, &c->tpot_ns);
	case C_FINISH:
		return get_text(v, c->finish, sizeof(c->finish));
	case C_GAPS_SHAPE:
		return gaps_shape(v, &c->itl);
	default:
		return get_gap(v, &c->itl, id - C_GAPS);
	}
}

/* The record's own boundary is written first, and so it stays. */
static bool get_boundary(struct tks_jsonl_reader *r, const struct tks_jvalue *v, size_t sub)
{
	struct tks_request *q = &r->q;
	struct tks_at_boundary *b;
	size_t id = sub % B_BLOCK;

	if (id == B_OBJECT && v->type == TKS_JS_OBJECT_BEGIN) {
		if (q->nboundaries == TKS_B_COUNT)
			return false;
		b = &q->at_boundary[q->nboundaries++];
		*b = (struct tks_at_boundary){ .boundary = (enum tks_boundary)(sub / B_BLOCK),
					       .ttft_ns = TKS_NULL,
					       .tpot_ns = TKS_NULL };
		tks_gaps_from(NULL, 0, &b->itl);
		return true;
	}
	if (!q->nboundaries)
		return false;
	b = &q->at_boundary[q->nboundaries - 1];
	switch (id) {
	case B_OBJECT:
		return v->type == TKS_JS_OBJECT;
	case B_TTFT:
		return get_span(v, &b->ttft_ns);
	case B_TPOT:
		return get_span(v, &b->tpot_ns);
	case B_ITL:
		return gaps_shape(v, &b->itl);
	default:
		return get_gap(v, &b->itl, id - B_GAPS);
	}
}

static bool get_slo(const struct tks_jvalue *v, struct tks_request *q)
{
	int64_t met;

	if (!get_bool(v, &met) || met == TKS_NULL)
		return false;
	q->slo_met = (int)met;
	return true;
}

static bool get_id(const struct tks_jvalue *v, uint64_t *out)
{
	int64_t id;

	if (!get_count(v, &id) || id == TKS_NULL)
		return false;
	*out = (uint64_t)id;
	return true;
}

/* The object or array of a field with parts. */
static bool get_shape(struct tks_jsonl_reader *r, const struct tks_field *f,
		      const struct tks_jvalue *v)
{
	switch (f->kind) {
	case TKS_FK_GAPS:
		return gaps_shape(v, (const struct tks_gaps *)((const char *)&r->q + f->offset));
	case TKS_FK_CONCURRENCY:
		return is_object(v) || v->type == TKS_JS_NULL;
	case TKS_FK_BOUNDARIES:
		return is_object(v);
	case TKS_FK_COUNTS:
		r->counted = true;
		return is_array(v);
	default:
		return is_array(v);
	}
}

static bool get_value(struct tks_jsonl_reader *r, const struct tks_field *f,
		      const struct tks_jvalue *v, size_t sub)
{
	char *at = (char *)&r->q + f->offset;

	switch (f->kind) {
	case TKS_FK_TYPE:
		r->is_request = is_word(v, "request");
		r->is_meta = is_word(v, "meta") || is_word(v, "summary");
		return true;
	case TKS_FK_U64:
		return get_id(v, (uint64_t *)at);
	case TKS_FK_INT:
		return get_int(v, f->min, f->max, (int64_t *)at);
	case TKS_FK_BOOL:
		return get_bool(v, (int64_t *)at);
	case TKS_FK_TEXT:
		return get_text(v, at, f->size);
	case TKS_FK_WORD:
		return get_word(f, v, (const char **)at);
	case TKS_FK_ENUM:
		return get_enum(f, v, (unsigned int *)at);
	case TKS_FK_GAPS:
		return get_gap(v, (struct tks_gaps *)at, sub);
	case TKS_FK_CONCURRENCY:
		return get_concurrency(v, &r->q, sub);
	case TKS_FK_FLAGS:
		return get_flag(v, &r->q);
	case TKS_FK_SLO:
		return get_slo(v, &r->q);
	case TKS_FK_TOKENS:
		return get_time(r, v);
	case TKS_FK_COUNTS:
		return get_tokens(r, v);
	case TKS_FK_BOUNDARIES:
		return get_boundary(r, v, sub);
	case TKS_FK_CHOICES:
		return get_choice(r, v, sub);
	}
	return false;
}

static void on_value(void *ctx, const struct tks_jvalue *v)
{
	struct tks_jsonl_reader *r = ctx;
	size_t id = v->id - 1u;
	const struct tks_field *f = &tks_fields[id / SUB];

	/* The type is looked at in any case: of a line of another type nothing else is of interest.
	 */
	if (r->bad && f->kind != TKS_FK_TYPE)
		return;
	if (id % SUB == SHAPE)
		r->bad |= !get_shape(r, f, v);
	else
		r->bad |= !get_value(r, f, v, id % SUB);
}

/* --- life --- */

static bool build(struct tks_jsonl_reader *r)
{
	struct builder *b = tks_mem_alloc(r->mem, sizeof(*b));

	r->paths = tks_mem_alloc(r->mem, PATHS_MAX * sizeof(*r->paths));
	if (b && r->paths) {
		b->paths = r->paths;
		for (size_t i = 0; i < tks_nfields; i++)
			add_field(b, i);
		r->schema = tks_jschema_new(b->fields, b->n);
		r->scan = r->schema ? tks_mem_alloc(r->mem, tks_jscan_size()) : NULL;
	}
	tks_mem_free(r->mem, b, sizeof(*b));
	return r->scan != NULL;
}

struct tks_jsonl_reader *tks_jsonl_reader_new(struct tks_mem *mem)
{
	struct tks_jsonl_reader *r = tks_mem_alloc(mem, sizeof(*r));

	if (!r)
		return NULL;
	r->mem = mem;
	r->at.elem = sizeof(int64_t);
	r->in_frame.elem = sizeof(int32_t);
	r->choices.elem = sizeof(struct tks_choice);
	if (!build(r)) {
		tks_jsonl_reader_free(r);
		return NULL;
	}
	tks_jscan_init(r->scan, r->schema, on_value, r);
	return r;
}

static void array_free(struct tks_jsonl_reader *r, struct array *a)
{
	tks_mem_free(r->mem, a->p, a->cap * a->elem);
}

void tks_jsonl_reader_free(struct tks_jsonl_reader *r)
{
	if (!r)
		return;
	array_free(r, &r->at);
	array_free(r, &r->in_frame);
	array_free(r, &r->choices);
	tks_mem_free(r->mem, r->scan, tks_jscan_size());
	tks_jschema_free(r->schema);
	tks_mem_free(r->mem, r->paths, PATHS_MAX * sizeof(*r->paths));
	tks_mem_free(r->mem, r, sizeof(*r));
}

static bool blank(const char *line, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r')
			return false;
	}
	return true;
}

/* A record without these is not one, and every token frame has its count or none has. */
static bool complete(const struct tks_jsonl_reader *r)
{
	return r->q.transport && r->q.dialect && (!r->counted || r->in_frame.n == r->at.n);
}

static void hand_out(struct tks_jsonl_reader *r, struct tks_request *q)
{
	r->q.token_at_ns = r->at.n ? r->at.p : NULL;
	r->q.ntoken_at = r->at.n;
	r->q.tokens_in_frame = r->in_frame.n ? r->in_frame.p : NULL;
	r->q.choices = r->choices.n > 1 ? r->choices.p : NULL;
	r->q.nchoices = r->choices.n > 1 ? r->choices.n : 0;
	*q = r->q;
}

int tks_jsonl_read(struct tks_jsonl_reader *r, const char *line, size_t len, struct tks_request *q)
{
	enum tks_jstatus status;
	size_t used = 0;

	if (blank(line, len))
		return -ENOENT;
	tks_request_init(&r->q);
	r->q.transport = r->q.dialect = NULL;
	r->at.n = r->in_frame.n = r->choices.n = 0;
	r->is_request = r->is_meta = r->bad = r->counted = false;
	r->err = 0;
	tks_jscan_reset(r->scan);
	status = tks_jscan_feed(r->scan, line, len, &used);
	if (status != TKS_JS_DONE || used != len)
		return -EBADMSG;
	if (r->err)
		return r->err;
	if (r->is_meta)
		return -ENOENT;
	if (!r->is_request || r->bad || !complete(r))
		return -EBADMSG;
	hand_out(r, q);
	return 0;
}
