// SPDX-License-Identifier: GPL-2.0-only
/*
 * Go: functions of crypto/tls by Go's internal ABI (see regs.bpf.h). No return probe, which would
 * move what Go's stacks are copied with: probes on the return instructions.
 */

SEC("?uprobe")
int go_write(struct pt_regs *ctx)
{
	struct tls_piece p = { .kind = TKS_REC_TLS_TX, .lib = TKS_TLS_GO };
	struct go_call *g = go_call_get(GO_GOROUTINE(ctx), true);
	struct tls_call *c = tls_call_get(true);
	__u64 len = GO_REG3(ctx);
	struct tls_obj *o;

	p.ts_ns = bpf_ktime_get_ns();
	p.obj = GO_REG1(ctx);
	p.addr = GO_REG2(ctx);
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
	struct go_call *g = go_call_get(GO_GOROUTINE(ctx), true);

	if (!g || g->obj == GO_REG1(ctx))
		return 0;
	g->call = 0;
	g->obj = tls_obj_get(GO_REG1(ctx)) ? GO_REG1(ctx) : 0;
	return 0;
}

SEC("?uprobe")
int go_close(struct pt_regs *ctx)
{
	return tls_obj_free(GO_REG1(ctx));
}

SEC("?uprobe")
int go_read(struct pt_regs *ctx)
{
	struct go_call *g = go_call_get(GO_GOROUTINE(ctx), true);

	if (!g)
		return 0;
	g->read_obj = GO_REG1(ctx);
	g->read_buf = GO_REG2(ctx);
	g->read_size = GO_REG3(ctx);
	return 0;
}

SEC("?uprobe")
int go_read_ret(struct pt_regs *ctx)
{
	struct tls_piece p = { .kind = TKS_REC_TLS_RX, .lib = TKS_TLS_GO };
	struct go_call *g = go_call_get(GO_GOROUTINE(ctx), false);
	__u64 len = GO_REG1(ctx);
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
