// SPDX-License-Identifier: GPL-2.0-only
/*
 * Go: functions of crypto/tls by Go's internal ABI: the receiver in ax, a slice in bx, cx (its
 * length) and di, results from ax on, the goroutine in r14. No return probe, which would move what
 * Go's stacks are copied with: probes on the return instructions.
 */

SEC("?uprobe")
int go_write(struct pt_regs *ctx)
{
	struct tls_piece p = { .kind = TKS_REC_TLS_TX, .lib = TKS_TLS_GO };
	struct go_call *g = go_call_get(ctx->r14, true);
	struct tls_call *c = tls_call_get(true);
	__u64 len = ctx->cx;
	struct tls_obj *o;

	p.ts_ns = bpf_ktime_get_ns();
	p.obj = ctx->ax;
	p.addr = ctx->bx;
	if (!g || !c || !p.obj || !p.addr || !len || len > 0x7fffffff)
		return 0;
	o = tls_obj_get(p.obj);
	g->obj = p.obj;
	g->call = o ? o->tx_calls + 1 : 0;
	if (!o)
		return 0;
	tls_count(o, &p, len);
	tls_emit_all(c, &p, len);
	return 0;
}

/* (*Conn).serverHandshake, clientHandshake: what is sent in them is the object's, but nobody's
 * plaintext. Not what calls them: each read and write asks it whether there was a handshake. */
SEC("?uprobe")
int go_handshake(struct pt_regs *ctx)
{
	struct go_call *g = go_call_get(ctx->r14, true);

	if (!g || g->obj == ctx->ax)
		return 0;
	g->call = 0;
	g->obj = tls_obj_get(ctx->ax) ? ctx->ax : 0;
	return 0;
}

SEC("?uprobe")
int go_close(struct pt_regs *ctx)
{
	return tls_obj_free(ctx->ax);
}

SEC("?uprobe")
int go_read(struct pt_regs *ctx)
{
	struct go_call *g = go_call_get(ctx->r14, true);

	if (!g)
		return 0;
	g->read_obj = ctx->ax;
	g->read_buf = ctx->bx;
	g->read_size = ctx->cx;
	return 0;
}

SEC("?uprobe")
int go_read_ret(struct pt_regs *ctx)
{
	struct tls_piece p = { .kind = TKS_REC_TLS_RX, .lib = TKS_TLS_GO };
	struct go_call *g = go_call_get(ctx->r14, false);
	__u64 len = ctx->ax;
	struct tls_call *c;
	struct tls_obj *o;

	if (!g || !g->read_obj)
		return 0;
	p.obj = g->read_obj;
	g->read_obj = 0;
	c = tls_call_get(true);
	if (!c || !len || len > g->read_size)
		return 0;
	o = tls_obj_get(p.obj);
	if (!o)
		return 0;
	p.ts_ns = bpf_ktime_get_ns();
	p.addr = g->read_buf;
	p.asked = g->read_size;
	tls_was_read(c, o, &p, len);
	return 0;
}
