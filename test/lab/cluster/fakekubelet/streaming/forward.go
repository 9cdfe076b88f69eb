// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package streaming

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"io"
	"net"
	"net/http"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// forwarder serves the ports of one pod. Each connection ends in this process; none is made.
type forwarder target

// PortForward answers HTTP on a port that a container of the pod declares, or on which its
// notebook listens. Other ports refuse the connection.
func (f forwarder) PortForward(ctx context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	container := listener(f.pod, port)
	if container == nil {
		return fmt.Errorf("failed to connect to localhost:%d of pod %s: connect: connection refused: no container declares the port",
			port, f.pod.Name)
	}
	server := &http.Server{Handler: podPage(f.pod, container, port), ReadHeaderTimeout: headerTimeout, MaxHeaderBytes: 64 << 10}
	near, far := net.Pipe()
	stop := context.AfterFunc(ctx, func() { _ = stream.Close() })
	defer stop()
	var ends sync.WaitGroup
	ends.Go(func() {
		_, _ = io.Copy(near, stream) // either side may end the connection
		_ = near.Close()
	})
	ends.Go(func() {
		_, _ = io.Copy(stream, near)
		_ = stream.Close()
	})
	err := server.Serve(&oneConnection{connection: far, done: make(chan struct{})})
	_ = near.Close()
	ends.Wait()
	if !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// listener returns the running container that listens on a port, or nil.
func listener(pod *corev1.Pod, port int32) *corev1.Container {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			status := statusOf(pod, list[i].Name)
			if status == nil || status.State.Running == nil {
				continue
			}
			if notebook, isNotebook := notebookPort(&list[i]); isNotebook && notebook == port {
				return &list[i]
			}
			for _, declared := range list[i].Ports {
				if declared.ContainerPort == port && (declared.Protocol == "" || declared.Protocol == corev1.ProtocolTCP) {
					return &list[i]
				}
			}
		}
	}
	return nil
}

var page = template.Must(template.New("pod").Parse(`<!DOCTYPE html>
<html><head><title>{{.Pod}}</title></head><body>
<h1>Port {{.Port}} of pod {{.Namespace}}/{{.Pod}}</h1>
<p>Container {{.Container}} ({{.Image}}) is simulated on node {{.Node}}: this page is all that it serves.</p>
</body></html>
`))

// podPage answers every request with a page that names the pod.
func podPage(pod *corev1.Pod, container *corev1.Container, port int32) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_ = page.Execute(w, map[string]any{ // the client may be gone
			"Pod": pod.Name, "Namespace": pod.Namespace, "Port": port,
			"Container": container.Name, "Image": container.Image, "Node": pod.Spec.NodeName,
		})
	})
}

// oneConnection is a listener that accepts one connection, and then waits for its end.
type oneConnection struct {
	connection net.Conn
	accepted   bool
	once       sync.Once
	done       chan struct{}
}

// Accept returns the connection once, and net.ErrClosed when it has ended.
func (o *oneConnection) Accept() (net.Conn, error) {
	if !o.accepted {
		o.accepted = true
		return closeNotifier{o.connection, o}, nil
	}
	<-o.done
	return nil, net.ErrClosed
}

// Close ends the listener.
func (o *oneConnection) Close() error {
	o.once.Do(func() { close(o.done) })
	return nil
}

// Addr returns the address of the connection.
func (o *oneConnection) Addr() net.Addr { return o.connection.LocalAddr() }

// closeNotifier ends its listener with the connection.
type closeNotifier struct {
	net.Conn
	listener *oneConnection
}

// Close closes the connection and ends its listener.
func (c closeNotifier) Close() error {
	err := c.Conn.Close()
	_ = c.listener.Close() // it has no errors
	return err
}
