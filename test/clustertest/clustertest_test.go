// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clustertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

var setups int

func TestMain(m *testing.M) {
	Main(m, func(_ context.Context, c *Cluster) error {
		setups++
		return os.WriteFile(filepath.Join(c.Dir(), "logs", "webhook.log"), []byte("serving\n"), 0o600)
	})
}

func TestStartReturnsSharedCluster(t *testing.T) {
	first, second := Start(t), Start(t)
	if first != second {
		t.Error("Start returned two clusters")
	}
	if setups != 1 {
		t.Errorf("%d setups, want 1", setups)
	}
}

func TestNamespaceAcceptsPods(t *testing.T) {
	c := Start(t)
	var name string
	t.Run("Für Anna/und Ben", func(t *testing.T) {
		name = Namespace(t, c)
		client, err := kubernetes.NewForConfig(c.Config())
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.CoreV1().Pods(name).Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "web"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Error(err)
		}
	})
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	Eventually(t, func() error {
		namespace, err := client.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
		if err == nil && namespace.DeletionTimestamp == nil {
			return fmt.Errorf("namespace %s is not being deleted", name)
		}
		return nil
	})
}

func TestNamespacePrefix(t *testing.T) {
	for test, want := range map[string]string{
		"TestQuota":                       "testquota-",
		"TestQuota/Für Anna/und Ben":      "testquota-f-r-anna-und-ben-",
		"Test" + strings.Repeat("x", 100): "test" + strings.Repeat("x", 46) + "-",
		"TestQuota/200 at once (of 10)":   "testquota-200-at-once-of-10-",
	} {
		if got := namespacePrefix(test); got != want {
			t.Errorf("%s: got %s, want %s", test, got, want)
		}
	}
}

// fakeTB is a test whose result can be inspected.
type fakeTB struct {
	testing.TB
	failed   bool
	messages strings.Builder
	cleanups []func()
}

func (r *fakeTB) Helper()                         {}
func (r *fakeTB) Failed() bool                    { return r.failed }
func (r *fakeTB) Cleanup(f func())                { r.cleanups = append(r.cleanups, f) }
func (r *fakeTB) Logf(format string, args ...any) { fmt.Fprintf(&r.messages, format+"\n", args...) }
func (r *fakeTB) Fatalf(format string, args ...any) {
	r.Logf(format, args...)
	r.failed = true
	runtime.Goexit()
}

// runIn runs a test's body until it returns or calls Fatalf.
func (r *fakeTB) runIn(body func(testing.TB)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		body(r)
	}()
	<-done
	for _, cleanup := range r.cleanups {
		cleanup()
	}
}

func TestEventually(t *testing.T) {
	calls := 0
	r := &fakeTB{TB: t}
	r.runIn(func(t testing.TB) {
		Eventually(t, func() error {
			if calls++; calls < 3 {
				return errors.New("not yet")
			}
			return nil
		})
	})
	if r.failed || calls != 3 {
		t.Errorf("failed %v after %d calls: %s", r.failed, calls, r.messages.String())
	}

	r = &fakeTB{TB: t}
	r.runIn(func(t testing.TB) {
		EventuallyWithin(t, 10*time.Millisecond, func() error { return errors.New("2 of 3 pods are bound") })
	})
	if want := "not within 10ms: 2 of 3 pods are bound\n"; !r.failed || r.messages.String() != want {
		t.Errorf("failed %v, logged %q, want %q", r.failed, r.messages.String(), want)
	}
}

func TestFailedTestPrintsComponentLogs(t *testing.T) {
	c := Start(t)
	for _, failed := range []bool{false, true} {
		r := &fakeTB{TB: t, failed: failed}
		r.runIn(func(testing.TB) {
			showLogsOnFailure(r, c)
			log, err := os.OpenFile(filepath.Join(c.Dir(), "logs", "webhook.log"), os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				t.Error(err)
				return
			}
			defer log.Close()
			fmt.Fprintln(log, "denied by policy core.quota")
		})
		logged := r.messages.String()
		if got := strings.Contains(logged, "webhook logged during this test:\n    denied by policy core.quota\n"); got != failed {
			t.Errorf("failed %v, logged:\n%s", failed, logged)
		}
		if strings.Contains(logged, "serving") {
			t.Errorf("shows lines from before the test:\n%s", logged)
		}
	}
}

func TestTailSince(t *testing.T) {
	var lines strings.Builder
	for i := range 20 {
		fmt.Fprintf(&lines, "line %d\n", i)
	}
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name   string
		offset int64
		first  string
		lines  int
	}{
		{"everything", 0, "    ... 5 lines before", 16},
		{"the last two lines", int64(lines.Len() - len("line 18\nline 19\n")), "    line 18", 2},
		{"no new lines", int64(lines.Len()), "    ", 1},
		{"a truncated log", int64(lines.Len() + 1000), "    ... 5 lines before", 16},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tailSince(path, tt.offset)
			if err != nil {
				t.Fatal(err)
			}
			if all := strings.Split(got, "\n"); all[0] != tt.first || len(all) != tt.lines {
				t.Errorf("got %d lines:\n%s", len(all), got)
			}
		})
	}
}
