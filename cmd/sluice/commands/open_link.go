// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// serveOnce serves a link on this machine that leads to an address, once. So the address with a token is in no
// list of processes, no terminal and no shell's history. used is closed after the link was used; the link ends
// with ctx.
func serveOnce(ctx context.Context, address string) (link string, used <-chan struct{}, err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("listen on 127.0.0.1: %w", err)
	}
	path := "/" + rand.Text()
	done := make(chan struct{})
	var once sync.Once
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		first := false
		if r.Method == http.MethodGet && subtle.ConstantTimeCompare([]byte(r.URL.Path), []byte(path)) == 1 {
			once.Do(func() { first = true })
		}
		if !first {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Referrer-Policy", "no-referrer")
		http.Redirect(w, r, address, http.StatusFound)
		close(done)
	})}
	go server.Serve(listener) //nolint:errcheck // it ends with Shutdown
	go func() {
		select {
		case <-ctx.Done():
		case <-done:
		}
		_ = server.Shutdown(context.WithoutCancel(ctx)) // after the answer is written
	}()
	return "http://" + listener.Addr().String() + path, done, nil
}
