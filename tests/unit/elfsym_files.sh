#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# elfsym_files.sh FOLDER: makes the files that test_elfsym looks for functions in. FOLDER/expected has a line for each
# function that is to be found: FILE NAME OFFSET, by what nm and readelf say. FOLDER/root is a root with debug files.
set -eu
cd "$1"
path=/opt/made # of the files, as their processes would have it
mkdir -p root/usr/lib/debug/.build-id "root$path/.debug" "root/usr/lib/debug$path"
: >expected

cat >prog.c <<'EOF'
const char words[] = "c ap traffic";
int SSL_write(int x) { return x + words[x & 3]; }
int SSL_read(int x) { return x - words[x & 3]; }
int BIO_write(int x) { return x * words[x & 3]; }
int SSL_write_more(int x) { return x ^ 3; } /* whose name only begins as one does */
int SSL_read_data = 1;
#ifndef LIBRARY
int main(int argc, char **argv) { (void)argv; return SSL_write(argc) + SSL_read(argc) + BIO_write(argc); }
#endif
EOF
sed 's/c ap traffic/c xx traffic/' prog.c >quiet.c
cat >ifunc.c <<'EOF'
static int one(int x) { return x + 1; }
static int two(int x) { return x + 2; }
static int (*choose(void))(int) { return *(volatile char *)choose ? one : two; }
int SSL_write(int) __attribute__((ifunc("choose")));
int SSL_read(int x) { return x + 3; }
EOF
cat >versions.c <<'EOF'
int old_write(int x) { return x + 1; }
int new_write(int x) { return x + 2; }
int any_read(int x) { return x + 3; }
int any_read_too(int) __attribute__((alias("any_read")));
__asm__(".symver old_write,SSL_write@V1");
__asm__(".symver new_write,SSL_write@@V2");
__asm__(".symver any_read,SSL_read@V1");
__asm__(".symver any_read_too,SSL_read@@V2");
EOF
echo 'V1 { }; V2 { } V1;' >versions.map
cat >undefined.c <<'EOF'
int SSL_write(int);
int (*volatile where)(int) = SSL_write; /* so that the program has an address for it */
int main(int argc, char **argv) { (void)argv; return where(argc) + SSL_write(1); }
EOF
id() { readelf -n "$1" | sed -n 's/.*Build ID: //p'; }

# Where in FILE an address of it is: by the section that has the code.
offset()
{
	readelf -SW "$1" | tr -d '[]' | awk '$2 == ".text" { print $4, $5 }' | {
		read -r addr at
		echo $((0x$2 - 0x$addr + 0x$at))
	}
}

# expect FILE SYMBOLS NAME=SYMBOL...: NAME is to be found in FILE, where SYMBOLS' nm has SYMBOL.
expect()
{
	file=$1 symbols=$2
	shift 2
	for pair in "$@"; do
		addr=$(nm "$symbols" | awk -v want="${pair#*=}" '$3 == want && $2 != "U" { print $1 }')
		[ -n "$addr" ] || { echo "elfsym_files.sh: $symbols has no ${pair#*=}" >&2; exit 1; }
		echo "$file ${pair%=*} $(offset "$file" "$addr")" >>expected
	done
}

all='SSL_write=SSL_write SSL_read=SSL_read BIO_write=BIO_write'

# expect_all FILE SYMBOLS
expect_all()
{
	# shellcheck disable=SC2086 # a list
	expect "$1" "$2" $all
}

# stripped_of PROGRAM FILE: the program without symbols.
stripped_of() { strip -o "$2" "$1"; }

# debugdata PROGRAM FILE: the same with the program's functions in .gnu_debugdata, as Fedora's find-debuginfo makes it.
debugdata()
{
	nm "$1" --format=posix --defined-only | awk '$2 == "T" { print $1 }' >keep
	objcopy -S --keep-symbols=keep "$1" mini
	xz -f mini
	strip -o "$2" "$1"
	objcopy --add-section .gnu_debugdata=mini.xz "$2"
}

# Not position independent: addresses differ from offsets.
cc="gcc -O1 -no-pie -Wl,--build-id=sha1"
$cc -o full prog.c
expect_all full full
$cc -fpie -static-pie -o static_pie prog.c
expect_all static_pie static_pie
$cc -static -o static prog.c
debugdata static static_mini
expect_all static_mini static
gcc -O1 -DLIBRARY -shared -fPIC -o library.so prog.c
strip library.so
gcc -O1 -DLIBRARY -shared -fPIC -o library_full.so prog.c
expect_all library.so library_full.so

debugdata full mini_debug
expect_all mini_debug full
$cc -DN=1 -o quiet_full quiet.c
debugdata quiet_full quiet
stripped_of full stripped

# A debug file in each place; each program differs from the others, and so does its build-id.
n=0
for place in same_folder debug_folder global_folder by_id foreign_id foreign_link moved; do
	n=$((n + 1))
	sed "s/x + words/x + $n + words/" prog.c >"$place.c"
	$cc -o "$place.full" "$place.c"
	objcopy --only-keep-debug "$place.full" "$place.debug"
	stripped_of "$place.full" "$place"
done
# file_by_id PROGRAM: where its debug file is looked for
file_by_id()
{
	id=$(id "$1")
	rest=${id#??}
	mkdir -p "root/usr/lib/debug/.build-id/${id%"$rest"}"
	echo "root/usr/lib/debug/.build-id/${id%"$rest"}/$rest.debug"
}
for place in same_folder debug_folder global_folder foreign_link; do
	objcopy --add-gnu-debuglink="$place.debug" "$place"
done
mv same_folder.debug "root$path/"
mv debug_folder.debug "root$path/.debug/"
# An absolute link there means the root that it is in.
mv global_folder.debug "root/usr/lib/debug$path/global"
ln -s "/usr/lib/debug$path/global" "root/usr/lib/debug$path/global_folder.debug"
cp by_id.debug "$(file_by_id by_id)"
for place in same_folder debug_folder global_folder by_id; do
	expect_all "$place" "$place.full"
done
# Another program's; the right build with another checksum; a symbol within a function.
cp by_id.debug "$(file_by_id foreign_id)"
cp foreign_link.debug "root$path/"
echo >>"root$path/foreign_link.debug"
within=$(nm moved.full | awk '$3 == "SSL_write" { print $1 }')
text=$(readelf -SW moved.full | tr -d '[]' | awk '$2 == ".text" { print $4 }')
objcopy -N SSL_write --add-symbol "SSL_write=.text:$((0x$within - 0x$text + 1)),function,global" \
	moved.full "$(file_by_id moved)"

# A name that leaves the folder, and one that is longer than a path may be.
for name in ../full "$(printf '%4100d' 0)"; do
	n=$((n + 1))
	printf '%s\0\0\0\0\0\0\0\0' "$name" >named.link
	cp stripped "link_$n"
	objcopy --add-section .gnu_debuglink=named.link "link_$n"
	mv "link_$n" "$([ "$name" = ../full ] && echo link_up || echo link_long)"
done

# Packed symbols that are more than anyone needs, or no symbols.
truncate -s 65M zeros
xz -0 zeros
cp stripped bomb
objcopy --add-section .gnu_debugdata=zeros.xz bomb
cp full wide
xz --lzma2=preset=0,dict=128MiB wide
cp stripped wide_window
objcopy --add-section .gnu_debugdata=wide.xz wide_window
head -c 300 mini.xz >short.xz
cp stripped short
objcopy --add-section .gnu_debugdata=short.xz short
echo none >none.xz
cp stripped no_xz
objcopy --add-section .gnu_debugdata=none.xz no_xz

gcc -O1 -shared -fPIC -o ifunc.so ifunc.c
expect ifunc.so ifunc.so SSL_write=SSL_write SSL_read=SSL_read
gcc -O1 -shared -fPIC -Wl,--version-script=versions.map -o versions.so versions.c
expect versions.so versions.so SSL_write=old_write SSL_write=new_write SSL_read=any_read
$cc -o undefined undefined.c library_full.so

# A table as Go's linker makes it (1.20 on), of one function: what behind the stack's check and its returns are called.
cat >go.s <<'EOF'
	.text
	.globl _start, behind, return_1, return_2
_start:
	nop
begin:
	cmp 0x10(%r14), %rsp
	jbe more
behind:
	test %rax, %rax
	je other
return_1:
	ret
other:
	mov $0xc3, %eax
return_2:
	ret
more:
	call begin
	jmp begin
end:
	.section .gopclntab, "a"
table:
	.long 0xfffffff1
	.byte 0, 0, 1, 8
	.quad 1, 0, begin, names - table, 0, 0, 0, functions - table
names:
	.asciz "main.main"
functions:
	.long 0, record - functions, end - begin
record:
	.long 0, 0
EOF
gcc -nostdlib -static -no-pie -Wl,-z,max-page-size=64 -o go go.s
expect go go main.main=behind return=return_1 return=return_2
strip -o go_stripped go
