// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package streaming serves the part of the kubelet's HTTP API through which the API server
// fetches logs and runs exec, attach and port-forward, for simulated nodes. One server
// serves all nodes; the name of the server in TLS selects the node. It answers only the
// holder of the API server's client certificate.
//
// The containers have no processes. Their log is computed from the pod and its status,
// commands run in package toyshell, and a forwarded port answers with a page that names the
// pod. No request reaches a file, process or port of this machine.
package streaming

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"sluice.dev/test/lab/cluster/fakekubelet/toyshell"
)

const (
	headerTimeout = 10 * time.Second
	// idleTimeout ends exec, attach and port-forward without data, as in a kubelet.
	idleTimeout = 4 * time.Hour
	// maxStreams bounds the requests at a time, of all nodes.
	maxStreams = 512
)

// Config holds the TLS files of a server, and its clients.
type Config struct {
	// Certificate and Key are the server's own, for the names of all nodes.
	Certificate string `json:"certificate"`
	Key         string `json:"key"`
	// ClientCA has signed the client's certificate, and Client is its common name.
	ClientCA string `json:"clientCA"`
	Client   string `json:"client"`
}

// Validate returns an error that names the first missing field.
func (c Config) Validate() error {
	for _, field := range []struct{ name, value string }{
		{"certificate", c.Certificate}, {"key", c.Key}, {"clientCA", c.ClientCA}, {"client", c.Client},
	} {
		if field.value == "" {
			return fmt.Errorf("%s: is empty; the streams of pods need it", field.name)
		}
	}
	return nil
}

// Node is a node whose pods are served. The functions may be called concurrently.
type Node struct {
	// Pod returns a pod of this node, or nil.
	Pod func(namespace, name string) *corev1.Pod
	// Container returns what commands see in a container.
	Container func(pod *corev1.Pod, container *corev1.Container) toyshell.Container
}

// Server serves the streams of nodes. Its methods are safe for concurrent use.
type Server struct {
	client string
	tls    *tls.Config
	log    *slog.Logger
	slots  chan struct{}
	// pollInterval is the time after which a followed log is read again.
	pollInterval time.Duration

	mu    sync.RWMutex
	nodes map[string]Node
}

// NewServer reads the files of config and returns a server without nodes.
func NewServer(config Config, log *slog.Logger) (*Server, error) {
	pair, err := tls.LoadX509KeyPair(config.Certificate, config.Key)
	if err != nil {
		return nil, fmt.Errorf("certificate of the streams: %w", err)
	}
	authority, err := os.ReadFile(config.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("certificate authority of the streams' clients: %w", err)
	}
	clients := x509.NewCertPool()
	if !clients.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("certificate authority of the streams' clients: %s has no certificate", config.ClientCA)
	}
	return &Server{
		client: config.Client,
		tls: &tls.Config{
			MinVersion:   tls.VersionTLS12,
			Certificates: []tls.Certificate{pair},
			ClientAuth:   tls.RequireAndVerifyClientCert,
			ClientCAs:    clients,
			NextProtos:   []string{"http/1.1"}, // exec upgrades the connection
		},
		log:          log,
		slots:        make(chan struct{}, maxStreams),
		pollInterval: 200 * time.Millisecond,
		nodes:        map[string]Node{},
	}, nil
}

// Add serves a node from now on. A node that was added before is replaced.
func (s *Server) Add(name string, node Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes[name] = node
}

// Serve serves the listener until ctx ends, ends all streams and closes it.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: headerTimeout,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug), // clients that break off
		// Streams end with ctx, also those that have taken over their connection.
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(tls.NewListener(listener, s.tls)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the streams of pods: %w", err)
	}
	return nil
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", s.logs)
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		mux.HandleFunc(method+" /exec/{namespace}/{pod}/{container}", s.exec)
		mux.HandleFunc(method+" /attach/{namespace}/{pod}/{container}", s.attach)
		mux.HandleFunc(method+" /portForward/{namespace}/{pod}", s.portForward)
	}
	return s.onlyClient(mux)
}

// onlyClient refuses all clients but the API server, and more than maxStreams requests.
func (s *Server) onlyClient(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || r.TLS.PeerCertificates[0].Subject.CommonName != s.client {
			http.Error(w, "only the API server ("+s.client+") may use the kubelet's API", http.StatusForbidden)
			return
		}
		select {
		case s.slots <- struct{}{}:
			defer func() { <-s.slots }()
		default:
			http.Error(w, fmt.Sprintf("the simulated nodes serve at most %d streams at a time", maxStreams), http.StatusTooManyRequests)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// httpError is an error with the status of its response.
type httpError struct {
	status int
	text   string
}

func (e *httpError) Error() string { return e.text }

func newHTTPError(status int, format string, args ...any) error {
	return &httpError{status, fmt.Sprintf(format, args...)}
}

func respondError(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	var known *httpError
	if errors.As(err, &known) {
		status = known.status
	}
	http.Error(w, err.Error(), status)
}

// target is the container that a request names.
type target struct {
	node      Node
	pod       *corev1.Pod
	container *corev1.Container
}

// findPod returns the pod of a request, on the node whose name the client has verified.
func (s *Server) findPod(r *http.Request) (target, error) {
	s.mu.RLock()
	node, known := s.nodes[r.TLS.ServerName]
	s.mu.RUnlock()
	namespace, name := r.PathValue("namespace"), r.PathValue("pod")
	var pod *corev1.Pod
	if known {
		pod = node.Pod(namespace, name)
	}
	if pod == nil {
		// The API server shows the text of this status alone.
		return target{}, newHTTPError(http.StatusBadRequest, "no simulated pod %s/%s is on node %q; Sluice's own pods are processes of "+
			"this machine, and `sluice status` names their logs", namespace, name, r.TLS.ServerName)
	}
	return target{node: node, pod: pod}, nil
}

// findContainer returns the container of a request.
func (s *Server) findContainer(r *http.Request) (target, error) {
	found, err := s.findPod(r)
	if err != nil {
		return target{}, err
	}
	name := r.PathValue("container")
	if found.container = containerOf(found.pod, name); found.container == nil {
		return target{}, newHTTPError(http.StatusNotFound, "container %q is not in pod %q", name, found.pod.Name)
	}
	return found, nil
}

// findRunning returns the container of a request if it runs.
func (s *Server) findRunning(r *http.Request) (target, error) {
	found, err := s.findContainer(r)
	if err != nil {
		return target{}, err
	}
	if status := statusOf(found.pod, found.container.Name); status == nil || status.State.Running == nil {
		return target{}, newHTTPError(http.StatusInternalServerError, "container not found (%q): it does not run", found.container.Name)
	}
	return found, nil
}

func containerOf(pod *corev1.Pod, name string) *corev1.Container {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

func statusOf(pod *corev1.Pod, container string) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			if list[i].Name == container {
				return &list[i]
			}
		}
	}
	return nil
}

func (s *Server) exec(w http.ResponseWriter, r *http.Request) {
	found, err := s.findRunning(r)
	var options *remotecommand.Options
	if err == nil {
		options, err = streamOptions(r)
	}
	if err != nil {
		respondError(w, err)
		return
	}
	remotecommand.ServeExec(w, r, session{s, found}, found.pod.Name, string(found.pod.UID), found.container.Name, r.Form["command"],
		options, idleTimeout, remotecommand.DefaultStreamCreationTimeout, remotecommand.SupportedStreamingProtocols)
}

func (s *Server) attach(w http.ResponseWriter, r *http.Request) {
	found, err := s.findRunning(r)
	var options *remotecommand.Options
	if err == nil {
		options, err = streamOptions(r)
	}
	if err != nil {
		respondError(w, err)
		return
	}
	remotecommand.ServeAttach(w, r, session{s, found}, found.pod.Name, string(found.pod.UID), found.container.Name,
		options, idleTimeout, remotecommand.DefaultStreamCreationTimeout, remotecommand.SupportedStreamingProtocols)
}

// streamOptions parses the query of exec and attach.
func streamOptions(r *http.Request) (*remotecommand.Options, error) {
	if err := r.ParseForm(); err != nil {
		return nil, newHTTPError(http.StatusBadRequest, "query: %v", err)
	}
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		return nil, newHTTPError(http.StatusBadRequest, "%v", err)
	}
	return options, nil
}

func (s *Server) portForward(w http.ResponseWriter, r *http.Request) {
	found, err := s.findPod(r)
	if err == nil && found.pod.Status.Phase != corev1.PodRunning {
		err = newHTTPError(http.StatusInternalServerError, "pod %q is not running", found.pod.Name)
	}
	var options *portforward.V4Options
	if err == nil {
		if options, err = portforward.NewV4Options(r); err != nil {
			err = newHTTPError(http.StatusBadRequest, "%v", err)
		}
	}
	if err != nil {
		respondError(w, err)
		return
	}
	portforward.ServePortForward(w, r, forwarder(found), found.pod.Name, string(found.pod.UID), options,
		idleTimeout, remotecommand.DefaultStreamCreationTimeout, portforward.SupportedProtocols)
}
