// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"sluice.dev/webhook"
)

// While a replica of the webhook is upgraded whose built-in policies desire something else, every pod gets in: those of a
// controller and those of kubectl, whichever version mutates them and whichever validates them. Guards invariant 4 of the
// design.
func TestUpgradeOfTheWebhookRefusesNoPod(t *testing.T) {
	const ns, pods = "upgraded", 16
	s := newDedicatedCluster(t)
	s.createDepartment(t, ns, newPoolQuota("dgx", "0", "1"))
	s.createGovernedProject(t, ns, ns, newPoolQuota("dgx", "0", "1"))
	first := s.webhookConfig(t)
	upgraded, _ := s.startWebhookReplica(t, buildLaterWebhook(t), first, 1)
	router := s.routeWebhooks(t, first, upgraded)

	for run, validator := range []string{first.Listen, upgraded} {
		router.validator.Store(&validator)
		before := router.refused.Load()
		job := &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprint("job-", run)},
			Spec: batchv1.JobSpec{
				Parallelism: ptr.To[int32](pods), Completions: ptr.To[int32](pods),
				Template: corev1.PodTemplateSpec{Spec: newPod(ns, "", func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }).Spec},
			},
		}
		if err := s.adminClient.Create(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		for i := range pods {
			name := fmt.Sprintf("pod-%d-%d", run, i)
			s.mustKubectl(t, "run", name, "--namespace", ns, "--image", "any", "--restart", "Never")
		}
		eventuallyLong(t, func() error {
			list, err := s.clientset.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + job.Name})
			if err != nil {
				return err
			}
			if len(list.Items) < pods {
				return unexpectedState(fmt.Sprint(pods, " pods"), len(list.Items))
			}
			return nil
		})
		events, err := s.clientset.CoreV1().Events(ns).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=FailedCreate"})
		if err != nil {
			t.Fatal(err)
		}
		for i := range events.Items { // a controller is asked to try again, too, and does so by itself
			if message := events.Items[i].Message; !strings.Contains(message, "try again in a moment") {
				t.Errorf("a controller could not create a pod: %s", message)
			}
		}
		if router.refused.Load() == before {
			t.Error("no pod was mutated by one version and refused by the other: the test shows nothing")
		}
	}
}

// buildLaterWebhook builds the webhook as another version, in which core.project sets another annotation.
func buildLaterWebhook(t *testing.T) (program string) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir, file := t.TempDir(), filepath.Join(root, "policies", "core", "project.rego")
	rego, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const present, later = ":= input.review.userInfo.username", `:= sprintf("%s of a later version", [input.review.userInfo.username])`
	if strings.Count(string(rego), present) != 1 {
		t.Fatalf("%s has not %q once", file, present)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{file: filepath.Join(dir, "project.rego")}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"project.rego": strings.Replace(string(rego), present, later, 1), "overlay.json": string(overlay)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program = filepath.Join(dir, "webhook")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-overlay", filepath.Join(dir, "overlay.json"),
		"-ldflags", "-X sluice.dev/api/config.Version=v99.0.0", "-o", program, "./cmd/webhook")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off") // as `make build`, whose packages are in the cache
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

// webhookRouter sends the requests of the validating phase to one replica, and every third one of the mutating phase to the
// other one.
type webhookRouter struct {
	validator atomic.Pointer[string]
	mutations atomic.Int64
	// refused counts the requests that the client is asked to repeat.
	refused atomic.Int64
}

// routeWebhooks makes the API server call two replicas.
func (s *sluiceCluster) routeWebhooks(t *testing.T, first webhook.Config, second string) *webhookRouter {
	t.Helper()
	listener, pool := s.listenAsWebhook(t)
	r := &webhookRouter{}
	r.validator.Store(&first.Listen)
	target := func(path string) string {
		validator, other := *r.validator.Load(), second
		if validator == second {
			other = first.Listen
		}
		if path == webhook.PathMutatePods && r.mutations.Add(1)%3 == 0 {
			return other
		}
		return validator
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(request *httputil.ProxyRequest) {
			request.SetURL(&url.URL{Scheme: "https", Host: target(request.In.URL.Path)})
		},
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "localhost"}},
		ModifyResponse: func(response *http.Response) error {
			body, err := io.ReadAll(response.Body)
			if response.Request.URL.Path == webhook.PathValidatePods && bytes.Contains(body, []byte(`"code":429`)) {
				r.refused.Add(1)
			}
			response.Body = io.NopCloser(bytes.NewReader(body))
			return err
		},
	}
	server := &http.Server{Handler: proxy, ReadHeaderTimeout: time.Minute}
	go server.Serve(listener)
	s.setWebhookURL(t, listener.Addr().String())
	return r
}
