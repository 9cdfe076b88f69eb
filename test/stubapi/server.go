// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package stubapi

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// Server is an API server. It is an [http.Handler], so that a test can put faults
// before it; [Server.Listen] serves it as it is.
type Server struct {
	// WithoutWatchList makes it refuse to stream lists, as old servers do. To be set
	// before the first request.
	WithoutWatchList bool

	store     *store
	kinds     []Kind
	reactions []Reaction
}

// Reaction is told of each write through the API or by [Server.Put], after it was
// answered for: what was, and what is, either of which may be nil. It may write.
type Reaction func(s *Server, kind Kind, before, after map[string]any)

// New is a Server of these kinds; none are [Kinds].
func New(kinds []Kind, reactions ...Reaction) (*Server, error) {
	if len(kinds) == 0 {
		var err error
		if kinds, err = Kinds(); err != nil {
			return nil, err
		}
	}
	return &Server{store: newStore(kinds), kinds: kinds, reactions: reactions}, nil
}

// Listen serves s on a port of loopback until ctx ends, and answers how to reach
// it.
func (s *Server) Listen(ctx context.Context) (*rest.Config, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("stub API server: %w", err)
	}
	server := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }() // ends with the listener
	context.AfterFunc(ctx, func() { server.Close() })
	return &rest.Config{Host: "http://" + listener.Addr().String(), QPS: -1}, nil
}

// Writes are how many writes there were through the API, by verb and resource.
func (s *Server) Writes() map[Write]int {
	s.store.mutex.Lock()
	defer s.store.mutex.Unlock()
	return maps.Clone(s.store.writes)
}

// Changes are those of the writes that changed an object: what a real server takes
// into its store, and tells to who watches.
func (s *Server) Changes() map[Write]int {
	s.store.mutex.Lock()
	defer s.store.mutex.Unlock()
	return maps.Clone(s.store.changes)
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.discover(w, r) {
		return
	}
	if err := s.serve(w, r); err != nil {
		fail(w, err)
	}
}

// target is what a path names.
type target struct {
	table                        *table
	namespace, name, subresource string
}

func (t *target) key() string { return t.namespace + "/" + t.name }

// parse reads /api/v1/... and /apis/<group>/<version>/...
func (s *Server) parse(path string) (*target, error) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	unknown := apierrors.NewGenericServerResponse(http.StatusNotFound, "", schema.GroupResource{}, "", "the server could not find the requested resource", 0, false)
	group := ""
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[1:]
	case len(parts) > 3 && parts[0] == "apis":
		group, parts = parts[1], parts[2:]
	default:
		return nil, unknown
	}
	version, parts := parts[0], parts[1:]
	t := &target{}
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		t.namespace, parts = parts[1], parts[2:]
	}
	kind := Kind{Resource: parts[0]}
	kind.Group = group
	t.table = s.store.tables[kind.groupResource().String()]
	if t.table == nil || t.table.kind.Version != version || len(parts) > 3 {
		return nil, unknown
	}
	if len(parts) > 1 {
		t.name = parts[1]
	}
	if len(parts) > 2 {
		t.subresource = parts[2]
	}
	return t, nil
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) error {
	t, err := s.parse(r.URL.Path)
	if err != nil {
		return err
	}
	query := r.URL.Query()
	switch {
	case r.Method == http.MethodGet && query.Get("watch") == "true":
		return s.watch(w, r, t)
	case r.Method == http.MethodGet && t.name == "":
		return s.list(w, r, t)
	case r.Method == http.MethodGet:
		o, err := s.store.get(t.table, t.key())
		if err != nil {
			return err
		}
		return answer(w, http.StatusOK, o, formOf(r, &t.table.kind))
	default:
		return s.write(w, r, t)
	}
}
