// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

func TestTokenOfLog(t *testing.T) {
	tests := map[string]string{
		"To access the server, open\n        http://hub:8888/lab?token=abc123\n     or http://127.0.0.1:8888/lab?token=abc123\n": "abc123",
		"http://a/?token=old\n restarted http://a/?token=new-1_2.x":                                                              "new-1_2.x",
		"http://a/?token=\n":                           "",
		"a user typed ?token=fake":                     "",
		"no address":                                   "",
		"http://a/?token=abc\x1b[2J":                   "abc",
		"https://a/?token=" + strings.Repeat("a", 300): "",
		"http://a/?token=abc&x=1 trailing":             "abc",
	}
	for log, want := range tests {
		if got := tokenOfLog(log); got != want {
			t.Errorf("the token in %q is %q, want %q", log, got, want)
		}
	}
}

func FuzzTokenOfLog(f *testing.F) {
	f.Add("http://127.0.0.1:8888/lab?token=abc123\n")
	f.Add("http://?token=\x00")
	allowed := regexp.MustCompile(`^[A-Za-z0-9._-]{0,200}$`)
	f.Fuzz(func(t *testing.T, log string) {
		if token := tokenOfLog(log); !allowed.MatchString(token) {
			t.Fatalf("the token is %q", token)
		}
	})
}

func TestNotebookToken(t *testing.T) {
	c, pod := newStreamClient(t, "http://127.0.0.1:8888/lab?token=of-the-log", "")
	if got := c.notebookToken(t.Context(), pod, "main"); got != "of-the-log" {
		t.Errorf("the token is %q, want that of the log", got)
	}
	pod.Spec.Containers[0].Env = []corev1.EnvVar{
		{Name: "NOTEBOOK_TOKEN", ValueFrom: &corev1.EnvVarSource{}}, {Name: "JUPYTER_TOKEN", Value: "of-the-variable"},
	}
	if got := c.notebookToken(t.Context(), pod, "main"); got != "of-the-variable" {
		t.Errorf("the token is %q, want that of the variable", got)
	}
	c.config.BearerToken = "stranger"
	pod.Spec.Containers[0].Env = nil
	if got := c.notebookToken(t.Context(), pod, "main"); got != "" {
		t.Errorf("without the right to read the log the token is %q", got)
	}
}

func TestOutsideAddress(t *testing.T) {
	notebook := sampleWorkloads(t)[0]
	if got := outsideAddress(notebook); got != "" {
		t.Errorf("the address is %q, without an Ingress", got)
	}
	notebook.Ingresses = []*networkingv1.Ingress{{Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{
		Host: "gpu.h2.example", IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
			Paths: []networkingv1.HTTPIngressPath{{Path: "/notebook"}},
		}},
	}}}}}
	if got := outsideAddress(notebook); got != "http://gpu.h2.example/notebook" {
		t.Errorf("the address is %q", got)
	}
}

// The token is printed only if the user requested it.
func TestOpenPrintsNoToken(t *testing.T) {
	const address = "http://127.0.0.1:1/lab"
	var out bytes.Buffer
	page := webPage{token: "s3cret", output: &out, noBrowser: true}
	if err := page.open(t.Context(), address); err != nil || strings.Contains(out.String(), "s3cret") || !strings.Contains(out.String(), "--show-token") {
		t.Errorf("printed is %q, %v", out.String(), err)
	}
	out.Reset()
	page.showToken = true
	if err := page.open(t.Context(), address); err != nil || out.String() != address+"?token=s3cret\n" {
		t.Errorf("printed is %q, %v; want the whole address", out.String(), err)
	}
	out.Reset()
	page = webPage{output: &out}
	if err := page.open(t.Context(), address); err != nil || out.String() != address+"\n" {
		t.Errorf("printed is %q, %v; want the address", out.String(), err)
	}
}

// The link leads to the address with the token once, and no other path does.
func TestServeOnce(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const address = "http://127.0.0.1:1/lab?token=s3cret"
	link, used, err := serveOnce(ctx, address)
	if err != nil || strings.Contains(link, "s3cret") {
		t.Fatalf("the link is %s, %v", link, err)
	}
	browser := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	get := func(target string) (status int, location string, err error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := browser.Do(request)
		if err != nil {
			return 0, "", err
		}
		_ = response.Body.Close()
		return response.StatusCode, response.Header.Get("Location"), nil
	}
	if status, _, err := get(link + "x"); err != nil || status != http.StatusNotFound {
		t.Errorf("another path: %d, %v", status, err)
	}
	status, location, err := get(link)
	if err != nil || status != http.StatusFound || location != address {
		t.Fatalf("the link: %d, %s, %v", status, location, err)
	}
	<-used
	if status, _, err := get(link); err == nil && status == http.StatusFound {
		t.Error("the link works twice")
	}
}

// notifyingWriter reports each text that is written.
type notifyingWriter chan string

func (w notifyingWriter) Write(text []byte) (int, error) {
	w <- string(text)
	return len(text), nil
}

// A notebook without an address outside is opened through a forwarded port, until Ctrl-C.
func TestOpenForwarded(t *testing.T) {
	c, pod := newStreamClient(t, "", "")
	cmd, _, _ := newStreamCommand(t, "")
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	cmd.SetContext(ctx)
	written := make(notifyingWriter, 10)
	ended := make(chan error, 1)
	go func() { ended <- c.openForwarded(cmd, pod, "8888", &webPage{output: written}) }()
	first := <-written
	address := regexp.MustCompile(`http://(127\.0\.0\.1:[0-9]+)/`).FindStringSubmatch(first)
	if address == nil || !strings.Contains(first, "to port 8888 of pod training-0 until Ctrl-C") {
		t.Fatalf("printed is %q", first)
	}
	if second := <-written; second != address[0]+"\n" {
		t.Errorf("the address is %q, want %s", second, address[0])
	}
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address[1])
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(connection); err != nil || string(got) != "port 8888 of training-0" {
		t.Errorf("the address answers %q, %v", got, err)
	}
	interrupt()
	if err := <-ended; err != nil {
		t.Errorf("after Ctrl-C: %v", err)
	}
}
