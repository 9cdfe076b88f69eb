// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package launcher

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// proxy leads connections to Services (HTTP CONNECT) to a ready endpoint each, in turns. The
// API server connects through it. Like kube-proxy it tries one endpoint per connection. It
// leads connections to the kubelets of simulated nodes to their socket.
type proxy struct {
	// kubelet is the address of the kubelets, by port on any node.
	kubelet  KubeletAddress
	registry *registry
	log      *slog.Logger
	services []cache.Store
	slices   []cache.Store
	synced   []cache.InformerSynced

	mu   sync.Mutex
	next map[string]int    // by address, for turns
	last map[string]string // the last error by address, which is logged once
}

func newProxy(r *registry, kubelet KubeletAddress, log *slog.Logger) *proxy {
	return &proxy{registry: r, kubelet: kubelet, log: log, next: map[string]int{}, last: map[string]string{}}
}

// watch starts the informers of Services and EndpointSlices.
func (p *proxy) watch(ctx context.Context, group *errgroup.Group, client kubernetes.Interface, namespaces []string) {
	for _, namespace := range namespaces {
		services := cache.NewSharedIndexInformer(
			cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "services", namespace, fields.Everything()),
			&corev1.Service{}, resync, cache.Indexers{})
		endpoints := cache.NewSharedIndexInformer(
			cache.NewListWatchFromClient(client.DiscoveryV1().RESTClient(), "endpointslices", namespace, fields.Everything()),
			&discoveryv1.EndpointSlice{}, resync, cache.Indexers{})
		p.services, p.slices = append(p.services, services.GetStore()), append(p.slices, endpoints.GetStore())
		for _, informer := range []cache.SharedIndexInformer{services, endpoints} {
			p.synced = append(p.synced, informer.HasSynced)
			group.Go(func() error { informer.RunWithContext(ctx); return nil })
		}
	}
}

// listenUnix listens on a socket, which it creates for this user only.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove the socket of an earlier run: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	return listener, os.Chmod(path, 0o600)
}

// serve serves connections until ctx ends.
func (p *proxy) serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{Handler: p, ReadHeaderTimeout: dialTimeout}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("proxy to Services: %w", err)
	}
	return nil
}

// dialTimeout limits the connection to an endpoint on loopback.
const dialTimeout = 5 * time.Second

// ServeHTTP connects the client to the Service that it names.
func (p *proxy) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if request.Method != http.MethodConnect {
		http.Error(w, "the proxy to Services supports only CONNECT", http.StatusMethodNotAllowed)
		return
	}
	upstream, err := p.dial(request.Context(), request.Host)
	p.logOutcome(request.Host, err)
	client, buffered, hijackErr := w.(http.Hijacker).Hijack()
	if hijackErr != nil {
		p.log.Error("Failed to serve connection to a Service", "error", hijackErr)
		return
	}
	defer client.Close()
	if err != nil {
		// The API server reports only the status line.
		fmt.Fprintf(client, "HTTP/1.1 503 %s\r\n\r\n", strings.ReplaceAll(err.Error(), "\n", "; "))
		return
	}
	defer upstream.Close()
	if _, err := io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	done := make(chan struct{}, 2)
	pipe := func(to io.Writer, from io.Reader) {
		_, _ = io.Copy(to, from) // either side may end the connection
		done <- struct{}{}
	}
	go pipe(upstream, buffered)
	go pipe(client, upstream)
	<-done
}

// dial connects to the kubelet or the Service at an address.
func (p *proxy) dial(ctx context.Context, address string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: dialTimeout}
	// The API server names nodes, and Services by their address.
	host, port, err := net.SplitHostPort(address)
	if err == nil && p.kubelet.Socket != "" && port == strconv.Itoa(p.kubelet.Port) && net.ParseIP(host) == nil {
		return dialer.DialContext(ctx, "unix", p.kubelet.Socket)
	}
	if address, err = p.resolve(address); err != nil {
		return nil, err
	}
	return dialer.DialContext(ctx, "tcp", address)
}

// logOutcome logs the first of a row of equal errors.
func (p *proxy) logOutcome(address string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	p.mu.Lock()
	repeated := p.last[address] == text
	p.last[address] = text
	p.mu.Unlock()
	if err != nil && !repeated {
		p.log.Info("Refused connection to a Service", "address", address, "error", err)
	}
}

// resolve returns the address on loopback of a ready endpoint of the Service at address.
func (p *proxy) resolve(address string) (string, error) {
	for _, synced := range p.synced {
		if !synced() {
			return "", errors.New("the proxy to Services is starting")
		}
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", err
	}
	service, servicePort := p.service(host, port)
	if service == nil {
		return "", fmt.Errorf("no Service has the address %s", address)
	}
	ready := p.endpoints(service, servicePort.Name)
	if len(ready) == 0 {
		return "", fmt.Errorf("no pod of Service %s/%s is ready", service.Namespace, service.Name)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next[address]++
	return ready[p.next[address]%len(ready)], nil
}

// service returns the Service and its port at an address.
func (p *proxy) service(ip, port string) (*corev1.Service, *corev1.ServicePort) {
	for _, store := range p.services {
		for _, object := range store.List() {
			service := object.(*corev1.Service)
			if !slices.Contains(service.Spec.ClusterIPs, ip) {
				continue
			}
			for i := range service.Spec.Ports {
				if found := &service.Spec.Ports[i]; strconv.Itoa(int(found.Port)) == port {
					return service, found
				}
			}
		}
	}
	return nil, nil
}

// endpoints returns the addresses on loopback of a Service's ready endpoints, sorted.
func (p *proxy) endpoints(service *corev1.Service, portName string) []string {
	var ready []string
	for _, store := range p.slices {
		for _, object := range store.List() {
			slice := object.(*discoveryv1.EndpointSlice)
			if slice.Namespace != service.Namespace || slice.Labels[discoveryv1.LabelServiceName] != service.Name {
				continue
			}
			for _, port := range slice.Ports {
				if ptr.Deref(port.Name, "") == portName && port.Port != nil {
					ready = append(ready, p.readyAddresses(slice, *port.Port)...)
				}
			}
		}
	}
	slices.Sort(ready)
	return slices.Compact(ready)
}

func (p *proxy) readyAddresses(slice *discoveryv1.EndpointSlice, port int32) []string {
	var ready []string
	for _, endpoint := range slice.Endpoints {
		if !ptr.Deref(endpoint.Conditions.Ready, true) {
			continue
		}
		for _, ip := range endpoint.Addresses {
			if local, known := p.registry.loopbackPort(ip, port); known {
				ready = append(ready, net.JoinHostPort("127.0.0.1", strconv.Itoa(local)))
			}
		}
	}
	return ready
}

// CheckService reports through the socket of a proxy whether a pod of the Service at address
// is ready and accepts connections.
func CheckService(ctx context.Context, socket, address string) error {
	connection, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return err
	}
	defer connection.Close()
	stop := context.AfterFunc(ctx, func() { connection.Close() })
	defer stop()
	return connect(connection, address)
}

// connect requests a connection to address from the proxy at the other end.
func connect(connection net.Conn, address string) error {
	if _, err := fmt.Fprintf(connection, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", address); err != nil {
		return err
	}
	response, err := http.ReadResponse(bufio.NewReader(connection), &http.Request{Method: http.MethodConnect})
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("connect to the Service at %s: %s", address, response.Status)
	}
	return nil
}
