// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Packet headers, one function a layer. Each takes its header off a cursor that knows both how much
 * was captured and how long the packet was on the wire, so that a header cut off by the capture's
 * snapshot length is told from one that was never there.
 */
#include "packet.h"

#include <pcap/dlt.h>
#include <string.h>
#include <sys/socket.h>

enum {
	ETH_IPV4 = 0x0800,
	ETH_IPV6 = 0x86dd,
	ETH_VLAN = 0x8100,
	ETH_QINQ = 0x88a8,
	ETH_QINQ_OLD = 0x9100,
	VLAN_TAGS_MAX = 4,
	IPV6_EXT_MAX = 16,
	/* Where the IP header gives no length (segmentation offload on the sending host), the wire
	 * length counts, up to what a BIG TCP packet can have. */
	PACKET_MAX = 1 << 20,
};

struct cursor {
	const uint8_t *p;
	uint32_t cap, len; /* captured, and on the wire, from p on */
};

static uint16_t be16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

static uint32_t be32(const uint8_t *p)
{
	return (uint32_t)be16(p) << 16 | be16(p + 2);
}

/* Are there n bytes? */
static enum tks_skip want(const struct cursor *c, uint32_t n)
{
	if (c->cap >= n)
		return TKS_SKIP_NONE;
	return c->len >= n ? TKS_SKIP_TRUNCATED : TKS_SKIP_BAD;
}

static void skip(struct cursor *c, uint32_t n)
{
	c->p += n;
	c->cap -= n;
	c->len -= n;
}

/* The layer above says that only n bytes belong to it; what follows is padding. */
static void limit(struct cursor *c, uint32_t n)
{
	c->len = n;
	if (c->cap > n)
		c->cap = n;
}

static enum tks_skip parse_tcp(struct cursor *c, struct tks_packet *p)
{
	enum tks_skip why = want(c, 20);
	uint32_t header;

	if (why)
		return why;
	header = (uint32_t)(c->p[12] >> 4) * 4;
	if (header < 20 || header > c->len)
		return TKS_SKIP_BAD;
	p->src.port = be16(c->p);
	p->dst.port = be16(c->p + 2);
	p->seq = be32(c->p + 4);
	p->ack = be32(c->p + 8);
	p->flags = c->p[13];
	if (c->cap < header)
		return TKS_SKIP_TRUNCATED;
	skip(c, header);
	p->data = c->p;
	p->cap = c->cap;
	p->len = c->len;
	return TKS_SKIP_NONE;
}

static void set_addr(struct tks_endpoint *ep, uint16_t family, const uint8_t *addr, size_t n)
{
	ep->family = family;
	memcpy(ep->addr, addr, n);
}

static enum tks_skip parse_ipv4(struct cursor *c, struct tks_packet *p)
{
	enum tks_skip why = want(c, 20);
	uint32_t header, total;

	if (why)
		return why;
	header = (uint32_t)(c->p[0] & 15) * 4;
	total = be16(c->p + 2);
	if (!total)
		total = c->len;
	if (c->p[0] >> 4 != 4 || header < 20 || total < header || total > PACKET_MAX)
		return TKS_SKIP_BAD;
	if (c->p[9] != 6)
		return TKS_SKIP_NOT_TCP;
	if (be16(c->p + 6) & 0x3fff) /* more fragments, or an offset */
		return TKS_SKIP_FRAGMENT;
	if (c->cap < header)
		return TKS_SKIP_TRUNCATED;
	set_addr(&p->src, AF_INET, c->p + 12, 4);
	set_addr(&p->dst, AF_INET, c->p + 16, 4);
	skip(c, header);
	limit(c, total - header);
	return parse_tcp(c, p);
}

/* Takes off one extension header of type *next, whose own next is put there. */
static enum tks_skip parse_ipv6_ext(struct cursor *c, uint8_t *next)
{
	enum tks_skip why = want(c, 8);
	uint32_t size;

	if (why)
		return why;
	size = 8 + (uint32_t)c->p[1] * 8;
	if (*next == 44) { /* fragment; one that is first and last at once is whole (RFC 6946) */
		if (be16(c->p + 2) & 0xfff9)
			return TKS_SKIP_FRAGMENT;
		size = 8;
	} else if (*next == 51) { /* authentication: counted in words of four (RFC 4302) */
		size = 8 + (uint32_t)c->p[1] * 4;
	}
	why = want(c, size);
	if (why)
		return why;
	*next = c->p[0];
	skip(c, size);
	return TKS_SKIP_NONE;
}

/* Hop-by-hop, routing, fragment, authentication, destination, mobility, HIP, shim6. */
static bool is_ipv6_ext(uint8_t type)
{
	return type == 0 || type == 43 || type == 44 || type == 51 || type == 60 || type == 135 ||
	       type == 139 || type == 140;
}

static enum tks_skip parse_ipv6(struct cursor *c, struct tks_packet *p)
{
	enum tks_skip why = want(c, 40);
	uint32_t payload;
	uint8_t next;

	if (why)
		return why;
	payload = be16(c->p + 4);
	if (!payload)
		payload = c->len - 40;
	if (c->p[0] >> 4 != 6 || payload > PACKET_MAX)
		return TKS_SKIP_BAD;
	next = c->p[6];
	set_addr(&p->src, AF_INET6, c->p + 8, 16);
	set_addr(&p->dst, AF_INET6, c->p + 24, 16);
	skip(c, 40);
	limit(c, payload);
	for (int i = 0; is_ipv6_ext(next); i++) {
		why = i < IPV6_EXT_MAX ? parse_ipv6_ext(c, &next) : TKS_SKIP_BAD;
		if (why)
			return why;
	}
	return next == 6 ? parse_tcp(c, p) : TKS_SKIP_NOT_TCP;
}

static enum tks_skip parse_ip(struct cursor *c, struct tks_packet *p)
{
	enum tks_skip why = want(c, 1);

	if (why)
		return why;
	return c->p[0] >> 4 == 6 ? parse_ipv6(c, p) : parse_ipv4(c, p);
}

static enum tks_skip parse_ethertype(struct cursor *c, uint16_t type, struct tks_packet *p)
{
	enum tks_skip why;

	for (int i = 0; type == ETH_VLAN || type == ETH_QINQ || type == ETH_QINQ_OLD; i++) {
		why = i < VLAN_TAGS_MAX ? want(c, 4) : TKS_SKIP_BAD;
		if (why)
			return why;
		type = be16(c->p + 2);
		skip(c, 4);
	}
	if (type == ETH_IPV4)
		return parse_ipv4(c, p);
	return type == ETH_IPV6 ? parse_ipv6(c, p) : TKS_SKIP_NOT_IP;
}

/* A link header of size bytes with the ethertype at type_at. */
static enum tks_skip parse_link(struct cursor *c, uint32_t size, uint32_t type_at,
				struct tks_packet *p)
{
	enum tks_skip why = want(c, size);
	uint16_t type;

	if (why)
		return why;
	type = be16(c->p + type_at);
	skip(c, size);
	return parse_ethertype(c, type, p);
}

/*
 * BSD loopback: the address family as a word in the byte order of the host that captured (DLT_NULL)
 * or in network order (DLT_LOOP). Families are below 256, so that either order can be read.
 */
static enum tks_skip parse_loop(struct cursor *c, struct tks_packet *p)
{
	enum tks_skip why = want(c, 4);
	uint32_t family;

	if (why)
		return why;
	family = be32(c->p);
	if (family > 255)
		family = __builtin_bswap32(family);
	skip(c, 4);
	switch (family) {
	case 2:
		return parse_ipv4(c, p);
	case 10: /* Linux */
	case 24: /* NetBSD, OpenBSD */
	case 28: /* FreeBSD */
	case 30: /* Darwin */
		return parse_ipv6(c, p);
	default:
		return TKS_SKIP_NOT_IP;
	}
}

bool tks_packet_link_known(int link)
{
	switch (link) {
	case DLT_EN10MB:
	case DLT_LINUX_SLL:
	case DLT_LINUX_SLL2:
	case DLT_RAW:
	case DLT_IPV4:
	case DLT_IPV6:
	case DLT_NULL:
	case DLT_LOOP:
		return true;
	default:
		return false;
	}
}

enum tks_skip tks_packet_parse(int link, const uint8_t *data, uint32_t cap, uint32_t len,
			       struct tks_packet *p)
{
	struct cursor c = { data, cap < len ? cap : len, len };

	memset(p, 0, sizeof(*p));
	switch (link) {
	case DLT_EN10MB:
		return parse_link(&c, 14, 12, p);
	case DLT_LINUX_SLL:
		return parse_link(&c, 16, 14, p);
	case DLT_LINUX_SLL2:
		return parse_link(&c, 20, 0, p);
	case DLT_RAW:
	case DLT_IPV4:
	case DLT_IPV6:
		return parse_ip(&c, p);
	case DLT_NULL:
	case DLT_LOOP:
		return parse_loop(&c, p);
	default:
		return TKS_SKIP_NOT_IP;
	}
}

const char *tks_skip_name(enum tks_skip why)
{
	static const char *const names[TKS_SKIPS] = {
		[TKS_SKIP_NONE] = "used",
		[TKS_SKIP_NOT_IP] = "not IP",
		[TKS_SKIP_NOT_TCP] = "not TCP",
		[TKS_SKIP_FRAGMENT] = "IP fragments",
		[TKS_SKIP_TRUNCATED] = "captured too short",
		[TKS_SKIP_BAD] = "malformed",
		[TKS_SKIP_FILTERED] = "other ports",
		[TKS_SKIP_LATE] = "after their connection's end",
		[TKS_SKIP_EMPTY] = "without data",
	};

	return why < TKS_SKIPS ? names[why] : "?";
}
