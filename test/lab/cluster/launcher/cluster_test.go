// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package launcher

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"sluice.dev/test/clustertest"
	"sluice.dev/test/lab/cluster/process"
)

// serverArgument makes this test binary serve HTTP: /ready and /live fail while the files of
// that name in the folder exist, /name returns the name.
const serverArgument = "serve-http"

func TestMain(m *testing.M) {
	if len(os.Args) == 5 && os.Args[1] == serverArgument {
		serveHTTP(os.Args[2], os.Args[3], os.Args[4])
	}
	clustertest.Main(m)
}

func serveHTTP(address, dir, name string) {
	for _, path := range []string{"not-ready", "not-live"} {
		http.HandleFunc("/"+path, func(w http.ResponseWriter, _ *http.Request) {
			if _, err := os.Stat(filepath.Join(dir, path)); err == nil {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})
	}
	http.HandleFunc("/name", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) })
	fmt.Fprintln(os.Stderr, http.ListenAndServe(address, nil)) //nolint:gosec // a test's server
	os.Exit(1)
}

// testNode is a launcher for one namespace.
type testNode struct {
	namespace string
	dir       string
	group     *process.Group
	client    *kubernetes.Clientset
	cfg       Config
	cancel    context.CancelFunc
	done      chan error
}

func newTestNode(t *testing.T) *testNode {
	t.Helper()
	c := clustertest.Start(t)
	n := &testNode{namespace: clustertest.Namespace(t, c), dir: t.TempDir()}
	var err error
	if n.client, err = kubernetes.NewForConfig(c.Config()); err != nil {
		t.Fatal(err)
	}
	// The controllers ignore and remove the pods of a node that does not exist.
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	if _, err := n.client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	if n.group, err = process.NewGroup(n.dir); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// A socket's path must be short.
	sockets, err := os.MkdirTemp("", "launcher")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(sockets) })
	n.cfg = Config{
		API: c.Config(), Namespaces: []string{n.namespace}, Dir: filepath.Join(n.dir, "pods"), Group: n.group,
		Programs:    map[string]string{"sh": "/bin/sh", "server": self},
		HostFolder:  func(node, path string) string { return filepath.Join(n.dir, "nodes", node, path) },
		ProxySocket: filepath.Join(sockets, "proxy.sock"),
		Log:         slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	n.start()
	t.Cleanup(func() {
		if err := n.stop(); err != nil {
			t.Error(err)
		}
		if left := n.group.List(); len(left) > 0 {
			t.Errorf("the launcher left %+v", left)
		}
		if err := n.group.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return n
}

func (n *testNode) start() {
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel, n.done = cancel, make(chan error, 1)
	go func() { n.done <- Run(ctx, n.cfg) }()
}

func (n *testNode) stop() error {
	n.cancel()
	return <-n.done
}

// create creates a pod on node-1 from the YAML of its spec.
func (n *testNode) create(t *testing.T, name, spec string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}}}
	if err := yaml.UnmarshalStrict([]byte(spec), &pod.Spec); err != nil {
		t.Fatal(err)
	}
	pod.Spec.NodeName = "node-1"
	pod, err := n.client.CoreV1().Pods(n.namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// await returns the pod once condition accepts it.
func (n *testNode) await(t *testing.T, name, what string, condition func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	clustertest.Eventually(t, func() error {
		var err error
		if pod, err = n.client.CoreV1().Pods(n.namespace).Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			return err
		}
		if !condition(pod) {
			status, _ := json.Marshal(pod.Status)
			return fmt.Errorf("pod %s is not %s: %s", name, what, status)
		}
		return nil
	})
	return pod
}

// awaitRemoval waits until the pod is gone. The grace period of a pod that must not use it up is longer than this wait.
func (n *testNode) awaitRemoval(t *testing.T, name string) {
	t.Helper()
	clustertest.Eventually(t, func() error {
		_, err := n.client.CoreV1().Pods(n.namespace).Get(t.Context(), name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("pod %s remains: %w", name, err)
		}
		return nil
	})
}

func (n *testNode) delete(t *testing.T, name string) {
	t.Helper()
	if err := n.client.CoreV1().Pods(n.namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// awaitFile returns the content of a file once condition accepts it.
func awaitFile(t *testing.T, path string, condition func(string) bool) string {
	t.Helper()
	var content []byte
	clustertest.Eventually(t, func() error {
		var err error
		if content, err = os.ReadFile(path); err == nil && !condition(string(content)) {
			err = fmt.Errorf("%s is %q", path, content)
		}
		return err
	})
	return string(content)
}

func isReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// get requests a path of a Service through the proxy.
func (n *testNode) get(service *corev1.Service, path string) (string, error) {
	address := net.JoinHostPort(service.Spec.ClusterIP, "80")
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			connection, err := new(net.Dialer).DialContext(ctx, "unix", n.cfg.ProxySocket)
			if err != nil {
				return nil, err
			}
			return connection, connect(connection, address)
		},
	}}
	response, err := client.Get("http://service" + path)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body := make([]byte, 100)
	read, _ := response.Body.Read(body)
	return string(body[:read]), nil
}
