// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package streaming

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	utilexec "k8s.io/client-go/util/exec"

	"sluice.dev/test/lab/cluster"
	"sluice.dev/test/lab/cluster/fakekubelet/toyshell"
)

// testServer is a server of the nodes dgx-1, with the pods of a test, and dgx-2 without pods.
type testServer struct {
	*Server
	ca      *cluster.CA
	address string

	mu   sync.Mutex
	pods map[string]*corev1.Pod
	// reads counts the reads of pods, and changeStreamed runs once at the second one.
	reads          int
	changeStreamed func()
}

func newTestServer(t *testing.T, pods ...*corev1.Pod) *testServer {
	t.Helper()
	dir := t.TempDir()
	ca, err := cluster.OpenCA(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Server("dgx-1", "dgx-2", "dgx-3")
	if err != nil {
		t.Fatal(err)
	}
	config := Config{
		Certificate: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"),
		ClientCA: ca.CertFile(), Client: cluster.KubeletClientUser,
	}
	if err := pair.Write(config.Certificate, config.Key); err != nil {
		t.Fatal(err)
	}
	server, err := NewServer(config, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	server.pollInterval = 5 * time.Millisecond
	s := &testServer{Server: server, ca: ca, pods: map[string]*corev1.Pod{}}
	for _, pod := range pods {
		s.setPod(pod)
	}
	s.Add("dgx-1", Node{
		Pod: s.readPod,
		Container: func(pod *corev1.Pod, _ *corev1.Container) toyshell.Container {
			return toyshell.Container{Hostname: pod.Name, User: "root", WorkingDir: "/"}
		},
	})
	s.Add("dgx-2", Node{Pod: func(string, string) *corev1.Pod { return nil }})
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.address = listener.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *testServer) readPod(namespace, name string) *corev1.Pod {
	s.mu.Lock()
	s.reads++
	second, change := s.reads == 2, s.changeStreamed
	s.mu.Unlock()
	if second && change != nil {
		change()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pods[namespace+"/"+name]
}

// whenStreamed makes the server call change once a stream has begun: it reads the pod when the request arrives, and again
// after the first lines.
func (s *testServer) whenStreamed(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads, s.changeStreamed = 0, change
}

func (s *testServer) setPod(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods[pod.Namespace+"/"+pod.Name] = pod
}

// client returns a client with a certificate for this user, of a node.
func (s *testServer) client(t *testing.T, user, node string) *rest.Config {
	t.Helper()
	config := &rest.Config{Host: "https://" + s.address, TLSClientConfig: rest.TLSClientConfig{CAData: s.ca.CertPEM(), ServerName: node}}
	if user != "" {
		pair, err := s.ca.Client(user)
		if err != nil {
			t.Fatal(err)
		}
		config.CertData, config.KeyData = pair.Cert, pair.Key
	}
	return config
}

// get requests a path as the API server.
func (s *testServer) get(t *testing.T, config *rest.Config, path string) (status int, body string, err error) {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Get(config.Host + path)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	return response.StatusCode, string(raw), err
}

// exec runs a command as the API server, and returns what it printed and its exit code.
func (s *testServer) exec(t *testing.T, pod, container, in string, command ...string) (out, errOut string, code int, err error) {
	t.Helper()
	query := url.Values{"command": command, "output": {"1"}, "error": {"1"}}
	options := remotecommand.StreamOptions{}
	if in != "" {
		query.Set("input", "1")
		options.Stdin = strings.NewReader(in)
	}
	var stdout, stderr bytes.Buffer
	options.Stdout, options.Stderr = &stdout, &stderr
	target, err := url.Parse("https://" + s.address + "/exec/course/" + pod + "/" + container + "?" + query.Encode())
	if err != nil {
		t.Fatal(err)
	}
	executor, err := remotecommand.NewSPDYExecutor(s.client(t, cluster.KubeletClientUser, "dgx-1"), http.MethodPost, target)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	err = executor.StreamWithContext(ctx, options)
	var exit utilexec.CodeExitError
	if errors.As(err, &exit) {
		code, err = exit.Code, nil
	}
	return stdout.String(), stderr.String(), code, err
}

// newTestPod returns a pod with one container that has run for five minutes.
func newTestPod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "course", Name: name, UID: "5f0c"},
		Spec: corev1.PodSpec{
			NodeName:   "dgx-1",
			Containers: []corev1.Container{{Name: "main", Image: "pytorch:2.9", Command: []string{"python", "train.py"}}},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning,
			ContainerStatuses: []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
				Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(time.Now().Add(-5*time.Minute - 10*time.Second))},
			}}},
		},
	}
	for _, c := range change {
		c(pod)
	}
	return pod
}

func withPort(port int32) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: port}} }
}

func TestExec(t *testing.T) {
	s := newTestServer(t, newTestPod("train"))
	for _, tc := range []struct {
		in           string
		command      []string
		out, errText string
		code         int
	}{
		{"", []string{"hostname"}, "train\n", "", 0},
		{"", []string{"sh", "-c", "echo a; exit 3"}, "a\n", "", 3},
		{"", []string{"rm", "-rf", "/"}, "", "sh: rm: not found", 127},
		{"echo typed\n(exit 4)\n", []string{"bash"}, "typed\n", "", 4},
		{"data", []string{"cat"}, "data", "", 0},
		{"", []string{"echo", strings.Repeat("x", 60<<10)}, strings.Repeat("x", 60<<10) + "\n", "", 0},
		{"", []string{"echo", strings.Repeat("x", 200<<10)}, "", "argument list too long", 126},
		{"", []string{"cat", "/etc/passwd", "/proc/self/environ", "../../../../etc/shadow"}, "", "No such file", 1},
	} {
		out, errOut, code, err := s.exec(t, "train", "main", tc.in, tc.command...)
		if err != nil || out != tc.out || code != tc.code || !strings.Contains(errOut, tc.errText) {
			t.Errorf("%.60q: %.80q, errors %.80q, exit %d, %v; want %.80q, %q, exit %d", tc.command, out, errOut, code, err, tc.out, tc.errText, tc.code)
		}
	}
}

// Without the API server's certificate, or for what the node does not run, nothing is served.
func TestRefusedRequests(t *testing.T) {
	waiting := newTestPod("waiting", func(p *corev1.Pod) {
		p.Status.Phase, p.Status.ContainerStatuses[0].State = corev1.PodPending, corev1.ContainerState{}
	})
	s := newTestServer(t, newTestPod("train"), waiting)
	const logs = "/containerLogs/course/train/main"
	for _, tc := range []struct {
		name, user, node, path string
		status                 int
		text                   string
	}{
		{"another user", "system:kube-scheduler", "dgx-1", logs, 403, "only the API server"},
		{"the administrator", "kubernetes-admin", "dgx-1", "/exec/course/train/main?command=env&output=1", 403, "only the API server"},
		{"a pod of another node", cluster.KubeletClientUser, "dgx-2", logs, 400, `no simulated pod course/train is on node "dgx-2"`},
		{"exec on another node", cluster.KubeletClientUser, "dgx-2", "/exec/course/train/main?command=env&output=1", 400, "no simulated pod"},
		{"an unknown node", cluster.KubeletClientUser, "dgx-3", logs, 400, "no simulated pod"},
		{"an unknown pod", cluster.KubeletClientUser, "dgx-1", "/containerLogs/course/other/main", 400, "no simulated pod"},
		{"an unknown container", cluster.KubeletClientUser, "dgx-1", "/containerLogs/course/train/sidecar", 404, `container "sidecar" is not in pod "train"`},
		{"exec in an unknown container", cluster.KubeletClientUser, "dgx-1", "/exec/course/train/sidecar?command=env&output=1", 404, "not in pod"},
		{"a path in a name", cluster.KubeletClientUser, "dgx-1", "/containerLogs/course/..%2F..%2Fetc%2Fpasswd/main", 400, "no simulated pod"},
		{"a path in the container's name", cluster.KubeletClientUser, "dgx-1", "/containerLogs/course/train/..%2F..%2F..%2Fetc%2Fpasswd", 404, "not in pod"},
		{"dots", cluster.KubeletClientUser, "dgx-1", "/containerLogs/../../etc/passwd", 404, "404"},
		{"files of the kubelet", cluster.KubeletClientUser, "dgx-1", "/logs/", 404, "404"},
		{"the kubelet's run", cluster.KubeletClientUser, "dgx-1", "/run/course/train/main?cmd=env", 404, "404"},
		{"a pod that waits", cluster.KubeletClientUser, "dgx-1", "/containerLogs/course/waiting/main", 400, "waiting to start: ContainerCreating"},
		{"exec in a pod that waits", cluster.KubeletClientUser, "dgx-1", "/exec/course/waiting/main?command=env&output=1", 500, `container not found ("main")`},
		{"attach to a pod that waits", cluster.KubeletClientUser, "dgx-1", "/attach/course/waiting/main?output=1", 500, `container not found ("main")`},
		{"ports of a pod that waits", cluster.KubeletClientUser, "dgx-1", "/portForward/course/waiting", 500, "is not running"},
		{"exec without streams", cluster.KubeletClientUser, "dgx-1", "/exec/course/train/main?command=env", 400, "at least 1 of stdin"},
		{"exec without an upgrade", cluster.KubeletClientUser, "dgx-1", "/exec/course/train/main?command=env&output=1", 400, "upgrade"},
		{"no earlier run", cluster.KubeletClientUser, "dgx-1", logs + "?previous=true", 400, `previous terminated container "main" in pod "train" not found`},
		{"an invalid number", cluster.KubeletClientUser, "dgx-1", logs + "?tailLines=-1", 400, `tailLines "-1"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			status, body, err := s.get(t, s.client(t, tc.user, tc.node), tc.path)
			if err != nil || status != tc.status || !strings.Contains(body, tc.text) {
				t.Errorf("%d %q, %v; want %d and %q", status, body, err, tc.status, tc.text)
			}
		})
	}
}

func TestCertificatesAreRequired(t *testing.T) {
	s := newTestServer(t, newTestPod("train"))
	const logs = "/containerLogs/course/train/main"
	if status, body, err := s.get(t, s.client(t, "", "dgx-1"), logs); err == nil {
		t.Errorf("without a certificate: %d %q", status, body)
	}
	other, err := cluster.OpenCA(t.TempDir(), "other")
	if err != nil {
		t.Fatal(err)
	}
	forged, err := other.Client(cluster.KubeletClientUser)
	if err != nil {
		t.Fatal(err)
	}
	config := s.client(t, "", "dgx-1")
	config.CertData, config.KeyData = forged.Cert, forged.Key
	if status, body, err := s.get(t, config, logs); err == nil {
		t.Errorf("with another authority's certificate: %d %q", status, body)
	}
	// A server's certificate of the same authority is no client's.
	serving, err := s.ca.Server(cluster.KubeletClientUser)
	if err != nil {
		t.Fatal(err)
	}
	config.CertData, config.KeyData = serving.Cert, serving.Key
	if status, body, err := s.get(t, config, logs); err == nil {
		t.Errorf("with a server's certificate: %d %q", status, body)
	}
	if _, _, err := s.get(t, s.client(t, cluster.KubeletClientUser, "dgx-1"), logs); err != nil {
		t.Errorf("the API server: %v", err)
	}
}

func TestAttachShowsNewOutput(t *testing.T) {
	pod := newTestPod("train")
	s := newTestServer(t, pod)
	target, err := url.Parse("https://" + s.address + "/attach/course/train/main?output=1")
	if err != nil {
		t.Fatal(err)
	}
	executor, err := remotecommand.NewSPDYExecutor(s.client(t, cluster.KubeletClientUser, "dgx-1"), http.MethodPost, target)
	if err != nil {
		t.Fatal(err)
	}
	s.whenStreamed(func() { s.setPod(ended(pod, 3)) })
	var out bytes.Buffer
	if err := executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &out}); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "[simulated] container main ended with exit code 3\n"; got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
}

// ended returns the pod after its container has ended now.
func ended(pod *corev1.Pod, code int32) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Status.Phase = corev1.PodFailed
	state := &pod.Status.ContainerStatuses[0].State
	state.Terminated = &corev1.ContainerStateTerminated{ExitCode: code, StartedAt: state.Running.StartedAt, FinishedAt: metav1.Now()}
	state.Running = nil
	return pod
}

func TestPortForward(t *testing.T) {
	s := newTestServer(t, newTestPod("web", withPort(8080)))
	target, err := url.Parse("https://" + s.address + "/portForward/course/web")
	if err != nil {
		t.Fatal(err)
	}
	config := s.client(t, cluster.KubeletClientUser, "dgx-1")
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		t.Fatal(err)
	}
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, target)
	stop, ready := make(chan struct{}), make(chan struct{})
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{":8080", ":22"}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- forwarder.ForwardPorts() }()
	<-ready
	ports, err := forwarder.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	fetch := func(port uint16) (string, error) {
		response, err := (&http.Client{Timeout: 5 * time.Minute}).Get(fmt.Sprintf("http://127.0.0.1:%d/any/path", port))
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		return string(body), err
	}
	for range 2 {
		if body, err := fetch(ports[0].Local); err != nil || !strings.Contains(body, "Port 8080 of pod course/web") {
			t.Errorf("the declared port: %q, %v", body, err)
		}
	}
	if body, err := fetch(ports[1].Local); err == nil {
		t.Errorf("a port that no container declares answers: %q", body)
	}
	close(stop)
	<-done
}
