// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause

// Streams chat completions through Go's net/http. usage: main PORT|PATH WITNESS-LOG PEM 1.1|2
//
// Answers and logs as app.py says. PEM "-": no TLS; over TLS the last argument says which version of HTTP is offered.
// Over HTTP/2 a write returns before the bytes are sent: after_ns is null then.
package main

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

type object map[string]interface{}

type order struct {
	Model     string  `json:"model"`
	MaxTokens int     `json:"max_tokens"`
	Gap       float64 `json:"gap_ms"`
	Prefill   float64 `json:"prefill_ms"`
	Burst     int     `json:"burst"`
	Frame     int     `json:"frame"`
	Options   struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

var (
	number  int64
	lock    sync.Mutex
	witness *bufio.Writer
)

const (
	clockMonotonic = 1
	clockThread    = 3
)

func clock(id uintptr) int64 {
	var ts syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0)
	return ts.Nano()
}

func monotonic() int64 {
	return clock(clockMonotonic)
}

type answer struct {
	order
	w     http.ResponseWriter
	id    string
	peer  int
	h2    bool
	lines []object
}

func (a *answer) note(kind string, more object) object {
	line := object{"request": a.id, "id": a.id, "peer": a.peer, "model": a.Model, "kind": kind}
	for k, v := range more {
		line[k] = v
	}
	a.lines = append(a.lines, line)
	return line
}

func (a *answer) frame(kind string, data []byte, tokens int) {
	line := a.note(kind, object{"choice": 0, "tokens": tokens, "after_ns": nil})
	line["before_ns"] = monotonic()
	fmt.Fprintf(a.w, "data: %s\n\n", data)
	a.w.(http.Flusher).Flush()
	if !a.h2 {
		line["after_ns"] = monotonic()
	}
}

func (a *answer) chunk(choices []object, usage object) []byte {
	o := object{"id": a.id, "object": "chat.completion.chunk", "created": 1, "model": a.Model, "choices": choices}
	if usage != nil {
		o["usage"] = usage
	}
	text, _ := json.Marshal(o)
	return text
}

func choice(delta object, finish interface{}) []object {
	return []object{{"index": 0, "delta": delta, "finish_reason": finish}}
}

func (a *answer) stream() {
	at := time.Now().Add(time.Duration(a.Prefill * 1e6))
	a.w.Header().Set("Content-Type", "text/event-stream")
	a.frame("role", a.chunk(choice(object{"role": "assistant", "content": ""}, nil), nil), 0)
	for i := 0; i < a.MaxTokens; i++ {
		time.Sleep(time.Until(at))
		at = at.Add(time.Duration(a.Gap * float64(500+i*377%1001) * 1e3))
		a.frame("token", a.chunk(choice(object{"content": fmt.Sprintf("%s:%d ", a.Model, i)}, nil), nil), 1)
	}
	a.frame("finish", a.chunk(choice(object{}, "length"), nil), 0)
	if a.Options.IncludeUsage {
		n := a.MaxTokens
		a.frame("usage", a.chunk([]object{}, object{"prompt_tokens": 7, "completion_tokens": n, "total_tokens": 7 + n}), 0)
	}
	a.frame("done", []byte("[DONE]"), 0)
}

// As chat.h's chat_burst.
func (o *order) burst(w http.ResponseWriter) {
	const before, after = `data: {"choices":[{"delta":{"content":"`, "\"}}]}\n\n"
	frame := []byte(before + strings.Repeat("x", o.Frame-len(before)-len(after)) + after)
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	write := func(data []byte) {
		if _, err := conn.Write(data); err != nil {
			log.Fatal(err)
		}
	}
	write([]byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	wall, cpu := clock(clockMonotonic), clock(clockThread)
	for i := 0; i < o.Burst; i++ {
		write(frame)
	}
	cpu = clock(clockThread) - cpu
	wall = clock(clockMonotonic) - wall
	write([]byte("data: [DONE]\n\n"))
	lock.Lock()
	defer lock.Unlock()
	json.NewEncoder(witness).Encode(object{"kind": "burst", "frames": o.Burst, "wall_ns": wall, "cpu_ns": cpu})
	witness.Flush()
}

func chat(w http.ResponseWriter, r *http.Request) {
	o := order{Model: "tiny", MaxTokens: 16, Gap: 20, Prefill: 30}
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if o.Burst > 0 {
		o.burst(w)
		return
	}
	_, port, _ := net.SplitHostPort(r.RemoteAddr)
	peer, _ := strconv.Atoi(port)
	id := fmt.Sprintf("chatcmpl-%s-%d", o.Model, atomic.AddInt64(&number, 1))
	a := answer{order: o, w: w, id: id, peer: peer, h2: r.ProtoMajor == 2}
	a.stream()
	a.note("end", object{"outcome": "done", "completion_tokens": o.MaxTokens})
	lock.Lock()
	defer lock.Unlock()
	for _, line := range a.lines {
		json.NewEncoder(witness).Encode(line)
	}
	witness.Flush()
}

func main() {
	if len(os.Args) != 5 {
		log.Fatal("usage: main PORT|PATH WITNESS-LOG PEM 1.1|2")
	}
	file, err := os.Create(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	witness = bufio.NewWriter(file)
	http.HandleFunc("/v1/chat/completions", chat)
	server := &http.Server{Addr: "127.0.0.1:" + os.Args[1]}
	if os.Args[4] != "2" {
		server.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){}
	}
	if strings.Contains(os.Args[1], "/") {
		var listener net.Listener
		if listener, err = net.Listen("unix", os.Args[1]); err == nil {
			err = server.Serve(listener)
		}
	} else if pem := os.Args[3]; pem == "-" {
		err = server.ListenAndServe()
	} else {
		err = server.ListenAndServeTLS(pem, pem)
	}
	log.Fatal(err)
}
