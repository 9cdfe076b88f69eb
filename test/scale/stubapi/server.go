// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package stubapi

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Server is an API server. As an [http.Handler] it can run behind a test's fault injection;
// [Server.Listen] serves it directly.
type Server struct {
	// WithoutWatchList makes the server reject streaming lists, as old servers do. Set it
	// before the first request.
	WithoutWatchList bool

	store     *store
	kinds     []Kind
	reactions []Reaction
}

// Reaction is called after each successful write through the API or by [Server.Put], with
// the object before and after, either of which may be nil. It may write.
type Reaction func(s *Server, kind Kind, before, after map[string]any)

// New returns a Server of these kinds; if kinds is empty, of [Kinds].
func New(kinds []Kind, reactions ...Reaction) (*Server, error) {
	if len(kinds) == 0 {
		var err error
		if kinds, err = Kinds(); err != nil {
			return nil, err
		}
	}
	return &Server{store: newStore(kinds), kinds: kinds, reactions: reactions}, nil
}

// Listen serves s on a loopback port until ctx ends, and returns the client configuration.
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

// Writes returns the number of writes through the API, by verb and resource.
func (s *Server) Writes() map[Write]int {
	s.store.mutex.Lock()
	defer s.store.mutex.Unlock()
	return maps.Clone(s.store.writes)
}

// Changes returns the number of writes that changed an object: only these are stored and
// sent to watches.
func (s *Server) Changes() map[Write]int {
	s.store.mutex.Lock()
	defer s.store.mutex.Unlock()
	return maps.Clone(s.store.changes)
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.serveDiscovery(w, r) {
		return
	}
	if err := s.serve(w, r); err != nil {
		writeError(w, err)
	}
}

// target is the object or collection of a path.
type target struct {
	table                        *table
	namespace, name, subresource string
}

func (t *target) key() string { return t.namespace + "/" + t.name }

// parse parses /api/v1/... and /apis/<group>/<version>/...
func (s *Server) parse(path string) (*target, error) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	unknown := apierrors.NewGenericServerResponse(http.StatusNotFound, "", schema.GroupResource{}, "",
		"the server could not find the requested resource", 0, false)
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
		return writeObject(w, http.StatusOK, o, negotiateEncoding(r, &t.table.kind))
	default:
		return s.write(w, r, t)
	}
}

// serveDiscovery serves requests about the server itself, and returns false for others.
func (s *Server) serveDiscovery(w http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodGet {
		return false
	}
	at := strings.Trim(r.URL.Path, "/")
	switch at {
	case "healthz", "livez", "readyz":
		_, _ = w.Write([]byte("ok"))
		return true
	case "version":
		writeJSON(w, http.StatusOK, version.Info{Major: "1", Minor: "37", GitVersion: "v1.37.0-stub"})
		return true
	case "api":
		writeJSON(w, http.StatusOK, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
		return true
	case "apis":
		writeJSON(w, http.StatusOK, s.groups())
		return true
	}
	parts := strings.Split(at, "/")
	switch {
	case len(parts) == 2 && parts[0] == "api":
		return s.resources(w, schema.GroupVersion{Version: parts[1]})
	case len(parts) == 3 && parts[0] == "apis":
		return s.resources(w, schema.GroupVersion{Group: parts[1], Version: parts[2]})
	case len(parts) == 2 && parts[0] == "apis":
		for _, group := range s.groups().Groups {
			if group.Name == parts[1] {
				group.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroup"}
				writeJSON(w, http.StatusOK, group)
				return true
			}
		}
	}
	return false
}

func (s *Server) groups() metav1.APIGroupList {
	list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroupList"}}
	for _, kind := range s.kinds {
		gv := metav1.GroupVersionForDiscovery{GroupVersion: kind.GroupVersion().String(), Version: kind.Version}
		at := slices.IndexFunc(list.Groups, func(g metav1.APIGroup) bool { return g.Name == kind.Group })
		switch {
		case kind.Group == "":
		case at < 0:
			list.Groups = append(list.Groups, metav1.APIGroup{
				Name: kind.Group, Versions: []metav1.GroupVersionForDiscovery{gv},
				PreferredVersion: gv,
			})
		case !slices.Contains(list.Groups[at].Versions, gv):
			list.Groups[at].Versions = append(list.Groups[at].Versions, gv)
		}
	}
	return list
}

func (s *Server) resources(w http.ResponseWriter, of schema.GroupVersion) bool {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: of.String()}
	for _, kind := range s.kinds {
		if kind.GroupVersion() != of {
			continue
		}
		resource := metav1.APIResource{
			Name: kind.Resource, SingularName: strings.ToLower(kind.Kind), Namespaced: kind.Namespaced, Kind: kind.Kind,
			Verbs: metav1.Verbs{"create", "delete", "get", "list", "patch", "update", "watch"},
		}
		list.APIResources = append(list.APIResources, resource)
		if kind.Status {
			resource.Name += "/status"
			resource.Verbs = metav1.Verbs{"get", "patch", "update"}
			list.APIResources = append(list.APIResources, resource)
		}
	}
	if len(list.APIResources) == 0 {
		return false
	}
	writeJSON(w, http.StatusOK, list)
	return true
}

// WriteKubeconfig writes a kubeconfig for a server to a file, for another process.
func WriteKubeconfig(config *rest.Config, file string) error {
	const entry = "stub"
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters[entry] = &clientcmdapi.Cluster{Server: config.Host}
	kubeconfig.AuthInfos[entry] = &clientcmdapi.AuthInfo{}
	kubeconfig.Contexts[entry] = &clientcmdapi.Context{Cluster: entry, AuthInfo: entry}
	kubeconfig.CurrentContext = entry
	if err := clientcmd.WriteToFile(*kubeconfig, file); err != nil {
		return fmt.Errorf("stub API server: kubeconfig: %w", err)
	}
	return nil
}
