// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A file is known by device and inode, and looked at once. What counts is which functions it
 * defines, not what it is called. It is opened by the process's map_files where that is permitted
 * (a library that was replaced on disk is still the one that runs), else by the path below the
 * process's root.
 */
#include "tls_attach.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <linux/magic.h>

#include <bpf/libbpf.h>

#include "elfdebug.h"
#include "elfsym.h"
#include "gofunc.h"
#include "maps.h"
#include "priv.h"
#include "spot.h"
#include "tokensnoop.skel.h"
#include "uprobe.h"

enum { LIB_OPENSSL = 1, LIB_GNUTLS = 2, LIB_NSS = 4, LIB_GO = 8 };

/* CHEAPEST: near the entry, for what is called with each frame. */
enum place { ENTRY, RETURN, CHEAPEST };

/* Which program goes on which function. */
struct probe {
	const char *function;
	const char *prog;
	uint8_t lib; /* whose presence it shows */
	enum place place;
	const char *unless; /* not where this one is, which it calls */
};

static const struct probe probes[] = {
	{ "SSL_write", "tls_write_openssl", LIB_OPENSSL, CHEAPEST, NULL },
	{ "SSL_write_ex", "tls_write_openssl", LIB_OPENSSL, CHEAPEST, NULL },
	{ "SSL_write_ex2", "tls_write_openssl", LIB_OPENSSL, CHEAPEST, NULL },
	{ "SSL_write_early_data", "tls_write_openssl", LIB_OPENSSL, CHEAPEST, NULL },
	{ "SSL_read", "tls_read_openssl", LIB_OPENSSL, ENTRY, NULL },
	{ "SSL_read", "tls_read_ret", LIB_OPENSSL, RETURN, NULL },
	{ "SSL_read_ex", "tls_read_ex_openssl", LIB_OPENSSL, ENTRY, NULL },
	{ "SSL_read_ex", "tls_read_ret", LIB_OPENSSL, RETURN, NULL },
	{ "SSL_do_handshake", "tls_other_openssl", LIB_OPENSSL, ENTRY, NULL },
	{ "SSL_accept", "tls_other_openssl", LIB_OPENSSL, ENTRY, NULL },
	{ "SSL_connect", "tls_other_openssl", LIB_OPENSSL, ENTRY, NULL },
	{ "SSL_shutdown", "tls_other_openssl", LIB_OPENSSL, ENTRY, NULL },
	{ "SSL_free", "tls_free", LIB_OPENSSL, ENTRY, NULL },
	{ "BIO_write", "tls_out_openssl", LIB_OPENSSL, CHEAPEST, NULL },
	{ "BIO_write_ex", "tls_out_openssl", LIB_OPENSSL, CHEAPEST, NULL },
	{ "gnutls_record_send", "tls_write_gnutls", LIB_GNUTLS, CHEAPEST, "gnutls_record_send2" },
	{ "gnutls_record_send2", "tls_write_gnutls", LIB_GNUTLS, CHEAPEST, NULL },
	{ "gnutls_record_recv", "tls_read_gnutls", LIB_GNUTLS, ENTRY, NULL },
	{ "gnutls_record_recv", "tls_read_ret", LIB_GNUTLS, RETURN, NULL },
	{ "gnutls_handshake", "tls_other_gnutls", LIB_GNUTLS, ENTRY, NULL },
	{ "gnutls_record_uncork", "tls_other_gnutls", LIB_GNUTLS, ENTRY, NULL },
	{ "gnutls_bye", "tls_other_gnutls", LIB_GNUTLS, ENTRY, NULL },
	{ "gnutls_deinit", "tls_free", LIB_GNUTLS, ENTRY, NULL },
	{ "PR_Write", "tls_write_nss", LIB_NSS, CHEAPEST, NULL },
	{ "PR_Send", "tls_write_nss", LIB_NSS, CHEAPEST, NULL },
	{ "PR_Read", "tls_read_nss", LIB_NSS, ENTRY, NULL },
	{ "PR_Read", "tls_read_ret", LIB_NSS, RETURN, NULL },
	{ "PR_Recv", "tls_read_nss", LIB_NSS, ENTRY, NULL },
	{ "PR_Recv", "tls_read_ret", LIB_NSS, RETURN, NULL },
	{ "PR_Close", "tls_free", LIB_NSS, ENTRY, NULL },
};

enum { NPROBES = sizeof(probes) / sizeof(probes[0]) };

/* The same for Go; a program at the returns, where there is one. */
static const struct go_probe {
	const char *function, *prog, *at_returns;
} go_probes[] = {
	{ "crypto/tls.(*Conn).Write", "go_write", NULL },
	{ "crypto/tls.(*Conn).Read", "go_read", "go_read_ret" },
	{ "crypto/tls.(*Conn).serverHandshake", "go_handshake", NULL },
	{ "crypto/tls.(*Conn).clientHandshake", "go_handshake", NULL },
	{ "crypto/tls.(*Conn).Close", "go_close", NULL },
};

enum {
	NGO = sizeof(go_probes) / sizeof(go_probes[0]),
	/* Several functions of one name: versions of it. */
	PLACES_MAX = 4 * NPROBES,
	LINKS_MAX = PLACES_MAX + NGO * (1 + TKS_GO_RETURNS_MAX),
};

struct link {
	struct tks_uprobe probe;
	bool at_return;
};

struct file {
	dev_t dev;
	ino_t ino;
	char *path;
	pid_t pid;
	unsigned int seen; /* the number of the scan that saw it last */
	uint8_t libs;
	int err;
	const char *reason;
	unsigned int nlinks;
	struct link *links;
	bool no_returns; /* they would kill a process that has the file mapped */
	struct stat st; /* as it was when its functions were looked for */
	bool overlaid; /* it is seen through an overlay */
	int watch; /* for writes to it, while it has probes; 0: none */
};

enum {
	FILES_MAX = 16384, /* known at once */
	PROBED_MAX = 512, /* of which have probes */
};

struct tks_tls_attach {
	struct tokensnoop_bpf *skel;
	struct file *files;
	size_t nfiles, cap_files;
	unsigned int scan;
	unsigned int nprobed;
	int notify; /* inotify; -1: none */
	bool scan_failed; /* a process was not read for want of something of ours */
	bool returns_are_syscalls;
	bool calls_ok; /* tks_spot_calls_ok() */
};

/* --- a file --- */

/* Where a file's functions are; the names are those of probes. */
struct found {
	struct tks_elfsym at[PLACES_MAX];
	size_t n;
};

/* One of two names of a function, or versions of a name, is enough. */
static bool same_place(const struct found *f, size_t i)
{
	const struct probe *p = &probes[f->at[i].name];

	for (size_t k = 0; k < i; k++) {
		const struct probe *q = &probes[f->at[k].name];

		if (f->at[k].offset == f->at[i].offset && p->place == q->place &&
		    !strcmp(p->prog, q->prog))
			return true;
	}
	return false;
}

static bool superseded(const struct found *f, size_t i)
{
	const char *unless = probes[f->at[i].name].unless;

	for (size_t k = 0; unless && k < f->n; k++) {
		if (!strcmp(probes[f->at[k].name].function, unless))
			return true;
	}
	return false;
}

static int attach_one(struct tks_tls_attach *a, struct file *f, int fd, const char *name,
		      bool at_return, struct tks_spot spot)
{
	struct bpf_program *prog = bpf_object__find_program_by_name(a->skel->obj, name);
	struct link *link = &f->links[f->nlinks];
	char path[32];
	int err;

	if (!prog)
		return -ENOENT;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	err = tks_uprobe_attach(prog, path, spot.offset, spot.below, at_return, &link->probe);
	if (err)
		return err;
	link->at_return = at_return;
	f->nlinks++;
	return 0;
}

static void detach(struct tks_tls_attach *a, struct file *f)
{
	if (f->watch)
		inotify_rm_watch(a->notify, f->watch);
	f->watch = 0;
	while (f->nlinks)
		tks_uprobe_destroy(&f->links[--f->nlinks].probe);
	free(f->links);
	f->links = NULL;
}

/* --- return probes and seccomp --- */

static void check_returns(struct tks_tls_attach *a, struct file *f, pid_t pid)
{
	if (f->no_returns || !a->returns_are_syscalls || !tks_has_seccomp(pid))
		return;
	f->no_returns = true;
	f->reason =
		"reads are not seen: a process that uses it has a seccomp filter, which on this "
		"kernel may kill it for a return probe";
	for (unsigned int i = 0; i < f->nlinks; i++) {
		if (f->links[i].at_return)
			tks_uprobe_destroy(&f->links[i].probe);
	}
}

static int attach_found(struct tks_tls_attach *a, struct file *f, int fd, const struct found *found)
{
	int err = 0;

	for (size_t i = 0; i < found->n && !err; i++) {
		const struct probe *p = &probes[found->at[i].name];
		struct tks_spot spot = { .offset = found->at[i].offset };
		bool at_return = p->place == RETURN;

		if (same_place(found, i) || superseded(found, i) || (at_return && f->no_returns))
			continue;
		if (p->place == CHEAPEST && a->skel->rodata->cfg_attach_cookie)
			spot = tks_spot_find(fd, spot.offset, a->calls_ok);
		err = attach_one(a, f, fd, p->prog, at_return, spot);
	}
	return err;
}

static int attach_go(struct tks_tls_attach *a, struct file *f, int fd, const struct tks_gofunc *go)
{
	int err = 0;

	for (size_t i = 0; i < NGO && !err; i++) {
		if (!go[i].entry)
			continue;
		err = attach_one(a, f, fd, go_probes[i].prog, false,
				 (struct tks_spot){ .offset = go[i].entry });
		for (size_t k = 0; go_probes[i].at_returns && k < go[i].nreturns && !err; k++)
			err = attach_one(a, f, fd, go_probes[i].at_returns, false,
					 (struct tks_spot){ .offset = go[i].returns[k] });
	}
	return err;
}

/* Half of the probes would tell half of the truth. */
static void settle(struct tks_tls_attach *a, struct file *f, int err)
{
	if (!err)
		return;
	f->err = err;
	f->reason = strerror(-err);
	detach(a, f);
}

static bool make_room(struct tks_tls_attach *a, struct file *f)
{
	if (!f->links)
		f->links = calloc(LINKS_MAX, sizeof(*f->links));
	if (!f->links)
		settle(a, f, -ENOMEM);
	return f->links;
}

static void examine_go(struct tks_tls_attach *a, struct file *f, Elf *elf, int fd)
{
	const char *names[NGO];
	struct tks_gofunc go[NGO];
	int err;

	for (size_t i = 0; i < NGO; i++)
		names[i] = go_probes[i].function;
	err = tks_gofunc_find(elf, fd, names, NGO, go);
	if (err == -ENOEXEC || (!err && !go[0].entry))
		return;
	f->libs |= LIB_GO;
	if (err) {
		f->err = err;
		f->reason = err == -EOPNOTSUPP ? "of a Go that is not read (before 1.17, or later "
						 "than this tool)"
					       : "its function table can't be read";
		return;
	}
	if (!make_room(a, f))
		return;
	a->skel->bss->tls_on = a->skel->bss->go_on = 1;
	settle(a, f, attach_go(a, f, fd, go));
}

/*
 * On an overlay (6.7) each container's mount shows a file of the image that they share as its own;
 * the kernel puts probes on the one below, and all of them fire for all. What an overlay passes on
 * as it is tells that it is the same.
 */
static bool same_below(const struct file *f, const struct file *g)
{
	return (f->overlaid || g->overlaid) && (uint32_t)f->st.st_ino == (uint32_t)g->st.st_ino &&
	       f->st.st_size == g->st.st_size && f->st.st_mtim.tv_sec == g->st.st_mtim.tv_sec &&
	       f->st.st_mtim.tv_nsec == g->st.st_mtim.tv_nsec &&
	       f->st.st_ctim.tv_sec == g->st.st_ctim.tv_sec &&
	       f->st.st_ctim.tv_nsec == g->st.st_ctim.tv_nsec;
}

/* Another entry of the same file: with probes, or one that can have them. */
static struct file *twin_of(struct tks_tls_attach *a, const struct file *f, bool probed)
{
	for (size_t i = 0; i < a->nfiles; i++) {
		struct file *g = &a->files[i];

		if (g != f && same_below(f, g) && (probed ? g->nlinks > 0 : g->seen == a->scan))
			return g;
	}
	return NULL;
}

/* By its own symbols, else by those that were put aside. A number or a negative errno. */
static int find_functions(const struct file *f, Elf *elf, int fd, struct found *found)
{
	const char *names[NPROBES];
	char root[32];
	const char *const roots[] = { root, "/" };
	struct tks_elfdebug d = { elf, fd, f->path, roots, 2 };
	int n;

	for (size_t i = 0; i < NPROBES; i++)
		names[i] = probes[i].function;
	n = tks_elfsym_find(elf, elf, names, NPROBES, found->at, PLACES_MAX);
	if (n)
		return n;
	snprintf(root, sizeof(root), "/proc/%d/root", f->pid);
	return tks_elfdebug_find(&d, names, NPROBES, found->at, PLACES_MAX);
}

static const char *why_not_found(int err)
{
	switch (err) {
	case -ESTALE:
		return "it is stripped, and its debug information is of another build";
	case -E2BIG:
		return "it has more functions of TLS libraries' names than are probed";
	case -EFBIG:
		return "it is stripped, and its debug information is too big";
	case -EINVAL:
		return "it is stripped, and its debug information is broken";
	default:
		return strerror(-err);
	}
}

static void examine_c(struct tks_tls_attach *a, struct file *f, Elf *elf, int fd)
{
	struct found found;
	int n = find_functions(f, elf, fd, &found);

	if (n < 0) {
		f->err = n;
		f->reason = why_not_found(n);
		return;
	}
	if (!n)
		return;
	found.n = (size_t)n;
	for (size_t i = 0; i < found.n; i++) {
		f->libs |= probes[found.at[i].name].lib;
		if (found.at[i].indirect)
			f->err = -EOPNOTSUPP;
	}
	if (f->err == -EOPNOTSUPP) {
		f->reason = "which of several functions it uses is chosen when it starts (ifunc)";
		return;
	}
	if (!make_room(a, f))
		return;
	a->skel->bss->tls_on = 1;
	settle(a, f, attach_found(a, f, fd, &found));
}

static void examine(struct tks_tls_attach *a, struct file *f, int fd)
{
	Elf *elf = tks_elfsym_open(fd);

	if (!elf)
		return;
	examine_go(a, f, elf, fd);
	examine_c(a, f, elf, fd);
	elf_end(elf);
}

static struct file *file_of(const struct tks_tls_attach *a, dev_t dev, ino_t ino)
{
	for (size_t i = 0; i < a->nfiles; i++) {
		if (a->files[i].ino == ino && a->files[i].dev == dev)
			return &a->files[i];
	}
	return NULL;
}

static struct file *file_add(struct tks_tls_attach *a, const struct tks_mapping *m, pid_t pid)
{
	struct file *f;

	if (a->nfiles == a->cap_files) {
		size_t cap = a->cap_files ? 2 * a->cap_files : 64;

		f = reallocarray(a->files, cap, sizeof(*f));
		if (!f)
			return NULL;
		a->files = f;
		a->cap_files = cap;
	}
	f = &a->files[a->nfiles];
	/* On an overlay a map's numbers are not those of the file that is open: it is known by the
	 * map's. */
	*f = (struct file){
		.dev = m->dev, .ino = m->ino, .pid = pid, .path = strdup(m->path), .reason = ""
	};
	if (!f->path)
		return NULL;
	a->nfiles++;
	return f;
}

/* --- a process --- */

static void look_at(struct tks_tls_attach *a, pid_t pid, const struct tks_mapping *m)
{
	struct file *f = file_of(a, m->dev, m->ino), *twin;
	struct statfs fs;
	struct stat st;
	char link[32];
	int fd;

	if (f) {
		f->seen = a->scan;
		if (f->libs)
			check_returns(a, f, pid);
		return;
	}
	if (a->nfiles >= FILES_MAX)
		return;
	fd = tks_maps_open(pid, m);
	if (fd < 0)
		return;
	if (fstat(fd, &st))
		goto close_fd;
	f = file_add(a, m, pid);
	if (!f)
		goto close_fd;
	f->st = st;
	f->seen = a->scan;
	f->overlaid = !fstatfs(fd, &fs) && fs.f_type == OVERLAYFS_SUPER_MAGIC;
	check_returns(a, f, pid);
	twin = twin_of(a, f, true);
	if (twin) {
		f->libs = twin->libs;
		f->reason = "read by the probes of the same file below another mount";
	} else if (a->nprobed < PROBED_MAX) {
		/* Before its functions are looked for. */
		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		f->watch = a->notify < 0 ? 0 : inotify_add_watch(a->notify, link, IN_MODIFY);
		f->watch = f->watch < 0 ? 0 : f->watch;
		examine(a, f, fd);
		a->nprobed += f->nlinks > 0;
		if (!f->nlinks)
			detach(a, f);
	} else {
		f->reason = "too many files with TLS functions";
	}
close_fd:
	close(fd);
}

struct look {
	struct tks_tls_attach *a;
	pid_t pid;
};

static void on_mapping(void *ctx, const struct tks_mapping *m)
{
	const struct look *l = ctx;

	look_at(l->a, l->pid, m);
}

int tks_tls_attach_process(struct tks_tls_attach *a, pid_t pid)
{
	int err = tks_maps_each(pid, on_mapping, &(struct look){ a, pid });

	a->scan_failed |= err == -EMFILE || err == -ENFILE || err == -ENOMEM;
	return err;
}

/* --- all --- */

static void hand_over_links(struct file *from, struct file *to)
{
	to->links = from->links;
	to->nlinks = from->nlinks;
	to->libs = from->libs;
	to->watch = from->watch;
	from->watch = 0;
	to->err = from->err;
	to->reason = from->reason;
	from->links = NULL;
	from->nlinks = 0;
}

static void drop_unseen(struct tks_tls_attach *a)
{
	for (size_t i = 0; i < a->nfiles;) {
		struct file *f = &a->files[i], *twin;

		if (f->seen == a->scan) {
			i++;
			continue;
		}
		/* Another mount of it is in use still. */
		twin = f->nlinks ? twin_of(a, f, false) : NULL;
		if (twin) {
			hand_over_links(f, twin);
		} else {
			a->nprobed -= f->nlinks > 0;
			detach(a, f);
		}
		free(f->path);
		memmove(f, &a->files[--a->nfiles], sizeof(*f));
	}
}

void tks_tls_attach_scan(struct tks_tls_attach *a)
{
	DIR *proc = opendir("/proc");
	struct dirent *d;

	if (!proc)
		return;
	a->scan++;
	a->scan_failed = false;
	while ((d = readdir(proc))) {
		pid_t pid = isdigit((unsigned char)d->d_name[0]) ? atoi(d->d_name) : 0;

		if (pid > 0 && pid != getpid())
			tks_tls_attach_process(a, pid);
	}
	closedir(proc);
	/* Who has a file mapped is not known where maps could not be read. */
	if (!a->scan_failed)
		drop_unseen(a);
}

int tks_tls_attach_fd(const struct tks_tls_attach *a)
{
	return a->notify;
}

static void forget_watched(struct tks_tls_attach *a, int watch)
{
	for (size_t i = 0; i < a->nfiles; i++) {
		struct file *f = &a->files[i];

		if (f->watch != watch)
			continue;
		a->nprobed -= f->nlinks > 0;
		detach(a, f);
		free(f->path);
		*f = a->files[--a->nfiles];
		return;
	}
}

bool tks_tls_attach_changed(struct tks_tls_attach *a)
{
	_Alignas(struct inotify_event) char buf[4096];
	bool any = false;
	ssize_t n;

	while (a->notify >= 0 && (n = read(a->notify, buf, sizeof(buf))) > 0) {
		const struct inotify_event *e;

		for (const char *p = buf; p < buf + n; p += sizeof(*e) + e->len) {
			e = (const struct inotify_event *)p;
			if (!(e->mask & IN_MODIFY))
				continue;
			forget_watched(a, e->wd);
			any = true;
		}
	}
	return any;
}

struct tks_tls_attach *tks_tls_attach_new(struct tokensnoop_bpf *skel)
{
	struct tks_tls_attach *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->skel = skel;
	a->returns_are_syscalls = tks_uretprobe_is_syscall();
	a->calls_ok = tks_spot_calls_ok();
	a->notify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	return a;
}

void tks_tls_attach_free(struct tks_tls_attach *a)
{
	if (!a)
		return;
	for (size_t i = 0; i < a->nfiles; i++) {
		detach(a, &a->files[i]);
		free(a->files[i].path);
	}
	if (a->notify >= 0)
		close(a->notify);
	free(a->files);
	free(a);
}

/* --- what was found --- */

struct why {
	const struct tks_tls_attach *a;
	pid_t pid;
	const struct file *found;
	bool closed; /* a file may not be opened */
};

static bool may_open(pid_t pid, const struct tks_mapping *m)
{
	int fd = tks_maps_open(pid, m);

	if (fd >= 0)
		close(fd);
	return fd != -EACCES && fd != -EPERM;
}

/* Of several files the one with a fault explains more. */
static void on_blind_mapping(void *ctx, const struct tks_mapping *m)
{
	struct why *w = ctx;
	const struct file *f = file_of(w->a, m->dev, m->ino);

	if (f && (f->libs || f->err) && (!w->found || f->err))
		w->found = f;
	else if (!f && !w->closed)
		w->closed = !may_open(w->pid, m);
}

const char *tks_tls_attach_why_blind(const struct tks_tls_attach *a, pid_t pid)
{
	struct why w = { .a = a, .pid = pid };
	int err = tks_maps_each(pid, on_blind_mapping, &w);

	if (err == -EACCES || err == -EPERM)
		return "its memory map may not be read (CAP_SYS_PTRACE, or run as root)";
	if (err)
		return "it was over before it could be looked at";
	if (!w.found && w.closed)
		return "its libraries may not be opened (CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH, or run as root)";
	if (!w.found)
		return "it has none of the functions of OpenSSL, GnuTLS, NSS or Go that are known "
		       "(rustls, or a stripped library within the program)";
	return w.found->err ? w.found->reason
			    : "its library's functions were not called where they are watched";
}

static const char *libs_name(uint8_t libs)
{
	if (libs & LIB_GO)
		return "Go";
	if (libs & LIB_OPENSSL)
		return "OpenSSL";
	return libs & LIB_GNUTLS ? "GnuTLS" : "NSS";
}

size_t tks_tls_attach_files(const struct tks_tls_attach *a)
{
	size_t n = 0;

	for (size_t i = 0; i < a->nfiles; i++)
		n += a->files[i].libs != 0;
	return n;
}

void tks_tls_attach_file(const struct tks_tls_attach *a, size_t i, struct tks_tls_file *out)
{
	const struct file *f = a->files;

	while (!f->libs || i--)
		f++;
	*out = (struct tks_tls_file){ .path = f->path,
				      .pid = f->pid,
				      .libs = libs_name(f->libs),
				      .probes = f->nlinks,
				      .err = f->err,
				      .reason = f->reason };
}
