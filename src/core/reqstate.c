// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A running request: collects what frames prove and computes the record's figures at the end, by
 * the definitions of design.md section 1 (docs/records.md repeats them).
 *
 * What is kept of a token frame is 16 bytes: its time, its count, its choice and whether bytes are
 * missing before it. Everything else is counters.
 */
#include "reqstate.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tokensnoop/stats.h"

enum { TOKEN_TIMES = 262144, CHOICES = 128, ENTRIES_MIN = 16 };

struct entry {
	int64_t t_ns;
	int32_t tokens; /* -1: not known */
	uint16_t choice; /* index into choices */
	bool hole; /* bytes are missing between the entry before and this one */
};

struct choice {
	uint32_t index;
	int64_t token_frames;
	int64_t known; /* tokens in frames that say their count */
	int64_t unknown; /* token frames that don't */
	int64_t counter; /* cumulative, as last said; -1: never */
	bool base_lost; /* a hole came after that */
	int64_t t_finish_ns, finish_tls_ns;
	bool finish_counted; /* the finish frame is an entry */
	char finish[32];
	bool natural; /* the model ended by itself */
	bool pending;
	struct tks_choice_facts facts; /* of the frame under way */
};

struct tks_reqstate {
	struct tks_mem *mem;
	uint32_t max_times, max_choices;
	struct tks_request rec;
	struct entry *entries;
	size_t nentries, cap_entries;
	int64_t *tls; /* when each entry entered the TLS library, 0: not known; NULL: none did */
	size_t cap_tls;
	int64_t first_tls_ns, last_tls_ns; /* of the first and last token frame */
	bool entries_cut; /* the limit or memory left entries out */
	struct choice *choices;
	size_t nchoices, cap_choices;
	bool choices_cut; /* the limit or memory left choices out */
	int64_t counter; /* cumulative over choices, as last said; -1: never */
	int64_t pending_counter; /* in the frame under way; -1: none */
	bool base_lost; /* a hole came after the counter was last heard */
	bool counter_stale; /* a token frame came after it, without it */
	int64_t total; /* the server's own, TKS_NULL: none */
	bool hole; /* since the last token frame */
	bool any_hole, hole_before_first;
	bool done, error;
	bool arrival; /* the frame under way can't be read */
	bool arrivals; /* the entries are frames that can't be read, not tokens */
	bool pause, paused; /* since the last token frame; ever between two */
	bool visible; /* a token that is not reasoning was seen */
	bool last_finish; /* the last token frame is a finish frame without text */
	uint64_t last_send;
	int64_t first_token_ns, last_token_ns;
	/* Handed out with the record. */
	int64_t *at;
	int32_t *in_frame;
	struct tks_choice *out_choices;
};

struct tks_reqstate *tks_reqstate_new(struct tks_mem *mem, const struct tks_reqstate_limits *limits)
{
	struct tks_reqstate *r = tks_mem_alloc(mem, sizeof(*r));

	if (!r)
		return NULL;
	r->mem = mem;
	r->max_times = limits && limits->token_times ? limits->token_times : TOKEN_TIMES;
	r->max_choices = limits && limits->choices ? limits->choices : CHOICES;
	r->counter = r->pending_counter = -1;
	r->total = r->first_token_ns = r->last_token_ns = TKS_NULL;
	tks_request_init(&r->rec);
	return r;
}

void tks_reqstate_free(struct tks_reqstate *r)
{
	if (!r)
		return;
	tks_mem_free(r->mem, r->at, r->nentries * sizeof(*r->at));
	tks_mem_free(r->mem, r->in_frame, r->nentries * sizeof(*r->in_frame));
	tks_mem_free(r->mem, r->out_choices, r->nchoices * sizeof(*r->out_choices));
	tks_mem_free(r->mem, r->entries, r->cap_entries * sizeof(*r->entries));
	tks_mem_free(r->mem, r->tls, r->cap_tls * sizeof(*r->tls));
	tks_mem_free(r->mem, r->choices, r->cap_choices * sizeof(*r->choices));
	tks_mem_free(r->mem, r, sizeof(*r));
}

struct tks_request *tks_reqstate_record(struct tks_reqstate *r)
{
	return &r->rec;
}

bool tks_reqstate_ended(const struct tks_reqstate *r)
{
	if (r->done || r->error)
		return true;
	for (size_t i = 0; i < r->nchoices; i++) {
		if (r->choices[i].finish[0])
			return true;
	}
	return false;
}

/* --- what a frame says --- */

static struct choice *choice_of(struct tks_reqstate *r, uint32_t index)
{
	struct choice *c;

	for (size_t i = 0; i < r->nchoices; i++) {
		if (r->choices[i].index == index)
			return &r->choices[i];
	}
	if (r->nchoices == r->max_choices)
		return NULL;
	if (r->nchoices == r->cap_choices) {
		size_t cap = r->cap_choices ? r->cap_choices * 2 : 1;

		c = tks_mem_resize(r->mem, r->choices, r->cap_choices * sizeof(*c),
				   cap * sizeof(*c));
		if (!c)
			return NULL;
		r->choices = c;
		r->cap_choices = cap;
	}
	c = &r->choices[r->nchoices++];
	memset(c, 0, sizeof(*c));
	c->index = index;
	c->counter = -1;
	c->base_lost = r->any_hole;
	c->t_finish_ns = TKS_NULL;
	return c;
}

void tks_reqstate_choice(struct tks_reqstate *r, const struct tks_choice_facts *f)
{
	struct choice *c = choice_of(r, f->index);

	if (!c) {
		r->choices_cut = true;
		r->rec.flags |= TKS_F_TRUNCATED;
		return;
	}
	/* Several entries for one choice in one frame are one arrival. */
	if (c->pending) {
		c->facts.reasoning = c->facts.reasoning && f->reasoning;
		c->facts.token |= f->token;
		c->facts.text |= f->text;
		c->facts.finish_is_token |= f->finish_is_token;
		if (f->tokens >= 0)
			c->facts.tokens = f->tokens + (c->facts.tokens > 0 ? c->facts.tokens : 0);
		if (f->counter >= 0)
			c->facts.counter = f->counter;
		if (f->finish[0]) {
			memcpy(c->facts.finish, f->finish, sizeof(f->finish));
			c->facts.natural = f->natural;
		}
		return;
	}
	c->facts = *f;
	c->pending = true;
}

void tks_reqstate_usage(struct tks_reqstate *r, const struct tks_usage *u)
{
	/* Some servers send a zeroed usage in every frame but the last; no prompt is empty. */
	if (u->output_tokens != TKS_NULL && (u->output_tokens > 0 || r->total == TKS_NULL))
		r->total = u->output_tokens;
	if (u->prompt_tokens > 0)
		r->rec.prompt_tokens = u->prompt_tokens;
	if (u->cached_tokens != TKS_NULL)
		r->rec.cached_tokens = u->cached_tokens;
	if (u->reasoning_tokens != TKS_NULL)
		r->rec.reasoning_tokens = u->reasoning_tokens;
}

void tks_reqstate_counter(struct tks_reqstate *r, int64_t output_tokens)
{
	if (output_tokens > r->pending_counter)
		r->pending_counter = output_tokens;
}

void tks_reqstate_error(struct tks_reqstate *r, const char *kind, const char *code)
{
	r->error = true;
	snprintf(r->rec.error, sizeof(r->rec.error), "%s%s%s",
		 kind[0]   ? kind
		 : code[0] ? ""
			   : "error",
		 kind[0] && code[0] ? ": " : "", code);
}

void tks_reqstate_arrival(struct tks_reqstate *r)
{
	r->arrival = true;
}

void tks_reqstate_pause(struct tks_reqstate *r)
{
	r->pause = true;
}

void tks_reqstate_done(struct tks_reqstate *r)
{
	r->done = true;
}

/* --- frames --- */

/* Of the entry that was added last. */
static int note_tls(struct tks_reqstate *r, int64_t tls_ns)
{
	int64_t *grown;

	if (!r->tls && !tls_ns)
		return 0;
	if (!r->tls || r->cap_tls < r->cap_entries) {
		grown = tks_mem_resize(r->mem, r->tls, r->cap_tls * sizeof(*grown),
				       r->cap_entries * sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		r->tls = grown;
		r->cap_tls = r->cap_entries;
	}
	r->tls[r->nentries - 1] = tls_ns;
	return 0;
}

static int entry_add(struct tks_reqstate *r, const struct entry *e, int64_t tls_ns)
{
	struct entry *grown;

	if (r->nentries == r->cap_entries) {
		size_t cap = r->cap_entries ? r->cap_entries * 2 : ENTRIES_MIN;

		if (cap > r->max_times)
			cap = r->max_times;
		grown = cap > r->cap_entries ? tks_mem_resize(r->mem, r->entries,
							      r->cap_entries * sizeof(*grown),
							      cap * sizeof(*grown))
					     : NULL;
		if (!grown) {
			r->entries_cut = true;
			r->rec.flags |= TKS_F_TRUNCATED;
			return cap > r->cap_entries ? -ENOMEM : 0;
		}
		r->entries = grown;
		r->cap_entries = cap;
	}
	r->entries[r->nentries++] = *e;
	return note_tls(r, tls_ns);
}

/* Raises a cumulative counter to now; by how much, or -1 where that is not known. */
static int32_t count_step(const struct tks_reqstate *r, int64_t *counter, bool *base_lost,
			  int64_t now)
{
	int64_t base = *counter;
	bool lost = *base_lost || (base < 0 && (r->rec.flags & TKS_F_MID_STREAM));

	*base_lost = false;
	if (now <= base)
		return lost ? -1 : 0;
	*counter = now;
	if (lost)
		return -1;
	now -= base < 0 ? 0 : base;
	return now > INT32_MAX ? INT32_MAX : (int32_t)now;
}

/* Tokens that this frame holds of the choice; -1: not said. What is said in so many words (ids)
 * goes before counters. */
static int32_t tokens_in(struct tks_reqstate *r, struct choice *c, size_t pending)
{
	const struct tks_choice_facts *f = &c->facts;
	int32_t step = -1;

	if (f->counter >= 0)
		step = count_step(r, &c->counter, &c->base_lost, f->counter);
	else if (pending == 1 && r->pending_counter >= 0)
		step = count_step(r, &r->counter, &r->base_lost, r->pending_counter);
	return f->tokens >= 0 ? f->tokens : step;
}

static void note_finish(struct choice *c, const struct tks_frame_at *at)
{
	if (!c->facts.finish[0])
		return;
	memcpy(c->finish, c->facts.finish, sizeof(c->finish));
	c->natural = c->facts.natural;
	c->t_finish_ns = at->t_ns;
	c->finish_tls_ns = at->tls_ns;
}

static int token_frame(struct tks_reqstate *r, struct choice *c, const struct tks_frame_at *at,
		       int32_t tokens, bool finish)
{
	struct entry e = { .t_ns = at->t_ns, .tokens = tokens, .hole = r->hole || r->pause };

	e.choice = (uint16_t)(c - r->choices);
	r->paused |= r->pause && r->rec.token_frames;
	r->pause = false;
	if (r->arrivals)
		r->nentries = 0;
	r->arrivals = false;
	if (!r->rec.token_frames) {
		r->hole_before_first = r->any_hole;
		r->first_token_ns = at->t_ns;
		r->first_tls_ns = at->tls_ns;
	} else if (at->send_id == r->last_send && at->t_ns != TKS_NULL) {
		r->rec.flags |= TKS_F_COALESCED;
	}
	if (tokens > 1)
		r->rec.flags |= TKS_F_MULTI_TOKEN;
	if (!r->visible && !c->facts.reasoning && !r->any_hole)
		r->rec.t_visible_ns = at->t_ns;
	r->visible |= !c->facts.reasoning;
	r->rec.token_frames++;
	c->token_frames++;
	if (tokens < 0)
		c->unknown++;
	else
		c->known += tokens;
	if (finish)
		c->finish_counted = true;
	r->hole = false;
	r->last_finish = finish;
	r->last_send = at->send_id;
	r->last_token_ns = at->t_ns;
	r->last_tls_ns = at->tls_ns;
	return entry_add(r, &e, at->tls_ns);
}

static int choice_frame(struct tks_reqstate *r, struct choice *c, const struct tks_frame_at *at,
			size_t pending)
{
	int32_t tokens = tokens_in(r, c, pending);
	bool finish = c->facts.finish[0];

	c->pending = false;
	note_finish(c, at);
	/* A finish frame that says that it holds none is no token, whatever the dialect. */
	if (!c->facts.token && tokens <= 0 && !(finish && c->facts.finish_is_token && tokens < 0)) {
		/* By how much the count grew is not known: tokens may have come here. */
		r->hole |= c->facts.counter >= 0 && tokens < 0;
		return 0;
	}
	return token_frame(r, c, at, tokens, finish && !c->facts.text);
}

/* What can't be read came. */
static int arrival_frame(struct tks_reqstate *r, const struct tks_frame_at *at)
{
	struct entry e = { .t_ns = at->t_ns, .tokens = -1, .hole = r->hole };

	r->arrival = false;
	if (r->rec.token_frames)
		return 0;
	r->arrivals = true;
	r->hole = false;
	r->last_send = at->send_id;
	return entry_add(r, &e, at->tls_ns);
}

int tks_reqstate_frame(struct tks_reqstate *r, const struct tks_frame_at *at)
{
	int64_t before = r->rec.token_frames;
	size_t pending = 0;
	int err = 0;

	r->rec.frames++;
	for (size_t i = 0; i < r->nchoices; i++)
		pending += r->choices[i].pending;
	for (size_t i = 0; i < r->nchoices; i++) {
		if (r->choices[i].pending && choice_frame(r, &r->choices[i], at, pending))
			err = -ENOMEM;
	}
	/* Whose tokens they are is not said. */
	if (pending != 1 && r->pending_counter > r->counter)
		r->counter = r->pending_counter;
	if (r->pending_counter >= 0 || r->rec.token_frames > before)
		r->counter_stale = r->pending_counter < 0;
	r->pending_counter = -1;
	if (r->arrival)
		err = arrival_frame(r, at);
	return err;
}

int tks_reqstate_bytes(struct tks_reqstate *r, const struct tks_frame_at *at)
{
	return r->nentries && at->send_id == r->last_send ? 0 : arrival_frame(r, at);
}

void tks_reqstate_hole(struct tks_reqstate *r)
{
	for (size_t i = 0; i < r->nchoices; i++) {
		r->choices[i].pending = false;
		r->choices[i].base_lost = true;
	}
	r->pending_counter = -1;
	/* Said before the end, it was that of then. */
	if (!tks_reqstate_ended(r))
		r->total = TKS_NULL;
	r->hole = r->any_hole = true;
	r->base_lost = true;
}

/* --- the figures --- */

/* Tokens that the frames account for, one each where they don't say; *known: all of them say. */
static int64_t accounted(const struct tks_reqstate *r, bool *known)
{
	int64_t n = 0;

	*known = r->rec.token_frames > 0;
	for (size_t i = 0; i < r->nchoices; i++) {
		n += r->choices[i].known + r->choices[i].unknown;
		*known &= !r->choices[i].unknown;
	}
	return n;
}

/* Every frame of the answer was seen and counted. */
static bool whole(const struct tks_reqstate *r)
{
	return !r->any_hole && !r->choices_cut && !(r->rec.flags & TKS_F_MID_STREAM);
}

/* The total is one more than the frames account for: the end-of-sequence token came with the
 * finish. */
static bool eos_at_finish(const struct tks_reqstate *r, int64_t seen)
{
	const struct choice *c = r->choices;

	return r->nchoices == 1 && r->total == seen + 1 && !c->finish_counted && c->natural &&
	       c->t_finish_ns != TKS_NULL;
}

/* Tokens would have been seen, had there been any. */
static bool readable(const struct tks_request *q)
{
	return q->streamed == 1 && !(q->flags & TKS_F_OPAQUE) && strcmp(q->dialect, "unknown") != 0;
}

static void count_tokens(struct tks_reqstate *r, bool *eos)
{
	struct tks_request *q = &r->rec;
	bool known;
	int64_t seen = accounted(r, &known);

	/* A server that fills in nothing sends 0. */
	if (!r->total && q->token_frames)
		r->total = TKS_NULL;
	/* The latest count is a total if nothing can have come behind it. */
	if (r->total == TKS_NULL && whole(r) && r->counter > 0 && !r->counter_stale)
		r->total = r->counter;
	*eos = whole(r) && r->total != TKS_NULL && eos_at_finish(r, seen);
	known &= whole(r);
	if (r->total != TKS_NULL) {
		q->tokens = r->total;
		q->tokens_source = TKS_SRC_USAGE;
		if (known && (seen == r->total || *eos))
			q->tokens_source = TKS_SRC_PER_FRAME;
		else if (known)
			q->flags |= TKS_F_COUNT_MISMATCH;
		return;
	}
	if (!whole(r))
		return;
	q->tokens = seen;
	q->tokens_source = known ? TKS_SRC_PER_FRAME : TKS_SRC_FRAMES;
	if (!q->token_frames) {
		q->tokens_source = TKS_SRC_NONE;
		q->tokens = readable(q) && !r->arrivals ? 0 : TKS_NULL;
	} else if (!known) {
		q->flags |= TKS_F_ESTIMATED;
	}
}

/* With a hole the frames don't account for the total, so that whether the finish frame brought the
 * last token is not known. */
static bool eos_in_doubt(const struct tks_reqstate *r)
{
	const struct choice *c = r->choices;

	return r->nchoices == 1 && (r->any_hole || (r->rec.flags & TKS_F_MID_STREAM)) &&
	       !c->finish_counted && (!c->finish[0] || c->natural);
}

static void set_times(struct tks_reqstate *r, bool eos)
{
	struct tks_request *q = &r->rec;
	size_t finished = 0;

	for (size_t i = 0; i < r->nchoices; i++) {
		if (r->choices[i].t_finish_ns > q->t_finish_ns)
			q->t_finish_ns = r->choices[i].t_finish_ns;
		finished += r->choices[i].finish[0] != 0;
	}
	/* Some choice's finish may be in the hole. */
	if (r->any_hole && (!finished || finished < r->nchoices || (int64_t)finished < q->n))
		q->t_finish_ns = TKS_NULL;
	/* A lone end-of-sequence token, without a frame of its own. */
	if (!q->token_frames && eos) {
		q->t_first_ns = q->t_visible_ns = q->t_last_ns = q->t_finish_ns;
		q->t_last_source = TKS_LAST_FINISH;
	}
	if (!q->token_frames)
		return;
	if (!r->hole_before_first && !(q->flags & TKS_F_MID_STREAM))
		q->t_first_ns = r->first_token_ns;
	/* With bytes missing behind it, the last one seen need not be the last one sent. */
	if (r->hole || r->choices_cut || eos_in_doubt(r))
		return;
	q->t_last_ns = eos ? q->t_finish_ns : r->last_token_ns;
	if (q->t_last_ns != TKS_NULL)
		q->t_last_source = eos || r->last_finish ? TKS_LAST_FINISH : TKS_LAST_TEXT;
}

static int64_t minus(int64_t a, int64_t b)
{
	return a == TKS_NULL || b == TKS_NULL ? TKS_NULL : a - b;
}

/* Rounded to the nearest; span >= 0. */
static int64_t per(int64_t span, int64_t n)
{
	return (span + n / 2) / n;
}

static void set_latencies(struct tks_reqstate *r)
{
	struct tks_request *q = &r->rec;
	int64_t decode = minus(q->t_last_ns, q->t_first_ns);

	q->ttft_ns = minus(q->t_first_ns, q->t_request_end_ns);
	if (q->t_first_ns != TKS_NULL)
		q->ttft_visible_ns = minus(q->t_visible_ns, q->t_request_end_ns);
	if (r->nchoices == 1 && q->tokens != TKS_NULL && q->tokens > 1 && decode != TKS_NULL &&
	    !r->paused)
		q->tpot_ns = per(decode, q->tokens - 1);
}

/* Gaps between consecutive entries of a choice (-1: of all), per token or not, at the record's
 * boundary or at the TLS library's. n gaps into v. */
static size_t gaps(const struct tks_reqstate *r, int choice, bool per_token, bool tls, int64_t *v)
{
	const struct entry *prev = NULL;
	bool hole = false;
	size_t n = 0;

	for (size_t i = 0; i < r->nentries; i++) {
		const struct entry *e = &r->entries[i];
		int64_t k = per_token ? e->tokens : 1;
		int64_t gap = prev ? minus(e->t_ns, prev->t_ns) : TKS_NULL;

		if (tls && prev)
			gap = r->tls[i] - r->tls[prev - r->entries];

		hole |= e->hole;
		if (choice >= 0 && e->choice != choice)
			continue;
		if (gap != TKS_NULL && !hole && k > 0)
			v[n++] = per(gap, k);
		prev = e;
		hole = false;
	}
	return n;
}

static void set_gaps(struct tks_reqstate *r)
{
	size_t size = r->nentries * sizeof(int64_t);
	bool known = r->nchoices > 0;
	int64_t *v;

	if (r->entries_cut || r->nentries < 2)
		return;
	v = tks_mem_alloc(r->mem, size);
	if (!v) {
		r->rec.flags |= TKS_F_TRUNCATED;
		return;
	}
	for (size_t i = 0; i < r->nchoices; i++)
		known &= !r->choices[i].unknown && !r->arrivals;
	if (r->arrivals)
		r->rec.flags |= TKS_F_ESTIMATED;
	tks_gaps_from(v, gaps(r, -1, false, false, v), &r->rec.itl);
	if (known)
		tks_gaps_from(v, gaps(r, -1, true, false, v), &r->rec.itl_per_token);
	for (size_t i = 0; r->out_choices && i < r->nchoices; i++)
		tks_gaps_from(v, gaps(r, (int)i, false, false, v), &r->out_choices[i].itl);
	tks_mem_free(r->mem, v, size);
}

static bool all_at_tls(const struct tks_reqstate *r)
{
	for (size_t i = 0; i < r->nentries; i++) {
		if (!r->tls[i])
			return false;
	}
	return r->nentries && !r->arrivals && !r->entries_cut;
}

/* The same latencies as they were where the plaintext entered the TLS library. */
static void set_at_tls(struct tks_reqstate *r, bool eos)
{
	struct tks_request *q = &r->rec;
	struct tks_at_boundary *b = q->at_boundary;
	int64_t last = eos ? r->choices[0].finish_tls_ns : r->last_tls_ns;
	int64_t *v;

	if (!r->tls || !all_at_tls(r) || q->boundary == TKS_B_TLS)
		return;
	v = tks_mem_alloc(r->mem, r->nentries * sizeof(*v));
	if (!v) {
		q->flags |= TKS_F_TRUNCATED;
		return;
	}
	b[0] = (struct tks_at_boundary){ q->boundary, q->ttft_ns, q->tpot_ns, q->itl };
	b[1] = (struct tks_at_boundary){ TKS_B_TLS, TKS_NULL, TKS_NULL, { .n = 0 } };
	if (q->ttft_ns != TKS_NULL && r->first_tls_ns)
		b[1].ttft_ns = minus(r->first_tls_ns, q->t_request_end_ns);
	if (q->tpot_ns != TKS_NULL && r->first_tls_ns && last)
		b[1].tpot_ns = per(last - r->first_tls_ns, q->tokens - 1);
	tks_gaps_from(v, gaps(r, -1, false, true, v), &b[1].itl);
	q->nboundaries = 2;
	tks_mem_free(r->mem, v, r->nentries * sizeof(*v));
}

static void choice_out(const struct tks_reqstate *r, size_t i, struct tks_choice *o)
{
	const struct choice *c = &r->choices[i];
	const struct entry *first = NULL, *last = NULL;
	int64_t decode;

	o->index = c->index;
	o->token_frames = c->token_frames;
	o->tokens = whole(r) && !c->unknown && c->token_frames ? c->known : TKS_NULL;
	o->tpot_ns = TKS_NULL;
	tks_gaps_from(NULL, 0, &o->itl);
	memcpy(o->finish, c->finish, sizeof(o->finish));
	for (size_t k = 0; k < r->nentries; k++) {
		if (r->entries[k].choice != i)
			continue;
		first = first ? first : &r->entries[k];
		last = &r->entries[k];
	}
	if (r->entries_cut || !last || o->tokens == TKS_NULL || o->tokens < 2)
		return;
	decode = minus(last->t_ns, first->t_ns);
	if (decode != TKS_NULL)
		o->tpot_ns = per(decode, o->tokens - 1);
}

static void set_choices(struct tks_reqstate *r)
{
	if (r->nchoices < 2)
		return;
	r->out_choices = tks_mem_alloc(r->mem, r->nchoices * sizeof(*r->out_choices));
	if (!r->out_choices) {
		r->rec.flags |= TKS_F_TRUNCATED;
		return;
	}
	for (size_t i = 0; i < r->nchoices; i++)
		choice_out(r, i, &r->out_choices[i]);
	r->rec.choices = r->out_choices;
	r->rec.nchoices = r->nchoices;
}

/* The series, for reporters. */
static void set_series(struct tks_reqstate *r)
{
	bool any_known = false;

	if (!r->nentries || r->arrivals)
		return;
	r->at = tks_mem_alloc(r->mem, r->nentries * sizeof(*r->at));
	r->in_frame = tks_mem_alloc(r->mem, r->nentries * sizeof(*r->in_frame));
	if (!r->at || !r->in_frame) {
		r->rec.flags |= TKS_F_TRUNCATED;
		return;
	}
	for (size_t i = 0; i < r->nentries; i++) {
		r->at[i] = r->entries[i].t_ns;
		r->in_frame[i] = r->entries[i].tokens;
		any_known |= r->entries[i].tokens >= 0;
	}
	r->rec.token_at_ns = r->at;
	r->rec.tokens_in_frame = any_known ? r->in_frame : NULL;
	r->rec.ntoken_at = r->nentries;
}

static void set_finish(struct tks_reqstate *r, enum tks_outcome how)
{
	static const char *const names[] = { [TKS_OUT_COMPLETE] = "",
					     [TKS_OUT_ABORTED] = "aborted",
					     [TKS_OUT_CUT] = "cut",
					     [TKS_OUT_OPEN] = "open" };
	struct tks_request *q = &r->rec;
	const char *finish = r->nchoices ? r->choices[0].finish : "";

	if (r->error)
		finish = "error";
	else if (!finish[0] && !r->done)
		finish = names[how];
	snprintf(q->finish, sizeof(q->finish), "%s", finish);
}

const struct tks_request *tks_reqstate_finish(struct tks_reqstate *r, enum tks_outcome how)
{
	bool eos = false;

	/* A hole for any other reason than bytes that were not seen has its own flag. */
	if (r->any_hole && !(r->rec.flags & (TKS_F_MID_STREAM | TKS_F_OPAQUE)))
		r->rec.flags |= TKS_F_LOST;
	count_tokens(r, &eos);
	set_finish(r, how);
	if (how == TKS_OUT_COMPLETE)
		r->rec.e2e_ns = minus(r->rec.t_end_ns, r->rec.t_request_end_ns);
	if (r->rec.streamed == 0)
		return &r->rec;
	set_times(r, eos);
	set_latencies(r);
	set_choices(r);
	set_gaps(r);
	set_at_tls(r, eos);
	set_series(r);
	return &r->rec;
}
