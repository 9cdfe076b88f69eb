// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/test/corpus"
)

// webhookMemoryLimit is the memory that the webhook may take with the children that check policies.
const webhookMemoryLimit = 512 << 10 // KiB

// The webhook stays under 512 MiB and is not restarted while it checks and evaluates every hostile policy and answers
// every hostile pod, and refuses no plain pod of another project meanwhile. Guards invariants 1 and 10 of the design.
func TestWebhookMemoryThroughHostileCorpus(t *testing.T) {
	s := newUnsharedCluster(t)
	s.createDepartment(t, "corpus", newPoolQuota("dgx", "0", "2"))
	for _, ns := range []string{"thesis", "calm"} {
		s.createGovernedProject(t, "corpus", ns, newPoolQuota("dgx", "0", "1"))
	}
	w := &webhookMemory{cluster: s, pid: s.componentPID(t, "webhook")}
	end := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { w.watch(t, end) })
	t.Cleanup(watching.Wait)
	t.Cleanup(sync.OnceFunc(func() { close(end) }))

	for name, text := range corpus.ExhaustingPolicies() {
		eventually(t, func() error { // a check that gets no processor in time is not the policy's fault
			err := s.adminClient.Create(t.Context(), hostilePolicy("exhausting", text), client.DryRunAll)
			if err == nil || !strings.Contains(err.Error(), "the policy cannot be compiled") {
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	}
	w.logPeak(t, "checks of policies that exhaust the compiler")
	for i, name := range slices.Sorted(maps.Keys(corpus.Policies)) {
		policy := hostilePolicy(fmt.Sprint("hostile-", i), "package hostile\n\n"+corpus.Policies[name])
		if err := s.adminClient.Create(t.Context(), policy); apierrors.IsInvalid(err) {
			continue // the check finds what the evaluation would
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		eventually(t, func() error {
			if err := w.createPod(t.Context(), []byte(`{"metadata": {"name": "plain"}, "spec": {"containers": [{"name": "main", "image": "a"}]}}`)); err == nil {
				return fmt.Errorf("%s admits a pod", name)
			}
			return nil
		})
		if err := s.adminClient.Delete(t.Context(), policy); err != nil {
			t.Error(err)
		}
	}
	w.logPeak(t, "hostile policies")
	w.createPods(t, corpus.Pods())
	w.logPeak(t, "hostile pods")
	if pid := s.componentPID(t, "webhook"); pid != w.pid {
		t.Errorf("the webhook was restarted: process %d, was %d", pid, w.pid)
	}
	if w.peak() > webhookMemoryLimit {
		t.Errorf("the webhook took %d MiB, want at most %d", w.peak()>>10, webhookMemoryLimit>>10)
	}
}

func hostilePolicy(name, rego string) *v1alpha1.Policy {
	return &v1alpha1.Policy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.PolicySpec{
			Enforcement: v1alpha1.EnforcementDeny, Match: v1alpha1.PolicyMatch{Projects: []string{"thesis"}}, Rego: rego,
		},
	}
}

// webhookMemory watches the memory of the webhook and of its children.
type webhookMemory struct {
	cluster *sluiceCluster
	pid     int

	mu  sync.Mutex
	sum int // the largest, in KiB
}

// watch reads the memory, and creates plain pods in another project, until end is closed. The pages of the program, which
// the children share with the webhook, count once.
func (w *webhookMemory) watch(t *testing.T, end <-chan struct{}) {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for n := 0; ; n++ {
		sum := memoryOf(w.pid, "VmRSS:")
		children, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", w.pid))
		if err != nil {
			t.Error(err)
			return
		}
		for _, file := range children {
			raw, _ := os.ReadFile(file) // the thread may have ended
			for pid := range strings.FieldsSeq(string(raw)) {
				child, err := strconv.Atoi(pid)
				if err == nil {
					sum += memoryOf(child, "RssAnon:")
				}
			}
		}
		w.mu.Lock()
		w.sum = max(w.sum, sum)
		w.mu.Unlock()
		if n%20 == 0 {
			plain := newPod("calm", fmt.Sprint("plain-", n))
			_, err := w.cluster.clientset.CoreV1().Pods("calm").Create(t.Context(), plain, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if apierrors.IsForbidden(err) {
				t.Errorf("a plain pod of another project was refused: %v", err)
			}
		}
		select {
		case <-end:
			return
		case <-ticker.C:
		}
	}
}

func (w *webhookMemory) peak() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sum
}

func (w *webhookMemory) logPeak(t *testing.T, what string) {
	t.Helper()
	t.Logf("after %s: at most %d MiB", what, w.peak()>>10)
}

// createPods sends pods, four at a time. Refused ones, and those that the API server cannot decode, are as good as
// others.
func (w *webhookMemory) createPods(t *testing.T, pods map[string][]byte) {
	t.Helper()
	var all errgroup.Group
	all.SetLimit(4)
	for _, raw := range pods {
		all.Go(func() error {
			_ = w.createPod(t.Context(), raw)
			return nil
		})
	}
	_ = all.Wait()
}

// createPod sends a pod of project thesis, without effect.
func (w *webhookMemory) createPod(ctx context.Context, raw []byte) error {
	return w.cluster.clientset.CoreV1().RESTClient().Post().Namespace("thesis").Resource("pods").Param("dryRun", "All").
		SetHeader("Content-Type", "application/json").Body(raw).Do(ctx).Error()
}

// memoryOf returns a value of the present memory of a process in KiB, zero if it has ended.
func memoryOf(pid int, name string) (kib int) {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)) // zero then
	_, after, _ := strings.Cut(string(raw), name)
	_, _ = fmt.Sscan(after, &kib)
	return kib
}
